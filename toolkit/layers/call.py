"""The environment of `Layer.call`: arguments, shapes and the call context."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from toolkit import dtypes, ops, tree
from toolkit.core.convert import convert, is_strings
from toolkit.core.masks import mask_of, set_mask
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ToolkitError
from toolkit.layers.input_spec import describe
from toolkit.layers.masks import masks_of
from toolkit.ops.symbolic import (
    PROBES,
    FunctionOperation,
    KerasTensor,
    is_symbolic,
    record,
)
from toolkit.thread_state import ThreadState
from toolkit.type_aliases import Shape, TensorLike


class _Context(ThreadState):
    """Active layer calls of this thread."""

    layer: Any = None  # the innermost layer in `call` or `build`
    training: bool | None = None
    symbolic = False  # whether only shapes are computed: then losses are dropped
    # arguments of enclosing calls that nested calls inherit
    arguments: dict[str, Any] | None = None
    # Layers that use their default mode, and the mode, if the caller collects them.
    defaulted: list[tuple[Any, bool | None]] | None = None
    weightless = False  # whether new weights can be zeros, because only shapes matter
    is_eager = False  # whether layers must not trace, because of run_eagerly=True


context: _Context = _Context()


class SymbolicScope:
    """Scope that computes only shapes and drops the losses that layers add.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.ActivityRegularization(l2=1.0)
        >>> with toolkit.SymbolicScope():
        ...     _ = layer(toolkit.ops.ones((2,)))
        >>> layer.losses
        []
    """

    def __enter__(self) -> SymbolicScope:
        self._outer, context.symbolic = context.symbolic, True
        return self

    def __exit__(self, *exception: object) -> None:
        context.symbolic = self._outer


_NAMED = {
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
}


class CallInfo(NamedTuple):
    """Parsed signature of a `call` method."""

    signature: inspect.Signature
    names: tuple[str, ...]
    defaults: dict[str, Any]
    plain: bool  # whether the signature has neither *args nor **kwargs
    takes_training: bool
    takes_mask: bool
    training_default: bool | None
    own: bool  # whether the class is defined in toolkit.layers
    required: int  # the number of arguments without a default


@lru_cache(maxsize=4096)
def call_info(function: Any) -> CallInfo:
    """Return the CallInfo of an unbound `call` method."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1:]
    by_name = {p.name: p for p in parameters}
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    return CallInfo(
        signature.replace(parameters=parameters),
        tuple(by_name),
        defaults,
        plain,
        "training" in by_name,
        "mask" in by_name,
        defaults.get("training"),
        (function.__module__ or "").startswith("toolkit.layers."),
        sum(p.default is p.empty and p.kind in _NAMED for p in parameters),
    )


