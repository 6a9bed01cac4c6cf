"""What happens around `Layer.call`: arguments, shapes, masks, the call's context."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from toolkit import dtypes, ops, tree
from toolkit.core.convert import convert, is_strings
from toolkit.core.tensor import Tensor, bind
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ToolkitError
from toolkit.layers.input_spec import describe
from toolkit.ops.shape import reshape_p
from toolkit.ops.symbolic import (
    PROBES,
    FunctionOperation,
    KerasTensor,
    is_symbolic,
    record,
)
from toolkit.thread_state import ThreadState


class _Context(ThreadState):
    """The layer calls that are going on in this thread."""

    layer: Any = None  # the innermost layer that is being called or built
    training: bool | None = None
    symbolic = False  # whether only shapes are wanted: losses are dropped
    arguments: dict[str, Any] | None = None  # given to calls around, for those inside
    weightless = False  # whether new weights may be zeros, because only shapes count


context: _Context = _Context()


class SymbolicScope:
    """A scope in which only shapes are wanted: what layers add to losses is dropped.

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
    """What the signature of a `call` method says."""

    signature: inspect.Signature
    names: tuple[str, ...]
    defaults: dict[str, Any]
    plain: bool  # whether there is neither *args nor **kwargs
    takes_training: bool
    takes_mask: bool
    training_default: bool | None
    own: bool  # whether it belongs to a layer of this package
    required: int  # the number of arguments without a default


