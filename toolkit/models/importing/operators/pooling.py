"""Pooling over windows, computed with channels last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ModelFileError, UnsupportedError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.operators.shapes import padded
from toolkit.models.importing.operators.windows import (
    Pairs,
    Windows,
    channels_at_end,
    from_channels_at_end,
    window_counts,
    windows_of,
)
from toolkit.models.importing.values import Value
from toolkit.ops.pool import max_pool_p, sum_pool_p
from toolkit.ops.shape import pad_p
from toolkit.type_aliases import Axis

_MOST_TERMS = 1_000  # of a window that is computed as slices


def _pooled(call: Call, x: Value) -> tuple[Windows, Pairs]:
    """Return the windows, extended for `ceil_mode` so that the last one fits."""
    windows = windows_of(call, x, call.integers("kernel_shape"))
    ceil, stated = call.integer("ceil_mode", 0), windows.pads
    if ceil:
        pairs = []
        for n, reach, stride, (low, high) in zip(
            x.shape[2:], windows.reach, windows.strides, windows.pads, strict=True
        ):
            count = -(-(n + low + high - reach) // stride) + 1
            if (count - 1) * stride >= n + low:  # it would start after the data
                count -= 1
            grown = (count - 1) * stride + reach - n - low
            pairs.append((low, max(high, grown)))
        windows = windows._replace(pads=tuple(pairs))
    shape = (*x.shape[:2], *window_counts(x.shape[2:], windows))
    call.allow(shape, x.dtype)
    call.work(*shape, *windows.size)
    return windows, stated


def _max_pool(call: Call, x: Value) -> Any:
    by_columns = call.integer("storage_order", 0)
    windows, _ = _pooled(call, x)
    y = _maxima(call, x, windows)
    return (
        (y, _indices(call, x, windows, bool(by_columns)))
        if call.is_output_used(1)
        else y
    )


def _maxima(call: Call, x: Value, windows: Windows) -> Value:
    if max(windows.dilation) > 1 or x.dtype not in ("float32", "float64"):
        return from_channels_at_end(
            _by_slices(call, x, windows, ops.maximum, _lowest(x.dtype))
        )
    attrs = {"strides": windows.strides, "padding": windows.pads}
    return from_channels_at_end(
        bind(max_pool_p, channels_at_end(x), window=windows.size, **attrs)[0]
    )


def _lowest(dtype: str) -> Any:
    kind = np.dtype(dtype if dtype != "bfloat16" else "float32")
    return -math.inf if kind.kind == "f" else int(np.iinfo(kind).min)


def average_pool(call: Call, x: Value) -> Value:
    """Return the means of windows, with the attributes of the node."""
    with_pads = call.integer("count_include_pad", 0)
    windows, stated = _pooled(call, x)
    if max(windows.dilation) > 1:
        total = _by_slices(call, x, windows, ops.add, 0)
    else:
        attrs = {"strides": windows.strides, "padding": windows.pads}
        total = bind(sum_pool_p, channels_at_end(x), window=windows.size, **attrs)
    for axis, counts_of_axis in enumerate(
        _count_elements(x.shape[2:], windows, stated, with_pads)
    ):
        if np.all(counts_of_axis == counts_of_axis[0]):
            total = total * (1 / float(counts_of_axis[0]))
        else:
            extents = [-1 if i == axis + 1 else 1 for i in range(x.ndim)]
            total = total / ops.cast(counts_of_axis.reshape(extents), x.dtype)
    return from_channels_at_end(total)


def _count_elements(
    spatial: Any, windows: Windows, stated: Pairs, with_pads: int
) -> Any:
    """Return, along each axis, the number of counted elements of each window."""
    for n, k, d, stride, (low, high), (first, last) in zip(
        *(spatial, windows.size, windows.dilation, windows.strides),
        *(windows.pads, stated),
        strict=True,
    ):
        reach = (k - 1) * d + 1
        starts = np.arange(-low, n + high - reach + 1, stride)
        bottom, top = (-first, n + last) if with_pads else (0, n)
        # Positions start + i d for i < k that are in [bottom, top).
        begin = np.clip(-((starts - bottom) // d), 0, k)
        end = np.clip(-((starts - top) // d), 0, k)
        yield np.maximum(end - begin, 1)


def _by_slices(
    call: Call, x: Value, windows: Windows, combine: Callable[..., Any], fill: Any
) -> Any:
    """Compute a pooling as sums, or maxima, of strided slices, axis by axis."""
    tensor = _padded(call, x, windows, fill)
    counts = window_counts(x.shape[2:], windows)
    for axis, (size, step) in enumerate(
        zip(windows.size, windows.dilation, strict=True), start=1
    ):
        _check_terms(size)
        cuts = [slice(None)] * tensor.ndim
        result = None
        for offset in range(size):
            cuts[axis] = _cut(
                offset * step, counts[axis - 1], windows.strides[axis - 1]
            )
            term = tensor[tuple(cuts)]
            result = term if result is None else combine(result, term)
        tensor = result
    return tensor


def _check_terms(count: int) -> None:
    if count > _MOST_TERMS:
        raise UnsupportedError(
            "windows with dilation, integers or indices can have at most "
            f"{_MOST_TERMS:,} elements; received {count:,}"
        )


def _cut(start: int, count: int, stride: int) -> slice:
    return slice(start, start + (count - 1) * stride + 1, stride)


def _padded(call: Call, x: Value, windows: Windows, fill: Any) -> Any:
    tensor = channels_at_end(x)
    if not any(map(any, windows.pads)):
        return tensor
    widths = ((0, 0), *windows.pads, (0, 0))
    padded = [n + sum(w) for n, w in zip(tensor.shape, widths, strict=True)]
    call.allow(padded, x.dtype)
    return bind(pad_p, tensor, widths=widths, value=fill)


def _slices(
    call: Call, x: Value, windows: Windows, fill: Any
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield each offset in a window, and the elements of all windows at it."""
    _check_terms(math.prod(windows.size))
    tensor = _padded(call, x, windows, fill)
    counts = window_counts(x.shape[2:], windows)
    for offset in itertools.product(*map(range, windows.size)):
        starts = [i * d for i, d in zip(offset, windows.dilation, strict=True)]
        pairs = zip(starts, counts, windows.strides, strict=True)
        yield offset, tensor[(slice(None), *(_cut(*pair) for pair in pairs))]


