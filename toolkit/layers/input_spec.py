"""InputSpec: the rank, extents and dtype that a layer expects of its inputs."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes, tree
from toolkit.core.keras_tensor import standardize_shape
from toolkit.errors import ArgumentError, DTypeError, ShapeError
from toolkit.type_aliases import DTypeLike, Shape


class InputSpec:
    """Expected properties of one input; None means any value.

    Args:
        dtype: the exact dtype.
        shape: the exact shape; an extent of None matches any extent.
        ndim: the exact rank.
        max_ndim: the maximum rank.
        min_ndim: the minimum rank.
        axes: extents by axis, `{-1: 64}`.
        allow_last_axis_squeeze: whether a last axis of extent 1 can be missing or
            extra.
        name: the key of this input in a dict of inputs.
        optional: whether the input can be None.

    Example:
        >>> from toolkit.layers import InputSpec
        >>> InputSpec(min_ndim=2, axes={-1: 64})
        InputSpec(min_ndim=2, axes={-1: 64})
    """

    def __init__(
        self,
        dtype: DTypeLike | None = None,
        shape: Shape | None = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: dict[int, int | None] | None = None,
        allow_last_axis_squeeze: bool = False,
        name: str | None = None,
        optional: bool = False,
    ) -> None:
        self.dtype: str | None = None if dtype is None else dtypes.standardize(dtype)
        self.shape: tuple[int | None, ...] | None = (
            None if shape is None else standardize_shape(shape)
        )
        self.ndim: int | None = ndim if self.shape is None else len(self.shape)
        self.max_ndim = max_ndim
        self.min_ndim = min_ndim
        self.axes: dict[int, int | None] = _checked_axes(
            axes, self.ndim or self.max_ndim
        )
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        self.name = name
        self.optional = optional

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        return {
            "dtype": self.dtype,
            "shape": self.shape,
            "ndim": self.ndim,
            "max_ndim": self.max_ndim,
            "min_ndim": self.min_ndim,
            "axes": self.axes,
            "optional": self.optional,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> InputSpec:
        """Build a spec from the result of `get_config`.

        Args:
            config: the result of `get_config`.

        Returns:
            The spec.
        """
        return cls(**config)

    def mismatch(self, shape: tuple[int | None, ...], dtype: str) -> str | None:
        """Return the expectation that an input does not satisfy, or None.

        Args:
            shape: the shape of an input.
            dtype: its dtype.
        """
        ndim = len(shape)
        if self.shape is not None:
            expected = _squeezed(self.shape) if self.allow_last_axis_squeeze else None
            if not _fits(self.shape, shape) and not (
                expected is not None and _fits(expected, _squeezed(shape))
            ):
                return f"shape={self.shape}"
        elif self.ndim is not None and ndim != self.ndim:
            return f"{self.ndim} axes"
        if self.max_ndim is not None and ndim > self.max_ndim:
            return f"at most {self.max_ndim} axes"
        if self.min_ndim is not None and ndim < self.min_ndim:
            return f"at least {self.min_ndim} axes"
        for axis, extent in self.axes.items():
            if extent is None:
                continue
            if not -ndim <= axis < ndim or shape[axis] not in (extent, None):
                return f"extent {extent} along axis {axis}"
        if self.dtype is not None and dtype != self.dtype:
            return f"dtype {self.dtype}"
        return None

    def __repr__(self) -> str:
        names = ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes")
        members = ((name, getattr(self, name)) for name in names)
        text = ", ".join(f"{name}={value}" for name, value in members if value)
        return f"InputSpec({text})"


def _checked_axes(axes: Any, ndim: int | None) -> dict[int, int | None]:
    try:
        checked = {int(axis): extent for axis, extent in (axes or {}).items()}
    except (AttributeError, TypeError, ValueError):
        raise ArgumentError(
            f"InputSpec: axes must be a dict from axis to extent; received {axes!r}"
        ) from None
    if checked and ndim and max(checked) >= ndim:
        raise ArgumentError(
            f"InputSpec: axis {max(checked)} is not among the {ndim} axes"
        )
    return checked


def _squeezed(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    return shape[:-1] if shape and shape[-1] == 1 else shape


def _fits(expected: tuple[int | None, ...], shape: tuple[int | None, ...]) -> bool:
    return len(expected) == len(shape) and all(
        m is None or n is None or m == n for m, n in zip(expected, shape, strict=True)
    )


def check_inputs(specs: Any, inputs: Any, layer: Any) -> None:
    """Raise unless `inputs` fit `specs` (an InputSpec or a nest of them).

    Raises:
        ShapeError, DTypeError: with the layer, its path, and the expected and received
            values.
        ArgumentError: if the number of inputs or their keys do not fit.
    """
    flat_specs = tree.flatten(specs)
    flat_inputs = tree.flatten(_in_order(flat_specs, inputs, layer))
    if len(flat_inputs) != len(flat_specs):
        raise ArgumentError(
            f"{describe(layer)}: expected {len(flat_specs)} inputs; "
            f"received {len(flat_inputs)}"
        )
    for i, (x, spec) in enumerate(zip(flat_inputs, flat_specs, strict=True)):
        if spec is None or (x is None and spec.optional):
            continue
        if not hasattr(x, "shape"):
            raise ArgumentError(
                f"{describe(layer)}: expected tensors; "
                f"received {x!r} of type {type(x).__name__}"
            )
        expected = spec.mismatch(tuple(x.shape), x.dtype)
        if expected is not None:
            which = f"input {i}" if len(flat_specs) > 1 else "input"
            error = DTypeError if expected.startswith("dtype") else ShapeError
            raise error(
                f"{describe(layer)}: {which}: expected {expected}, "
                f"found shape={tuple(x.shape)}, dtype={x.dtype}"
                f"{_fix_of_rank(spec, x, layer) or _fix_of_extent(expected, layer)}"
            )


def _fix_of_extent(expected: str, layer: object) -> str:
    """Return the fix for another extent than at the first call, or ""."""
    if not expected.startswith("extent") or not getattr(layer, "built", False):
        return ""
    return (
        f". The weights of the layer were created for the {expected}; use another "
        f"{type(layer).__name__} layer for this input, or change the input"
    )


_SPATIAL_AXES = (("steps",), ("height", "width"), ("depth", "height", "width"))


def _fix_of_rank(spec: InputSpec, x: Any, layer: object) -> str:
    """Return the meaning of the expected axes and the likely fix, or ""."""
    shape = tuple(x.shape)
    expected = spec.ndim or spec.min_ndim
    if expected is None or len(shape) >= expected:
        return ""
    names = _axis_names(layer, expected)
    meaning = f"; the axes are ({', '.join(names)})" if names else ""
    if len(shape) != expected - 1:
        return meaning
    history = getattr(x, "_keras_history", None)
    producer: Any = getattr(history, "operation", None)
    if getattr(producer, "return_sequences", None) is False:
        return (
            f"{meaning}. The layer {producer.name!r} returns only its last step: "
            "create it with return_sequences=True"
        )
    is_symbol = history is not None
    if "channels" in names and (is_symbol or shape[-1] not in (1, 3, 4)):
        axis = names.index("channels")
        extents = [*shape[1:axis], 1, *shape[axis:]]
        return (
            f"{meaning}. Add an axis of channels: Input({_text(extents)}), and "
            f"np.expand_dims(x, {-1 if axis == expected - 1 else axis}) for the data"
        )
    if names[-1:] == ("features",) and (is_symbol or len(shape) > 1):
        return (
            f"{meaning}. Add the missing axis, for example by np.expand_dims(x, -1); "
            "a recurrent layer before this one needs return_sequences=True"
        )
    return f"{meaning}. Add the missing axis: x[None] is a batch of one sample"


def _axis_names(layer: object, ndim: int) -> tuple[str, ...]:
    """Return the names of the axes of a layer's input, or () if unknown."""
    rank, order = getattr(layer, "rank", None), getattr(layer, "data_format", None)
    names: tuple[str, ...] = ()
    if rank in (1, 2, 3) and order is not None:
        names = _SPATIAL_AXES[rank - 1]
        is_last = order == "channels_last"
        names = (*names, "channels") if is_last else ("channels", *names)
    elif hasattr(layer, "return_sequences"):
        names = ("features",)
    if hasattr(layer, "return_sequences"):
        names = ("steps", *names)
    return ("batch", *names) if len(names) == ndim - 1 else ()


def _text(extents: list[int | None]) -> str:
    return str(tuple(extents))


def _in_order(flat_specs: list[Any], inputs: Any, layer: Any) -> Any:
    """Sort a dict of inputs by the specs' names, if all specs have one."""
    names = [getattr(spec, "name", None) for spec in flat_specs]
    if not isinstance(inputs, dict) or not all(names):
        return inputs
    missing_names = [name for name in names if name not in inputs]
    if missing_names:
        raise ArgumentError(
            f"{describe(layer)}: expected inputs named {names}; received {list(inputs)}"
        )
    return [inputs[name] for name in names]


def describe(layer: Any) -> str:
    """Describe a layer for messages: `layer 'dense' (Dense, path 'a/dense')`."""
    path = f", path {layer.path!r}" if layer.path else ""
    return f"layer {layer.name!r} ({type(layer).__name__}{path})"
