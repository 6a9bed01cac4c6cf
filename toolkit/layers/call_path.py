"""The path of a call through a layer: one wrapper for each concern, in one order.

`ARGUMENT_CONCERNS` and `RUN_CONCERNS` list the wrappers, the outermost first. A layer
gets only the wrappers that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import not_
from typing import Any, NamedTuple

import numpy as np

from toolkit import tree
from toolkit.core.composites import Composite
from toolkit.core.dialects import dialect_of
from toolkit.core.masks import mask_of, set_mask
from toolkit.core.naming import scopes
from toolkit.core.tensor import Tensor, state
from toolkit.errors import ToolkitError
from toolkit.layers.call import (
    Arguments,
    Call,
    CallInfo,
    check_positional,
    context,
    explain,
    is_tensor,
    name_training,
    propagate_arguments,
    shapes_text,
    standardize_input,
)
from toolkit.layers.input_spec import check_inputs
from toolkit.layers.masks import attach_masks, masks_in_graph, masks_of
from toolkit.layers.tracking import with_losses
from toolkit.ops.symbolic import KerasTensor, is_symbolic, record

# Types of arguments that are independent of the API dialect.
_PLAIN = {Tensor, KerasTensor, np.ndarray, bool, int, float, str, type(None)}


Step = Callable[[Call], Any]  # the remaining path; returns the outputs


def _compute(call: Call) -> Any:
    return call.function(*call.args, **call.kwargs)


# --- arguments ------------------------------------------------------------------------


def _inherit_arguments(inner: Step) -> Step:
    """Propagate registered arguments to nested calls, and receive them."""

    def step(call: Call) -> Any:
        layer = call.layer
        with propagate_arguments(
            layer._context_names, layer._info, call.kwargs
        ) as call.kwargs:
            return inner(call)

    return step


def _enter_dialect(inner: Step) -> Step:
    """Enter the dialect of the arguments. Ragged rows call the layer themselves."""

    def step(call: Call) -> Any:
        args = call.args
        if args and isinstance(args[0], Composite):
            return args[0].call_layer(call.layer, args, call.kwargs)
        leaves = call.leaves = tree.flatten((args, call.kwargs))
        dialect = None if _PLAIN.issuperset(map(type, leaves)) else dialect_of(leaves)
        if dialect is None or dialect is state.dialect:
            return inner(call)
        with dialect.activate():
            return inner(call)

    return step


def _record_symbols(inner: Step) -> Step:
    """Record a call with symbols as a node of their graph."""

    def step(call: Call) -> Any:
        call.is_symbolic = any(map(is_symbolic, call.leaves))
        if not (call.is_symbolic and call.is_recorded):
            return inner(call)
        args, kwargs = call.args, call.kwargs
        outputs = inner(call)
        masks = masks_in_graph(call.layer, args, kwargs, call.kwargs.get("mask"))
        record(call.layer, args, kwargs, outputs, masks)
        return outputs

    return step


def _convert_inputs(inner: Step) -> Step:
    """Convert arrays to tensors, and cast floats to the layer's input dtype."""

    def step(call: Call) -> Any:
        dtype, leaves = call.layer._input_dtype, call.leaves
        converted = [standardize_input(x, dtype) for x in leaves]
        if any(new is not old for new, old in zip(converted, leaves, strict=True)):
            pair = call.args, call.kwargs
            call.args, call.kwargs = tree.pack_sequence_as(pair, converted)
            call.leaves = converted
        return inner(call)

    return step


def _bind_arguments(inner: Step) -> Step:
    """Check the arguments, and bind them to the names of the signature."""

    def step(call: Call) -> Any:
        layer = call.layer
        info: CallInfo = layer._info
        takes_any = layer._allow_non_tensor_positional_args
        if not (takes_any or all(map(is_tensor, call.leaves))):
            check_positional(call)
        count = len(call.args)
        if 1 < count <= len(info.names) and "training" in info.names[:count]:
            name_training(call)
        call.kwargs = dict(call.kwargs)
        call.training = call.kwargs.get("training")
        if not info.takes_training or call.training is None:
            call.kwargs.pop("training", None)
        call.arguments = Arguments(layer, info, call.args, call.kwargs)
        return inner(call)

    return step