def _indices(call: Call, x: Value, windows: Windows, by_columns: bool) -> Value:
    """Return the indices of the maxima in the flattened values.

    Args:
        call: the node.
        x: the values.
        windows: the windows of the pooling.
        by_columns: whether the first spatial axis varies fastest.
    """
    counts, spatial = window_counts(x.shape[2:], windows), x.shape[2:]
    call.allow((x.shape[0], *counts, x.shape[1]), "int64")
    best: Any = None
    index: Any = None
    for offset, term in _slices(call, x, windows, _lowest(x.dtype)):
        position, is_inside = _positions(offset, counts, spatial, windows, by_columns)
        if best is None:
            best, index = term, ops.full(term.shape, -1, "int64")
        # The first of equal elements wins; padding never does.
        wins = ops.logical_or(term > best, index < 0)
        wins = ops.logical_and(wins, is_inside)
        best, index = ops.where(wins, term, best), ops.where(wins, position, index)
    images = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2])
    start = images[:, *(None,) * len(spatial), :] * math.prod(spatial)
    return from_channels_at_end(index + ops.convert_to_tensor(start))


def _positions(
    offset: Any, counts: Any, spatial: Any, windows: Windows, by_columns: bool
) -> tuple[Any, Any]:
    """Return the positions of one element of all windows, and a mask of valid ones."""
    total, is_inside, stride = 0, True, 1
    axes = range(len(counts))
    for axis in axes if by_columns else reversed(axes):
        start = offset[axis] * windows.dilation[axis] - windows.pads[axis][0]
        line = np.arange(counts[axis]) * windows.strides[axis] + start
        line = line.reshape(
            [-1 if i == axis + 1 else 1 for i in range(len(counts) + 2)]
        )
        is_inside = is_inside & (line >= 0) & (line < spatial[axis])
        total, stride = total + line * stride, stride * spatial[axis]
    return ops.convert_to_tensor(total), ops.convert_to_tensor(is_inside)


def _max_unpool(
    call: Call, x: Value, indices: Value, shape: Value | None = None
) -> Value:
    windows = windows_of(call, x, call.integers("kernel_shape"))
    if indices.shape != x.shape:
        raise ModelFileError(
            f"indices of shape {indices.shape} do not fit shape {x.shape}"
        )
    extents = (
        (n - 1) * stride + size - low - high
        for n, stride, size, (low, high) in zip(
            *(x.shape[2:], windows.strides, windows.size, windows.pads), strict=True
        )
    )
    pooled = (*x.shape[:2], *extents)
    call.allow(pooled, x.dtype)
    counts_of_axis = ops.reshape(indices.tensor, (-1, 1))
    blank = ops.zeros((math.prod(pooled),), x.dtype)
    flat = ops.scatter_update(blank, counts_of_axis, ops.reshape(x.tensor, (-1,)))
    y = Value(ops.reshape(flat, pooled))
    if shape is None:
        return y
    expected = call.static_integers(shape, "the shape")
    if len(expected) != x.ndim or any(
        n < m for n, m in zip(expected, pooled, strict=True)
    ):
        raise ModelFileError(
            f"expected an output shape of at least {pooled}; received {expected}"
        )
    return padded(
        call,
        y,
        [(0, n - m) for n, m in zip(expected, pooled, strict=True)],
        "constant",
        0,
    )


def _lp_pool(call: Call, x: Value) -> Value:
    p = call.integer("p", 2)
    windows, _ = _pooled(call, x)
    powers = from_channels_at_end(ops.power(ops.abs(channels_at_end(x)), float(p)))
    total = _by_slices(call, powers, windows, ops.add, 0)
    return from_channels_at_end(ops.power(total, 1 / p))


def _global(reduce: Callable[..., Any]) -> Callable[..., Value]:
    def run(call: Call, x: Value) -> Value:
        if x.ndim < 3:
            raise ModelFileError(f"expected spatial axes; received shape {x.shape}")
        order = x.orders[0]
        axes = tuple(i for i, axis in enumerate(order) if axis > 1)
        return Value(reduce(x.ordered(order), axis=axes, keepdims=True), order)

    return run


def _global_lp(call: Call, x: Value) -> Value:
    p = call.integer("p", 2)

    def norm(tensor: Any, axis: Axis, keepdims: bool) -> Tensor:
        powers = ops.power(ops.abs(tensor), float(p))
        return ops.power(ops.sum(powers, axis=axis, keepdims=keepdims), 1 / p)

    return _global(norm)(call, x)


OPERATORS = (
    Operator("MaxPool", _max_pool),
    Operator("MaxUnpool", _max_unpool, host=(2,)),
    Operator("AveragePool", average_pool),
    Operator("LpPool", _lp_pool),
    Operator("GlobalAveragePool", _global(ops.mean)),
    Operator("GlobalMaxPool", _global(ops.max)),
    Operator("GlobalLpPool", _global_lp),
)
