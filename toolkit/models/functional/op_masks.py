"""Propagation of masks through operations between layers.

A mask has the first axes of its tensor. It is kept if an operation keeps these axes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache, reduce
from typing import Any

from toolkit import ops, tree
from toolkit.console.frames import warn_once
from toolkit.core.masks import mask_of, set_mask
from toolkit.core.tensor import Tensor
from toolkit.ops.symbolic import FunctionOperation

_ELEMENTWISE = frozenset(
    "abs absolute add angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh array "
    "bitwise_and bitwise_invert bitwise_left_shift bitwise_not bitwise_or "
    "bitwise_right_shift bitwise_xor cast cbrt ceil celu clip conj conjugate "
    "convert_to_tensor copy cos cosh deg2rad divide divide_no_nan elu equal erf erfc "
    "erfinv exp exp2 expm1 fabs floor floor_divide fmax fmin fmod full_like gcd gelu "
    "greater greater_equal hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh "
    "heaviside hypot i0 imag isclose isfinite isin isinf isnan isneginf isposinf "
    "isreal lcm ldexp leaky_relu left_shift less less_equal log log10 log1p log2 "
    "log_sigmoid logaddexp logaddexp2 logical_and logical_not logical_or logical_xor "
    "maximum minimum mod multiply nan_to_num negative nextafter not_equal ones_like "
    "power rad2deg real reciprocal relu relu6 remainder right_shift round rsqrt selu "
    "sigmoid sign signbit silu sin sinc sinh soft_shrink softplus softsign "
    "sparse_plus sparse_sigmoid sqrt square squareplus stop_gradient subtract swish "
    "tan tanh tanh_shrink threshold true_divide trunc where zeros_like".split()
)
# The result at a position depends only on elements along `axis`.
_ALONG_AXIS = frozenset(
    "all amax amin any argmax argmin argpartition argsort average count_nonzero "
    "cumprod cumsum diff flip glu log_softmax logsumexp max mean median min nanmax "
    "nanmean nanmin nansum norm normalize prod ptp repeat roll softmax sort "
    "sparsemax split std sum take take_along_axis unstack var".split()
)


class _End(Exception):
    """The mask cannot be kept; the text is the reason."""


def call_with_masks(operation: FunctionOperation, *args: Any, **kwargs: Any) -> Any:
    """Return a function that calls an operation and propagates the mask.

    Args:
        operation: the operation of a recorded call.
        *args, **kwargs: its arguments; tensors have their masks.
    """
    outputs = operation(*args, **kwargs)
    leaves = tree.flatten((args, kwargs))
    if all(mask_of(x) is None for x in leaves):
        return outputs
    results = [x for x in tree.flatten(outputs) if isinstance(x, Tensor)]
    if any(x is result for x in leaves for result in results):
        return outputs  # the tensor is unchanged, with its mask
    try:
        for result in results:
            mask = _mask(operation.function, args, kwargs, leaves, result)
            if mask is not None:
                set_mask(result, mask)
    except _End as end:
        _warn(operation, str(end))
    return outputs


def _warn(operation: Any, reason: str) -> None:
    warn_once(
        operation,
        f"operation {operation.name!r} ({operation.function.__name__}): the next "
        f"layers do not receive the mask of its inputs: {reason}",
        topic="mask",
    )


def _mask(
    function: Callable[..., Any], args: Any, kwargs: Any, leaves: Any, result: Tensor
) -> Any:
    name = function.__name__
    is_known = getattr(ops, name, None) is function
    if is_known and name in _ELEMENTWISE:
        return _of_elementwise(leaves, result)
    rule = _of_axis if name in _ALONG_AXIS else _RULES.get(name)
    if rule is None or not is_known:
        raise _End(
            "it can move or mix the time steps; put it into a layer that sets a mask"
        )
    bound = _signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return rule(bound.arguments, result)


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _of_elementwise(leaves: Iterable[Any], result: Tensor) -> Any:
    """Return the mask like the layer `Add`: True where any operand is unmasked."""
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    masks = [mask_of(x) for x in tensors if mask_of(x) is not None]
    ndim = max(mask.ndim for mask in masks)
    shape = result.shape[:ndim]
    for x in tensors:
        if mask_of(x) is not None:
            if x.ndim != result.ndim or mask_of(x).ndim != ndim:
                raise _End("its operands have different numbers of axes")
        elif x.ndim == result.ndim and x.shape[:ndim] == shape:
            raise _End("another operand has no mask")
    return ops.broadcast_to(reduce(ops.logical_or, masks), shape)


def _first(arguments: dict[str, Any]) -> Any:
    """Return the first argument and its mask."""
    x = next(iter(arguments.values()))
    if mask_of(x) is None:
        raise _End("only its first argument can have a mask")
    return x, mask_of(x)


def _axes(axis: Any, ndim: int) -> list[int]:
    axes = axis if isinstance(axis, (tuple, list)) else [axis]
    return [int(n) % ndim for n in axes]


def _of_axis(arguments: dict[str, Any], result: Tensor) -> Any:
    x, mask = _first(arguments)
    axis = arguments.get("axis")
    if axis is None or any(n < mask.ndim for n in _axes(axis, x.ndim)):
        raise _End("it operates along the time axis")
    return mask


def _of_same_start(arguments: dict[str, Any], result: Tensor) -> Any:
    """Return the mask if the result starts with its axes, in the same order."""
    x, mask = _first(arguments)
    if result.shape[: mask.ndim] != mask.shape or mask.ndim > x.ndim:
        raise _End("it changes the time axis")
    return mask


def _of_product(arguments: dict[str, Any], result: Tensor) -> Any:
    x, mask = _first(arguments)
    if mask.ndim >= x.ndim or ops.ndim(arguments["x2"]) > x.ndim:
        raise _End("it sums along the time axis")
    return _of_same_start(arguments, result)


def _of_new_axes(arguments: dict[str, Any], result: Tensor) -> Any:
    _, mask = _first(arguments)
    if any(n < mask.ndim for n in _axes(arguments["axis"], result.ndim)):
        raise _End("it changes the time axis")
    return mask


def _of_moved_axes(*names: str) -> Callable[..., Any]:
    """Return the rule for operations that move named axes."""

    def rule(arguments: dict[str, Any], result: Tensor) -> Any:
        x, mask = _first(arguments)
        for name in names:
            if any(n < mask.ndim for n in _axes(arguments[name], x.ndim)):
                raise _End("it moves the time axis")
        return mask

    return rule


def _of_transpose(arguments: dict[str, Any], result: Tensor) -> Any:
    x, mask = _first(arguments)
    axes = arguments["axes"]
    order = range(x.ndim)[::-1] if axes is None else _axes(axes, x.ndim)
    if list(order[: mask.ndim]) != list(range(mask.ndim)):
        raise _End("it moves the time axis")
    return mask


def _of_joined(arguments: dict[str, Any], result: Tensor) -> Any:
    operands = next(iter(arguments.values()))
    (axis,) = _axes(arguments["axis"], result.ndim)
    masks = [mask_of(x) for x in operands]
    ndim = max(mask.ndim for mask in masks if mask is not None)
    if axis >= ndim:
        if any(mask is None for mask in masks):
            raise _End("another operand has no mask")
        return reduce(ops.logical_or, masks)
    if result.ndim != operands[0].ndim:
        raise _End("it adds an axis before the time axis")
    pairs = zip(operands, masks, strict=True)
    filled = [ops.ones(x.shape[:ndim], "bool") if m is None else m for x, m in pairs]
    return ops.concatenate(filled, axis=axis)


def _of_item(arguments: dict[str, Any], result: Tensor) -> Any:
    """Index the mask like the tensor; a single step has no mask."""
    x, mask = arguments["x"], mask_of(arguments["x"])
    key = arguments["key"]
    items = list(key) if isinstance(key, tuple) else [key]
    if not all(n is None or isinstance(n, (int, slice, type(...))) for n in items):
        raise _End("it gathers elements")
    if any(n is ... for n in items):
        index = items.index(...)
        used = sum(n is not None and n is not ... for n in items)
        items[index : index + 1] = [slice(None)] * (x.ndim - used)
    remaining_axes: list[Any] = []
    while items and sum(n is not None for n in remaining_axes) < mask.ndim:
        remaining_axes.append(items.pop(0))
    axes = [n for n in remaining_axes if n is not None]
    if len(axes) == mask.ndim and isinstance(axes[-1], int):
        return None
    return mask[tuple(remaining_axes)]


_RULES: dict[str, Callable[[dict[str, Any], Tensor], Any]] = {
    "concatenate": _of_joined,
    "dot": _of_product,
    "expand_dims": _of_new_axes,
    "get_item": _of_item,
    "matmul": _of_product,
    "moveaxis": _of_moved_axes("source", "destination"),
    "one_hot": _of_new_axes,
    "reshape": _of_same_start,
    "squeeze": _of_same_start,
    "stack": _of_joined,
    "swapaxes": _of_moved_axes("axis1", "axis2"),
    "transpose": _of_transpose,
}