def _check_spec(inner: Step) -> Step:
    """Raise unless the first argument matches the input_spec."""

    def step(call: Call) -> Any:
        layer = call.layer
        check_inputs(layer._input_spec, call.arguments.first, layer)
        return inner(call)

    return step


def _receive_masks(inner: Step) -> Step:
    """Pass the masks of the inputs to `call`, for masks that the caller omitted."""

    def step(call: Call) -> Any:
        call.kwargs.update(call.arguments.masks())
        return inner(call)

    return step


def _attach_masks(inner: Step) -> Step:
    """Attach a mask to the outputs, computed from the mask of the inputs."""

    def step(call: Call) -> Any:
        arguments, mask = call.arguments, call.kwargs.get("mask")
        mask = masks_of(arguments.first) if mask is None else mask
        return attach_masks(call.layer, arguments.by_name, inner(call), mask)

    return step


def _infer_symbols(inner: Step) -> Step:
    """Compute symbols by `compute_output_spec`, if an argument is a symbol."""

    def step(call: Call) -> Any:
        if not call.is_symbolic:
            return inner(call)
        call.function = call.layer.compute_output_spec
        with context.override(symbolic=True):
            outputs = inner(call)
        # A symbol that passes through unchanged must keep its origin.
        inputs = {id(x) for x in tree.flatten(call.arguments.by_name)}
        return tree.map_structure(lambda x: _own_symbol(x, inputs), outputs)

    return step


def _own_symbol(x: Any, inputs: set[int]) -> Any:
    """Return `x`, or a new symbol like it if it already belongs to another call.

    A symbol like one of the inputs has no mask: the layer computes it.
    """
    if not is_symbolic(x) or x._keras_history is None:
        return x
    symbol = KerasTensor(x.shape, x.dtype)
    set_mask(symbol, None if id(x) in inputs else mask_of(x))
    return symbol


# --- run ------------------------------------------------------------------------------


def _clear_losses(inner: Step) -> Step:
    """Drop the losses of the last call when the outermost layer is called."""

    def step(call: Call) -> Any:
        if context.layer is None and with_losses:
            call.layer._clear_losses()
        return inner(call)

    return step


def _enter_scope(inner: Step) -> Step:
    """Enter the layer's name scope. Errors that leave it describe the layer."""

    def step(call: Call) -> Any:
        outer, names, layer = context.layer, scopes.names, call.layer
        context.layer, scopes.names = layer, (*names, layer.name)
        try:
            return inner(call)
        except ToolkitError as error:
            explain(error, call)
            raise
        finally:
            context.layer, scopes.names = outer, names

    return step


def _set_training(inner: Step) -> Step:
    """Set the training mode: of the caller, the calling layer, or the default."""

    def step(call: Call) -> Any:
        info, outer, training = call.layer._info, context.training, call.training
        if training is None:
            training = info.training_default if outer is None else outer
            if context.defaulted is not None and outer is None:
                if info.takes_training:
                    context.defaulted.append((call.layer, training))
        if training is not None and info.takes_training:
            call.kwargs = {**call.kwargs, "training": training}
        if training is outer:
            return inner(call)
        context.training = training
        try:
            return inner(call)
        finally:
            context.training = outer

    return step


def _cast_reads(inner: Step) -> Step:
    """Let reads of Variables cast to the compute dtype of a mixed policy."""

    def step(call: Call) -> Any:
        layer, outer = call.layer, state.autocast
        dtype = layer._autocast_dtype if layer.autocast or outer is None else None
        if dtype == outer:
            return inner(call)
        state.autocast = dtype
        try:
            return inner(call)
        finally:
            state.autocast = outer

    return step


def _regularize_activity(inner: Step) -> Step:
    """Add the activity regularizer of the outputs to the losses."""

    def step(call: Call) -> Any:
        outputs = inner(call)
        call.layer._regularize_activity(outputs)
        return outputs

    return step


