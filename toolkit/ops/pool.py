"""Pooling over windows: primitives, channels last, and the public functions.

`max_pool` also returns the index of the maximum in its window, which its gradient
reads. Each primitive that moves gradients is the transpose of another primitive, so
they have derivatives of any order.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ShapeError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ir.extents import has_extent
from toolkit.ops.creation import ones
from toolkit.ops.elementwise import isnan, where
from toolkit.ops.numeric import logical_or
from toolkit.ops.padding import pad
from toolkit.ops.ranges import index_range
from toolkit.ops.reduce import max, mean
from toolkit.ops.shape import concatenate, reshape, slice_axis
from toolkit.ops.spatial import (
    Extents,
    Pads,
    channels_last,
    in_format,
    padding_pairs,
    per_axis,
    spatial_ndim,
    window_counts,
    window_slices,
)
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike

# --- primitives -----------------------------------------------------------------------


def _pooled_shape(
    op: str, x: Spec, window: Extents, strides: Extents, padding: Pads
) -> Extents:
    ones = (1,) * len(window)
    out = window_counts(op, x.shape[1:-1], window, strides, padding, ones)
    return (x.shape[0], *out, x.shape[-1])


def _max_pool_spec(x: Spec, **attrs: Any) -> tuple[Spec, Spec]:
    shape = _pooled_shape("max_pool", x, **attrs)
    return Spec(shape, x.dtype), Spec(shape, "int32")


def _spread_spec(g: Spec, *index: Spec, spatial: Extents, **attrs: object) -> Spec:
    return g.with_shape((g.shape[0], *spatial, g.shape[-1]))


def _pool_axes(x: Spec, *operands: Spec, **attrs: object) -> str:
    text = f"b{'_' * (x.ndim - 2)}c"
    return f"{text}->{text}"


max_pool_p: Primitive = primitive(
    "max_pool",
    Kind.POOL,
    _max_pool_spec,
    vjp=lambda g, y, x, **attrs: bind(
        max_pool_scatter_p, g[0], y[1], spatial=x.shape[1:-1], **attrs
    ),
    axes=_pool_axes,
)
max_pool_scatter_p: Primitive = primitive(
    "max_pool_scatter",
    Kind.POOL,
    _spread_spec,
    vjp=(
        lambda h, y, g, index, spatial, **attrs: bind(
            max_pool_gather_p, h, index, **attrs
        ),
        None,
    ),
    axes=_pool_axes,
)
max_pool_gather_p: Primitive = primitive(
    "max_pool_gather",
    Kind.POOL,
    lambda x, index, **attrs: x.with_shape(index.shape),
    vjp=(
        lambda h, y, x, index, **attrs: bind(
            max_pool_scatter_p, h, index, spatial=x.shape[1:-1], **attrs
        ),
        None,
    ),
    axes=_pool_axes,
)
sum_pool_p: Primitive = primitive(
    "sum_pool",
    Kind.POOL,
    lambda x, **attrs: x.with_shape(_pooled_shape("average_pool", x, **attrs)),
    vjp=lambda h, y, x, **attrs: bind(
        sum_pool_grad_p, h, spatial=x.shape[1:-1], **attrs
    ),
    axes=_pool_axes,
)
sum_pool_grad_p: Primitive = primitive(
    "sum_pool_grad",
    Kind.POOL,
    _spread_spec,
    vjp=lambda h, y, g, spatial, **attrs: bind(sum_pool_p, h, **attrs),
    axes=_pool_axes,
)


# --- public functions -----------------------------------------------------------------


def _windows(
    op: str, x: Tensor, pool_size: Any, strides: Any, padding: str
) -> dict[str, Any]:
    """Return the attributes of a pooling primitive; x is channels last."""
    ndim = x.ndim - 2
    window = per_axis(op, "pool_size", pool_size, ndim)
    strides = window if strides is None else per_axis(op, "strides", strides, ndim)
    dilation = (1,) * ndim
    pads = padding_pairs(op, padding, x.shape[1:-1], window, strides, dilation)
    return {"window": window, "strides": strides, "padding": pads}


@operation
def max_pool(
    inputs: Any,
    pool_size: Any,
    strides: Any = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Tensor:
    """Return the largest element of each window, for each channel.

    Args:
        inputs: (batch, *spatial, channels), or (batch, channels, *spatial) with
            `data_format` "channels_first"; 1 to 3 spatial axes.
        pool_size: the extents of a window: one integer, or one for each spatial axis.
        strides: the distance between windows, in elements. None means `pool_size`.
        padding: "valid" (no padding) or "same", which gives ceil(extent / stride)
            windows. Padding is never the maximum.
        data_format: "channels_last", "channels_first", or None for the global default.

    Returns:
        A tensor of shape (batch, *windows, channels), in the data format and dtype of
        `inputs`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape(ops.arange(4.0), (1, 4, 1))
        >>> ops.max_pool(x, 2)[0, :, 0].tolist()
        [1.0, 3.0]
    """
    x = convert(inputs)
    spatial_ndim("max_pool", x)
    x = channels_last(x, data_format)
    attrs = _windows("max_pool", x, pool_size, strides, padding)
    if x.ndim == 3 and has_extent(x.shape[1]):
        return in_format(_max_of_lines(x, **attrs), data_format)
    return in_format(bind(max_pool_p, x, **attrs)[0], data_format)


def _max_of_lines(
    x: Tensor,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
) -> Tensor:
    """Return the largest elements in the windows of lines of a free length."""
    widths = ((0, 0), padding[0], (0, 0))
    x = pad(x, widths, constant_values=dtypes.lowest(x.dtype))
    result, *following = window_slices(x, window[0], strides[0], 1)
    for y in following:  # the first one of equal elements gets the gradient
        result = where(logical_or(y > result, isnan(y)), y, result)
    return result


def _mean_of_lines(
    x: Tensor,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
) -> Tensor:
    """Return the means of the windows of lines of a free length."""

    def total(x: Tensor) -> Tensor:
        x = pad(x, ((0, 0), padding[0], (0, 0)))
        return reduce(operator.add, window_slices(x, window[0], strides[0], 1))

    return total(x) / total(ones((1, x.shape[1], 1), x.dtype))


@operation
def average_pool(
    inputs: Any,
    pool_size: Any,
    strides: Any = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Tensor:
    """Return the mean of each window, for each channel; padding does not count.

    Args:
        inputs: (batch, *spatial, channels), or (batch, channels, *spatial) with
            `data_format` "channels_first"; 1 to 3 spatial axes.
        pool_size: the extents of a window: one integer, or one for each spatial axis.
        strides: the distance between windows, in elements. None means `pool_size`.
        padding: "valid" (no padding) or "same", which gives ceil(extent / stride)
            windows.
        data_format: "channels_last", "channels_first", or None for the global default.

    Returns:
        A floating tensor of shape (batch, *windows, channels), in the data format of
        `inputs`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape(ops.arange(4.0), (1, 4, 1))
        >>> ops.average_pool(x, 2)[0, :, 0].tolist()
        [0.5, 2.5]
    """
    (x,) = floating(inputs)
    spatial_ndim("average_pool", x)
    x = channels_last(x, data_format)
    attrs = _windows("average_pool", x, pool_size, strides, padding)
    if x.ndim == 3 and has_extent(x.shape[1]):
        return in_format(_mean_of_lines(x, **attrs), data_format)
    total = bind(sum_pool_p, x, **attrs)
    is_same = str(padding).lower() == "same"
    counts = _counts(x.shape[1:-1], x.dtype, is_same, **attrs)
    return in_format(total / counts, data_format)


def _counts(
    spatial: Extents,
    dtype: str,
    is_same: bool,
    window: Extents,
    strides: Extents,
    padding: Pads,
) -> Tensor:
    """Return the number of elements of each window that are not padding.

    For padding "same" this is a tensor even if all counts are equal, so that graphs
    that differ only in extents have the same nodes.
    """
    per_axis = []
    for axis, (n, k, stride, (low, high)) in enumerate(
        zip(spatial, window, strides, padding, strict=True)
    ):
        first = index_range(-low, n + high - k + 1, stride, rows=2)
        valid = np.minimum(first + k, n) - np.maximum(first, 0)
        full = np.all(valid == k)
        if full and is_same:
            valid = np.full(1, k)
        valid = valid.reshape([-1 if i == axis else 1 for i in range(len(spatial) + 1)])
        per_axis.append(convert(k if full and not is_same else valid, dtype))
    # A product of tensors, so that shape inference creates no large array.
    return reduce(operator.mul, per_axis)


@operation
def adaptive_average_pool(
    inputs: TensorLike, output_size: Any, data_format: str | None = None
) -> Tensor:
    """Return the means of a fixed number of windows that cover each spatial axis.

    Args:
        inputs: (batch, *spatial, channels), or (batch, channels, *spatial) with
            `data_format` "channels_first"; 1 to 3 spatial axes.
        output_size: the number of windows: one integer, or one for each spatial axis.
            Window i of n covers the elements floor(i * extent / n) to ceil((i + 1) *
            extent / n).
        data_format: "channels_last", "channels_first", or None for the global default.

    Returns:
        A floating tensor of shape (batch, *output_size, channels), in the data format
        of `inputs`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape(ops.arange(6.0), (1, 6, 1))
        >>> ops.adaptive_average_pool(x, 2)[0, :, 0].tolist()
        [1.0, 4.0]
    """
    (x,) = floating(inputs)
    return _adaptive("adaptive_average_pool", mean, x, output_size, data_format)


@operation
def adaptive_max_pool(
    inputs: TensorLike, output_size: Any, data_format: str | None = None
) -> Tensor:
    """Return the maxima of a fixed number of windows that cover each spatial axis.

    Args:
        inputs: (batch, *spatial, channels), or (batch, channels, *spatial) with
            `data_format` "channels_first"; 1 to 3 spatial axes.
        output_size: the number of windows: one integer, or one for each spatial axis.
            Window i of n covers the elements floor(i * extent / n) to ceil((i + 1) *
            extent / n).
        data_format: "channels_last", "channels_first", or None for the global default.

    Returns:
        A tensor of shape (batch, *output_size, channels), in the data format and dtype
        of `inputs`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape(ops.arange(6.0), (1, 6, 1))
        >>> ops.adaptive_max_pool(x, 2)[0, :, 0].tolist()
        [2.0, 5.0]
    """
    x = convert(inputs)
    return _adaptive("adaptive_max_pool", max, x, output_size, data_format)


def _adaptive(
    op: str, pool: Any, x: Tensor, output_size: Any, data_format: str | None
) -> Tensor:
    """Pool the axes in sequence; window i of m is [i n / m, (i + 1) n / m)."""
    ndim = spatial_ndim(op, x)
    sizes = per_axis(op, "output_size", output_size, ndim)
    x = channels_last(x, data_format)
    for axis, (n, m) in enumerate(zip(x.shape[1:-1], sizes, strict=True), start=1):
        if n == 0:
            raise ShapeError(f"{op}: received no elements along axis {axis}: {x.shape}")
        # This code holds for some values of a free extent only.
        if type(n) is int and n % m == 0:
            blocks = reshape(x, (*x.shape[:axis], m, n // m, *x.shape[axis + 1 :]))
            x = pool(blocks, axis=axis + 1)
            continue
        bounds = [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]
        windows = [
            pool(slice_axis(x, axis, low, high), axis=axis, keepdims=True)
            for low, high in bounds
        ]
        x = concatenate(windows, axis)
    return in_format(x, data_format)
