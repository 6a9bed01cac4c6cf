"""Reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.core.tensor import Tensor
from toolkit.models.importing.call import Call, Operator, axes_of, axis_of
from toolkit.models.importing.operators.normalization import along
from toolkit.models.importing.values import Value, without_axes
from toolkit.type_aliases import Axis

# Results of reductions of no elements, except the smallest integer.
_OF_NOTHING = {"ReduceMax": -math.inf, "ReduceMin": math.inf}
_OF_NOTHING["ReduceLogSumExp"] = -math.inf


def _of_nothing(name: str, dtype: str) -> Any:
    number = _OF_NOTHING[name]
    if dtypes.is_float(dtype):
        return number
    if dtype == "bool":
        return number > 0
    limits = np.iinfo(dtype)
    return limits.min if number < 0 else limits.max


def _reduction(name: str, function: Callable[..., Any]) -> Operator:
    def run(call: Call, x: Value, axes: Value | None = None) -> Value:
        result = call.integers("axes", None)
        if axes is not None:
            result = call.static_integers(axes, "axes")
        keepdims = bool(call.integer("keepdims", 1))
        is_noop = call.integer("noop_with_empty_axes", 0)
        which = axes_of(result, x.ndim) if result else ()
        if not which and not is_noop:
            which = tuple(range(x.ndim))
        order = x.orders[0]
        tensor = x.ordered(order)
        positions = tuple(order.index(axis) for axis in which)
        if not positions:  # no axes: only the elementwise part
            positions, tensor = (tensor.ndim,), ops.expand_dims(tensor, -1)
            return Value(function(tensor, axis=positions, keepdims=False), order)
        if name in _OF_NOTHING and any(x.shape[axis] == 0 for axis in which):
            reduced = ops.sum(
                tensor, axis=positions, keepdims=keepdims
            )  # for its shape
            y = ops.full(reduced.shape, _of_nothing(name, x.dtype), x.dtype)
        else:
            y = ops.cast(function(tensor, axis=positions, keepdims=keepdims), x.dtype)
        return Value(y, order if keepdims else without_axes(order, set(which)))

    return Operator(name, run, host=(1,))


def mean_over(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """Return the means over axes."""
    order = x.orders[0]
    positions = tuple(order.index(axis) for axis in axes)
    y = ops.mean(x.ordered(order), axis=positions, keepdims=keepdims)
    return Value(y, order if keepdims else without_axes(order, set(axes)))


def _sum_of(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x, **options: ops.sum(function(x), **options)


def _log_sum_exp(x: Any, axis: Axis, keepdims: bool) -> Tensor:
    return ops.logsumexp(x, axis=axis, keepdims=keepdims)


def _arg(name: str, function: Callable[..., Any]) -> Operator:
    def run(call: Call, x: Value) -> Value:
        axis = axis_of(call.integer("axis", 0), x.ndim)
        keepdims = call.integer("keepdims", 1)
        last = call.integer("select_last_index", 0)
        tensor, order, position = along(x, axis)
        if last:
            tensor = ops.flip(tensor, axis=position)
        result = ops.cast(function(tensor, axis=position), "int64")
        if last:
            result = x.shape[axis] - 1 - result
        if keepdims:
            return Value(ops.expand_dims(result, position), order)
        return Value(result, without_axes(order, {axis}))

    return Operator(name, run)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Sum": ops.sum,
    "Mean": ops.mean,
    "Max": ops.max,
    "Min": ops.min,
    "Prod": ops.prod,
    "L1": _sum_of(ops.abs),
    "L2": lambda x, **options: ops.sqrt(ops.sum(x * x, **options)),
    "SumSquare": _sum_of(ops.square),
    "LogSum": lambda x, **options: ops.log(ops.sum(x, **options)),
    "LogSumExp": _log_sum_exp,
}

OPERATORS = (
    *(_reduction(f"Reduce{name}", function) for name, function in _FUNCTIONS.items()),
    _arg("ArgMax", ops.argmax),
    _arg("ArgMin", ops.argmin),
)
