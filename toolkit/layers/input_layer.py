"""Input: the symbolic inputs of functional models."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes
from toolkit.arguments import check_arguments, is_int, unknown_argument_error
from toolkit.core.composites import can_compute_composites
from toolkit.core.keras_tensor import KerasTensor, standardize_shape
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.layers.layer import Layer
from toolkit.ops.symbolic import record
from toolkit.release.deprecation import warn_deprecated
from toolkit.type_aliases import DTypeLike, Shape


class InputLayer(Layer):
    """Input of a functional model; `Input` creates it.

    Args:
        shape: the shape without the batch; None for unknown extents.
        batch_size: the batch size, if it is fixed.
        dtype: floatx if None.
        sparse: whether inputs are sparse tensors, which become dense; only with the
            TensorFlow API.
        ragged: whether inputs are ragged rows; only with the TensorFlow API.
        batch_shape: the full shape, instead of `shape` and `batch_size`.
        input_tensor: a symbolic tensor to use, instead of a shape and dtype.
        optional: whether the input can be None.
        name: the name; generated if None.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.InputLayer((28, 28), name="image")
        >>> layer.output.shape
        (None, 28, 28)
    """

    def __init__(
        self,
        shape: Shape | None = None,
        batch_size: int | None = None,
        dtype: DTypeLike | None = None,
        sparse: bool | None = None,
        ragged: bool | None = None,
        batch_shape: Shape | None = None,
        input_tensor: Any = None,
        optional: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name)
        if "input_shape" in kwargs and shape is None:
            warn_deprecated("Input: `input_shape`", "use `shape`", since="0.1")
            shape = kwargs.pop("input_shape")
        if "batch_input_shape" in kwargs and batch_shape is None:
            batch_shape = kwargs.pop("batch_input_shape")
        if kwargs:
            raise unknown_argument_error(self, kwargs)
        for argument, value in (("shape", shape), ("batch_shape", batch_shape)):
            if is_int(value):
                raise ArgumentTypeError(
                    f"Input: expected `{argument}` to be a tuple of integers; received "
                    f"{value!r}; did you mean {argument}=({value},)?"
                )
        extents: Any = shape
        shape_arguments: dict[str, Any] = {
            "shape": shape,
            "batch_shape": batch_shape,
            "batch_size": batch_size,
        }
        if input_tensor is not None:
            _check_fits(input_tensor, **shape_arguments, dtype=dtype, sparse=sparse)
            batch_shape, dtype = input_tensor.shape, input_tensor.dtype
        else:
            _check_one_shape(**shape_arguments)
            if batch_shape is None:
                batch_shape = (batch_size, *extents)
        if (sparse or ragged) and not can_compute_composites():
            kind = "sparse" if sparse else "ragged"
            raise ArgumentError(
                f"Input: `{kind}=True` is not supported: all tensors are dense"
            )
        self.batch_shape: tuple[int | None, ...] = standardize_shape(batch_shape)
        self.sparse, self.ragged = bool(sparse), bool(ragged)
        self.optional = optional
        self._dtype = dtypes.standardize(dtype)
        output = input_tensor
        if output is None:
            output = KerasTensor(self.batch_shape, self._dtype, name=self.name)
        self.built = True
        record(self, (), {}, output)

    @property
    def dtype(self) -> str:
        """Return the dtype of the data."""
        return self._dtype

    def call(self) -> None:
        """Return None: a model uses its inputs directly."""

    def get_config(self) -> dict[str, Any]:
        return {
            "batch_shape": self.batch_shape,
            "dtype": self.dtype,
            "optional": self.optional,
            "name": self.name,
            **({"sparse": True} if self.sparse else {}),
            **({"ragged": True} if self.ragged else {}),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> InputLayer:
        return cls(**config)


def _check_fits(tensor: Any, **expected: Any) -> None:
    """Raise if an argument contradicts the symbolic tensor."""
    if not isinstance(tensor, KerasTensor):
        raise ArgumentError(
            f"Input: Argument `input_tensor` must be a KerasTensor; received {tensor!r}"
        )
    actual = {
        "shape": tensor.shape[1:],
        "batch_shape": tensor.shape,
        "batch_size": (*tensor.shape, None)[0],
        "dtype": tensor.dtype,
        "sparse": False,
    }
    for name, value in expected.items():
        value = tuple(value) if isinstance(value, list) else value
        if value is not None and value != actual[name]:
            raise ArgumentError(
                "Input: with an input tensor you cannot provide an incompatible "
                f"`{name}`: expected {actual[name]!r}; received {value!r}"
            )


def _check_one_shape(shape: Shape, batch_shape: Any, batch_size: Any) -> None:
    if batch_shape is None:
        if shape is None:
            raise ArgumentError("Input: pass a `shape` argument, or a `batch_shape`")
        return
    for name, value in (("shape", shape), ("batch_size", batch_size)):
        if value is not None:
            raise ArgumentError(
                f"Input: you cannot pass both `{name}` and `batch_shape`; "
                f"received {value!r} and {batch_shape!r}"
            )


@check_arguments
def Input(
    shape: Shape | None = None,
    batch_size: int | None = None,
    dtype: DTypeLike | None = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
    batch_shape: Any = None,
    name: str | None = None,
    tensor: Any = None,
    optional: bool = False,
) -> KerasTensor:
    """Create a symbolic tensor for the input data of a functional model.

    Args:
        shape: the shape without the batch; None for unknown extents.
        batch_size: the batch size, if it is fixed.
        dtype: floatx if None.
        sparse: whether inputs are sparse tensors, which become dense; only with the
            TensorFlow API.
        ragged: whether inputs are ragged rows; only with the TensorFlow API.
        batch_shape: the full shape, instead of `shape` and `batch_size`.
        name: the name of the input; generated if None.
        tensor: a symbolic tensor to use, instead of a shape and dtype.
        optional: whether the input can be None.

    Returns:
        A symbolic tensor, (batch, *shape). Layers and operations accept it.

    Example:
        >>> import toolkit
        >>> toolkit.Input((28, 28), name="image")
        <KerasTensor shape=(None, 28, 28), dtype=float32, name=image>
    """
    layer = InputLayer(
        shape=shape,
        batch_size=batch_size,
        dtype=dtype,
        sparse=sparse,
        ragged=ragged,
        batch_shape=batch_shape,
        input_tensor=tensor,
        optional=optional,
        name=name,
    )
    return layer.output