def _set_path(inner: Step) -> Step:
    """Set the path of a layer that was built before its first call."""

    def step(call: Call) -> Any:
        layer = call.layer
        if not layer.built or layer._path is not None:
            return inner(call)
        layer._set_path()
        outputs = inner(call)
        layer.__dict__["_output_shapes"] = shapes_text(outputs)  # for `summary`
        return outputs

    return step


def _build(inner: Step) -> Step:
    """Build the layer for the arguments of its first call."""

    def step(call: Call) -> Any:
        layer = call.layer
        if not layer.built:
            layer._build_for(call.arguments)
        outputs = inner(call)
        if not layer.built:
            layer._finish_build()
        layer.__dict__["_output_shapes"] = shapes_text(outputs)  # for `summary`
        return outputs

    return step


def _rematerialize(inner: Step) -> Step:
    """Recompute the layer in the backward pass, as its RematScope requires."""

    def step(call: Call) -> Any:
        if state.tapes:
            call.function = call.layer.rematerialized_call(
                call.function, *call.args, **call.kwargs
            )
        return inner(call)

    return step


# --- composition ----------------------------------------------------------------------


class Concern(NamedTuple):
    """A wrapper of a path, and the attribute that decides which layers need it."""

    wrap: Callable[[Step], Step]
    attribute: str | None = None  # None: each layer needs it
    is_needed: Callable[[Any], bool] = bool  # decides for a value of the attribute


def _is_set(value: object) -> bool:
    return value is not None


def _is_missing(value: object) -> bool:
    return value is None


def _has_masks(info: CallInfo) -> bool:
    return any(name == "mask" or name.endswith("_mask") for name in info.names)


ARGUMENT_CONCERNS = (
    Concern(_inherit_arguments, "_context_names"),
    Concern(_enter_dialect),
    Concern(_record_symbols),
    Concern(_convert_inputs, "_convert_input_args"),
    Concern(_bind_arguments),
    Concern(_check_spec, "_input_spec", _is_set),
    Concern(_receive_masks, "_info", _has_masks),
    Concern(_attach_masks, "_keeps_masks", not_),
    Concern(_infer_symbols),
)
RUN_CONCERNS = (
    Concern(_clear_losses),
    Concern(_enter_scope),
    Concern(_set_training),
    Concern(_cast_reads),
    Concern(_regularize_activity, "activity_regularizer", _is_set),
    Concern(_set_path, "_path", _is_missing),
    Concern(_build, "built", not_),
    Concern(_rematerialize, "_remat_scope", _is_set),
)
# A layer with another value of one of these attributes can need another path.
ATTRIBUTES = frozenset(x.attribute for x in (*ARGUMENT_CONCERNS, *RUN_CONCERNS))


class CallPath:
    """The composed steps of a layer's calls, shared by layers with the same needs.

    Args:
        arguments: the needed ARGUMENT_CONCERNS.
        run: the needed RUN_CONCERNS.

    Attributes:
        general: takes any arguments.
        run: takes arguments that need no changes.
        is_plain: whether `run` also takes one tensor of the right dtype, without a
            mask.
    """

    __slots__ = ("general", "is_plain", "run")

    def __init__(
        self, arguments: tuple[Concern, ...], run: tuple[Concern, ...]
    ) -> None:
        self.run = _wrap(_compute, run)
        self.general = _wrap(self.run, arguments)
        wraps = {concern.wrap for concern in (*arguments, *run)}
        self.is_plain = wraps.isdisjoint({_inherit_arguments, _build})

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Drop the path in copies and pickles."""
        return type(None), ()


def _wrap(step: Step, concerns: tuple[Concern, ...]) -> Step:
    for concern in reversed(concerns):
        step = concern.wrap(step)
    return step


_shared_path = lru_cache(maxsize=None)(CallPath)


def compose(layer: Any) -> CallPath:
    """Return the path of the concerns that a layer needs."""
    return _shared_path(_needed(ARGUMENT_CONCERNS, layer), _needed(RUN_CONCERNS, layer))


def _needed(concerns: tuple[Concern, ...], layer: Any) -> tuple[Concern, ...]:
    return tuple(
        concern
        for concern in concerns
        if concern.attribute is None
        or concern.is_needed(getattr(layer, concern.attribute))
    )