@lru_cache(maxsize=4096)
def call_info(function: Any) -> CallInfo:
    """The CallInfo of an unbound `call` method."""
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
def passed_on(
    names: tuple[str, ...], info: CallInfo, kwargs: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Let calls inside see the arguments of these names; the arguments of this call.

    Args:
        names: those that a layer has registered.
        info: what the signature of its `call` says.
        kwargs: what it was given; the names that `call` does not take are taken out.
    """
    outer = context.arguments
    given = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
    context.arguments = {**(outer or {}), **given}
    own = {name: context.arguments[name] for name in names if name in context.arguments}
    rest = {name: value for name, value in kwargs.items() if name not in names}
    try:
        yield rest | {name: x for name, x in own.items() if name in info.names}
    finally:
        context.arguments = outer


def mask_of(x: Any) -> Any:
    """The mask that travels with a tensor, or None."""
    return getattr(x, "_keras_mask", None)


def masks_of(structure: Any) -> Any:
    """The masks of the tensors in a structure, in the same structure."""
    if not tree.is_nested(structure):
        return mask_of(structure)
    return tree.map_structure(mask_of, structure)


def unmasked(x: Tensor) -> Tensor:
    """Return another tensor of the same value, without a mask."""
    return bind(reshape_p, x, shape=x.shape)


def without_input_masks(inputs: Any, outputs: Any) -> Any:
    """Return the outputs; a tensor that is one of the inputs loses the mask of that.

    An input that a layer returns unchanged is another tensor after it: the mask of the
    output may differ, and other layers still see the mask of the input.
    """
    known = {id(x) for x in tree.flatten(inputs) if isinstance(x, Tensor)}
    return tree.map_structure(lambda x: unmasked(x) if id(x) in known else x, outputs)


def any_mask(masks: Any) -> bool:
    """Whether there is a mask in a structure of masks and Nones."""
    return masks is not None and any(m is not None for m in tree.flatten(masks))


def masks_in_graph(layer: Any, args: Any, kwargs: Any, mask: Any) -> list[Any]:
    """The symbols of a mask that belong to the recorded call, though not given to it.

    Layers, and with them weights, have the same order as in Keras, which exchanges
    weights by their position. There a mask that a layer was not given, but found on its
    input, is among the inputs of the recorded call if the layer had no arguments to
    convert: one tensor of its dtype, and nothing by name.
    """
    if "mask" in kwargs or mask is None:
        return []
    if layer._convert_input_args:
        alone = len(args) == 1 and not kwargs and is_symbolic(args[0])
        if not alone or args[0].dtype != layer.compute_dtype:
            return []
    return [x for x in tree.flatten(mask) if is_symbolic(x)]


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor, a symbol of one, a Variable, or an array of strings."""
    return isinstance(x, (Tensor, KerasTensor, Variable)) or is_strings(x)


def standardize_input(x: Any, dtype: str | None) -> Any:
    """An array as a tensor, floats cast to `dtype` (None: no cast); others as is."""
    if is_symbolic(x):
        if not _to_cast(x.dtype, dtype):
            return x
        cast: Any = KerasTensor(x.shape, dtype)
        # Masks that are computed from it come from where x does.
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
        cast._keras_mask = mask_of(x)
    return cast


def _to_cast(dtype: str, wanted: str | None) -> bool:
    return wanted is not None and dtype != wanted and dtypes.is_float(dtype)


class Arguments:
    """The arguments of one call, by name.

    Args:
        layer: whose `call` they are for.
        info: what the signature of `call` says.
        args: positional arguments, tensors by now.
        kwargs: named arguments.
    """

    def __init__(self, layer: Any, info: CallInfo, args: Any, kwargs: Any) -> None:
        given = {**dict(zip(info.names, args, strict=False)), **kwargs}
        by_name = {**info.defaults, **given}
        complete = info.plain and len(by_name) == len(info.names)
        if not complete or len(given) < len(args) + len(kwargs):
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
        self.tensors: dict[str, Any] = {
            name: value for name, value in self.by_name.items() if _all_tensors(value)
        }

    def masks(self) -> dict[str, Any]:
        """The masks of the inputs, for the mask arguments that `call` was not given.

        `mask` is that of the first input, `<argument>_mask` that of each.
        """
        names = {f"{name}_mask": x for name, x in self.tensors.items()}
        names["mask"] = self.first
        return {
            name: masks_of(x)
            for name, x in names.items()
            if name in self.by_name and self.by_name[name] is None
        }

    def shapes(self) -> dict[str, Any]:
        """`<argument>_shape` of every argument that holds tensors, masks left out."""
        return {
            f"{name}_shape": tree.map_structure(_shape_of, value)
            for name, value in self.tensors.items()
            if name not in ("mask", "args", "kwargs")
        }


def _all_tensors(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    if not tree.is_nested(value):
        return is_tensor(value)
    leaves = tree.flatten(value)
    return any(map(is_tensor, leaves)) and all(
        x is None or is_tensor(x) for x in leaves
    )


def _shape_of(x: Any) -> Any:
    if x is None:
        return None
    if context.symbolic:  # a probe's extent stands for an unknown one
        return tuple(None if n in PROBES else n for n in x.shape)
    return tuple(x.shape)


def standardize_arguments(layer: Any, args: Any, kwargs: Any) -> Any:
    """The arguments with arrays as tensors and floats cast, and their leaves."""
    leaves = tree.flatten((args, kwargs))
    if not layer._convert_input_args:
        return args, dict(kwargs), leaves
    dtype = layer._input_dtype
    converted = [standardize_input(x, dtype) for x in leaves]
    if any(new is not old for new, old in zip(converted, leaves, strict=True)):
        args, kwargs = tree.pack_sequence_as((args, kwargs), converted)
    return args, dict(kwargs), converted


def check_positional(layer: Any, args: Any) -> None:
    """Raise unless only tensors (and None) were passed by position."""
    for x in tree.flatten(args):
        if x is not None and not is_tensor(x):
            raise ArgumentError(
                f"{describe(layer)}: Only input tensors may be passed as positional "
                f"arguments; received {x!r} of type {type(x).__name__}; "
                "pass other arguments by name"
            )


def name_training(names: tuple[str, ...], args: Any, kwargs: Any) -> Any:
    """Return the arguments with `training`, and those after it, passed by name."""
    index = names.index("training")
    named = dict(zip(names[index:], args[index:], strict=False))
    return args[:index], {**named, **kwargs}


def match_shapes(
    function: Any, shapes: dict[str, Any], arguments: Any
) -> dict[str, Any]:
    """The shapes that `build` or `compute_output_shape` takes, by parameter name.

    A single parameter gets the first shape; several must be named after the arguments
    of `call`, with `_shape` appended.
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
                f"{function.__qualname__}: the argument `{parameter.name}`, "
                f"{wrong}; each is named after one of `call`, `_shape` appended"
            )
    return {p.name: shapes[p.name] for p in parameters if p.name in shapes}


def is_shape(value: Any) -> bool:
    """Whether `value` is a single shape rather than a structure of them."""
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


def explain(error: ToolkitError, layer: Any, args: Any, kwargs: Any) -> None:
    """Add to an error's message the layer that was called and its input shapes.

    The innermost layer does; it leaves a mark for those around it.
    """
    if getattr(error, "layer", None) or getattr(error.__cause__, "layer", None):
        return
    given = [*args, *kwargs.items()]
    shapes = ", ".join(_brief(value) for value in given)
    error.args = (f"{error}\n  in {describe(layer)}, called with {shapes}",)
    vars(error)["layer"] = layer


def _brief(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return f"{value[0]}={_brief(value[1])}"
    if is_tensor(value):
        shape = tuple(None if n in PROBES else n for n in value.shape)
        return f"{value.dtype}{shape}"
    if tree.is_nested(value):
        return "[" + ", ".join(_brief(x) for x in tree.flatten(value)) + "]"
    return repr(value)