@contextmanager
def propagate_arguments(
    names: tuple[str, ...], info: CallInfo, kwargs: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Pass arguments of these names to nested calls; yield the arguments of this call.

    Args:
        names: the names that a layer has registered.
        info: the signature of its `call`.
        kwargs: the keyword arguments; names that `call` does not accept are removed.
    """
    outer = context.arguments
    passed = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
    context.arguments = {**(outer or {}), **passed}
    visible = {
        name: context.arguments[name] for name in names if name in context.arguments
    }
    remaining = {name: value for name, value in kwargs.items() if name not in names}
    try:
        yield remaining | {name: x for name, x in visible.items() if name in info.names}
    finally:
        context.arguments = outer


def is_tensor(x: TensorLike) -> bool:
    """Return whether `x` is a tensor, a symbol, a Variable, or an array of strings."""
    return isinstance(x, (Tensor, KerasTensor, Variable)) or is_strings(x)


def standardize_input(x: Any, dtype: str | None) -> Any:
    """Convert an array to a tensor and cast floats to `dtype`; keep other values."""
    if is_symbolic(x):
        if not _to_cast(x.dtype, dtype):
            return x
        cast: Any = KerasTensor(x.shape, dtype)
        # Record the cast, so that masks computed from it depend on x.
        record(FunctionOperation(ops.cast), (x, dtype), {}, cast)
    elif is_strings(x):
        return x
    elif isinstance(x, (Tensor, Variable)) or hasattr(x, "__array__"):
        tensor = convert(x)
        if tensor is x and not _to_cast(tensor.dtype, dtype):
            return x
        cast = convert(tensor, dtype) if _to_cast(tensor.dtype, dtype) else tensor
    else:
        return x
    if mask_of(x) is not None:
        set_mask(cast, mask_of(x))
    return cast


def _to_cast(dtype: str, target: str | None) -> bool:
    return target is not None and dtype != target and dtypes.is_float(dtype)


class Arguments:
    """Arguments of one call, by name.

    Args:
        layer: the layer of the call.
        info: the signature of `call`.
        args: positional arguments, already tensors.
        kwargs: keyword arguments.
    """

    def __init__(self, layer: Any, info: CallInfo, args: Any, kwargs: Any) -> None:
        received = {**dict(zip(info.names, args, strict=False)), **kwargs}
        by_name = {**info.defaults, **received}
        complete = info.plain and len(by_name) == len(info.names)
        if not complete or len(received) < len(args) + len(kwargs):
            try:
                bound = info.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{describe(layer)}: {error}") from None
            bound.apply_defaults()
            by_name = dict(bound.arguments)
        else:
            by_name = {name: by_name[name] for name in info.names}
        self.by_name = by_name
        self.first: Any = next(iter(self.by_name.values()), None)

    def _tensors(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.by_name.items() if _all_tensors(value)
        }

    def masks(self) -> dict[str, Any]:
        """Return the masks of the inputs, for mask arguments that the caller omitted.

        `mask` is the mask of the first input, `<argument>_mask` the mask of each
        argument.
        """
        names = {f"{name}_mask": x for name, x in self._tensors().items()}
        names["mask"] = self.first
        return {
            name: masks_of(x)
            for name, x in names.items()
            if name in self.by_name and self.by_name[name] is None
        }

    def shapes(self) -> dict[str, Any]:
        """Return `<argument>_shape` of every tensor argument, without masks."""
        return {
            f"{name}_shape": tree.map_structure(_shape_of, value)
            for name, value in self._tensors().items()
            if name not in ("mask", "args", "kwargs")
        }


class Call:
    """One call of a layer. The steps of its path read it, and replace its arguments.

    Attributes:
        layer: the layer.
        function: computes the outputs: the layer's `call` or `compute_output_spec`.
        args, kwargs: the arguments of `function`.
        training: the training mode that the caller requests, or None.
        leaves: the leaves of `args` and `kwargs`, if a step has flattened them.
        is_symbolic: whether one of the leaves is a symbol.
        arguments: the arguments by name, if a step has bound them.
    """

    __slots__ = (
        *("args", "arguments", "function", "is_symbolic", "kwargs", "layer", "leaves"),
        "training",
    )

    is_recorded = True  # whether a call with symbols becomes a node of their graph
    arguments: Arguments
    is_symbolic: bool
    leaves: list[Any]

    def __init__(
        self,
        layer: Any,
        function: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        training: bool | None = None,
    ) -> None:
        self.layer = layer
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.training = training


class UnrecordedCall(Call):
    """A call that only infers the symbols of its outputs."""

    __slots__ = ()

    is_recorded = False


def _all_tensors(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    if not tree.is_nested(value):
        return is_tensor(value)
    leaves = tree.flatten(value)
    return any(map(is_tensor, leaves)) and all(
        x is None or is_tensor(x) for x in leaves
    )


def _shape_of(x: Any) -> Shape | None:
    if x is None:
        return None
    if context.symbolic:  # an extent of a probe represents an unknown one
        return tuple(None if n in PROBES else n for n in x.shape)
    return tuple(x.shape)


def check_positional(call: Call) -> None:
    """Raise unless all positional arguments are tensors or None."""
    for x in tree.flatten(call.args):
        if x is not None and not is_tensor(x):
            raise ArgumentError(
                f"{describe(call.layer)}: Only input tensors may be passed as "
                f"positional arguments; received {x!r} of type {type(x).__name__}; "
                + (
                    "convert texts by np.array([...])"
                    if isinstance(x, (str, bytes))
                    else "pass other arguments by name"
                )
            )


def name_training(call: Call) -> None:
    """Pass `training` and all arguments after it by keyword."""
    names = call.layer._info.names
    index = names.index("training")
    named = dict(zip(names[index:], call.args[index:], strict=False))
    call.args, call.kwargs = call.args[:index], {**named, **call.kwargs}


def match_shapes(
    function: Any, shapes: dict[str, Any], arguments: Any
) -> dict[str, Any]:
    """Match shapes to the parameter names of `build` or `compute_output_shape`.

    A single parameter receives the first shape. Several parameters must have the names
    of `call`'s arguments with the suffix `_shape`.
    """
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if len(parameters) == 1:
        return {parameters[0].name: next(iter(shapes.values()), None)}
    for parameter in parameters:
        argument = parameter.name.removesuffix("_shape")
        if argument == parameter.name or argument not in arguments:
            wrong = "which does not end in `_shape`"
            if argument != parameter.name:
                wrong = f"but `call()` does not have argument `{argument}`"
            raise ArgumentError(
                f"{function.__qualname__}: the argument `{parameter.name}`, {wrong}; "
                "each argument has the name of an argument of `call` with the suffix "
                "`_shape`"
            )
    return {p.name: shapes[p.name] for p in parameters if p.name in shapes}


def is_shape(value: object) -> bool:
    """Return whether `value` is a single shape, not a structure of shapes."""
    return isinstance(value, (tuple, list)) and all(
        n is None or isinstance(n, int) for n in value
    )


def map_shapes(function: Any, shapes: Any) -> Any:
    """Apply `function` to every shape in a structure of shapes."""
    if shapes is None:
        return None
    if is_shape(shapes):
        return function(tuple(shapes))
    if isinstance(shapes, dict):
        return {key: map_shapes(function, value) for key, value in shapes.items()}
    return type(shapes)(map_shapes(function, value) for value in shapes)


class _Text:
    """Value that prints without quotes in a nest."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return str(self.value)


def shapes_text(outputs: object) -> str:
    """Return the shapes of tensors or symbols, in their structure, as text."""

    def shape_of(leaf: Any) -> _Text:
        if not is_tensor(leaf):
            return _Text(leaf)
        return _Text(tuple(None if n in PROBES else n for n in leaf.shape))

    shapes = tree.map_structure(shape_of, outputs)
    leaves = tree.flatten(shapes)
    return str(leaves[0] if len(leaves) == 1 else shapes)


def explain(error: ToolkitError, call: Call) -> None:
    """Add the layer and its input shapes to an error's message.

    Only the innermost layer does it; a mark on the error stops enclosing layers.
    """
    if getattr(error, "layer", None) or getattr(error.__cause__, "layer", None):
        return
    received = [*call.args, *call.kwargs.items()]
    shapes = ", ".join(_brief(value) for value in received)
    error.args = (f"{error}\n  in {describe(call.layer)}, called with {shapes}",)
    vars(error)["layer"] = call.layer


def _brief(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return f"{value[0]}={_brief(value[1])}"
    if is_tensor(value) or isinstance(value, np.ndarray):
        shape = tuple(None if n in PROBES else n for n in value.shape)
        return f"{value.dtype}{shape}"
    if tree.is_nested(value):
        return "[" + ", ".join(_brief(x) for x in tree.flatten(value)) + "]"
    return repr(value)
