"""Images split into blocks, and images assembled from blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toolkit.arguments import is_int
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ops.index import gather_p
from toolkit.ops.ranges import index_range
from toolkit.ops.shape import (
    expand_dims,
    pad_p,
    reshape,
    slice_axis,
    slice_p,
    squeeze,
    stack,
    transpose,
)
from toolkit.ops.spatial import per_axis, window_counts
from toolkit.ops.symbolic import operation
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import IntOrInts, TensorLike


def window_indices(count: int, size: int, stride: int, dilation: int) -> Tensor:
    """Return the index of each element of each window along an axis:

    (count, size), int32.
    """
    starts = index_range(count, dtype="int32", rows=size)[:, None] * stride
    return convert(starts + np.arange(size, dtype="int32") * dilation)


class _Blocks:
    """Checked geometry of `unfold` and `fold`."""

    def __init__(
        self,
        op: str,
        spatial: tuple[int, ...],
        kernel_size: IntOrInts,
        dilation: Any,
        padding: Any,
        stride: Any,
    ) -> None:
        self.size = per_axis(op, "kernel_size", kernel_size, 2)
        self.dilation = dilation = per_axis(op, "dilation", dilation, 2)
        self.stride = stride = per_axis(op, "stride", stride, 2)
        pads = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 2
        if len(pads) != 2 or any(not is_int(n) or n < 0 for n in pads):
            raise ArgumentError(
                f"{op}: padding must be an integer >= 0 or 2 of them; "
                f"received {padding!r}"
            )
        self.pads = tuple(map(int, pads))
        pairs = tuple((n, n) for n in pads)
        self.counts = window_counts(op, spatial, self.size, stride, pairs, dilation)
        self.padded = tuple(n + 2 * p for n, p in zip(spatial, pads, strict=True))

    @property
    def indices(self) -> list[Tensor]:
        """The index of each element of each window along each axis."""
        sizes = zip(self.counts, self.size, self.stride, self.dilation, strict=True)
        return [window_indices(*row) for row in sizes]


@operation
def unfold(
    x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Extract windows of images as columns, for convolutions as matrix products.

    Args:
        x: (batch, channels, height, width). The global data format has no effect.
        kernel_size: the extents of a window: an integer or a pair.
        dilation: the distance between the elements of a window: an integer or a pair.
        padding: the number of zeros at each end of the spatial axes: an integer or a
            pair.
        stride: the distance between windows: an integer or a pair.

    Returns:
        A tensor of shape (batch, channels * elements of a window, windows) with the
        dtype of `x`.

    Raises:
        ShapeError: `x` does not have 4 axes.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape(ops.arange(6), (1, 1, 2, 3))
        >>> print(ops.unfold(x, 2))
        [[[0 1]
          [1 2]
          [3 4]
          [4 5]]]
    """
    x = convert(x)
    if x.ndim != 4:
        raise ShapeError(f"unfold: Input must be a 4D tensor. Received: {x.shape}")
    batch, channels, *spatial = x.shape
    blocks = _Blocks("unfold", tuple(spatial), kernel_size, dilation, padding, stride)
    widths = ((0, 0), (0, 0), *((n, n) for n in blocks.pads))
    x = bind(pad_p, x, widths=widths, value=0)
    for axis, indices in zip((2, 4), blocks.indices, strict=True):
        x = bind(gather_p, x, indices, axis=axis)
    x = transpose(x, (0, 1, 3, 5, 2, 4))
    elements = channels * math.prod(blocks.size)
    return reshape(x, (batch, elements, math.prod(blocks.counts)))


def _padded(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Return x with zeros along an axis."""
    if not before and not after:
        return x
    widths = [(0, 0)] * x.ndim
    widths[axis] = before, after
    return bind(pad_p, x, widths=tuple(widths), value=0)


def _add_windows(
    x: Tensor, axes: tuple[int, int], stride: int, dilation: int, extent: int
) -> Tensor:
    """Add overlapping windows along the second axis; the first one has their elements.

    The elements of windows in steps of the stride are blocks without overlap. The
    result is the sum of the blocks, one shifted by each number of strides.
    """
    inner, outer = axes
    if dilation > 1:
        x = _padded(expand_dims(x, inner + 1), inner + 1, 0, dilation - 1)
        shape = (*x.shape[:inner], x.shape[inner] * dilation, *x.shape[inner + 2 :])
        x = reshape(x, shape)
    count, size = x.shape[outer], x.shape[inner]
    shifts = -(-size // stride)
    x = _padded(x, inner, 0, shifts * stride - size)
    rows = max(count + shifts - 1, -(-extent // stride))
    total: Any = 0
    for shift in range(shifts):
        block = slice_axis(x, inner, shift * stride, (shift + 1) * stride)
        total = total + _padded(block, outer, shift, rows - count - shift)
    # Interleave the planes of a block.
    planes = [slice_axis(total, inner, k, k + 1) for k in range(stride)]
    y = stack([squeeze(plane, inner) for plane in planes], outer)
    y = reshape(y, (*y.shape[: outer - 1], rows * stride, *y.shape[outer + 1 :]))
    return slice_axis(y, outer - 1, 0, extent)


@operation
def fold(
    x: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Add the columns of `unfold` to images; overlapping windows are added.

    Args:
        x: (batch, channels * elements of a window, windows).
        output_size: the height and the width of the images: an integer or a pair.
        kernel_size: the extents of a window: an integer or a pair.
        dilation: the distance between the elements of a window: an integer or a pair.
        padding: the number of zeros at each end of the spatial axes: an integer or a
            pair.
        stride: the distance between windows: an integer or a pair.

    Returns:
        A tensor of shape (batch, channels, height, width) with the dtype of `x`.

    Raises:
        ShapeError: the shape of `x` contradicts the windows.

    Example:
        >>> from toolkit import ops
        >>> columns = ops.ones((1, 4, 2))
        >>> print(ops.fold(columns, (2, 3), 2))
        [[[[1. 2. 1.]
           [1. 2. 1.]]]]
    """
    x = convert(x)
    if x.ndim != 3:
        raise ShapeError(f"fold: Input must be a 3D tensor. Received: {x.shape}")
    spatial = per_axis("fold", "output_size", output_size, 2)
    blocks = _Blocks("fold", spatial, kernel_size, dilation, padding, stride)
    (batch, elements, windows), size = x.shape, math.prod(blocks.size)
    if elements % size or windows != math.prod(blocks.counts):
        raise ShapeError(
            f"fold: expected (batch, channels * {size}, {math.prod(blocks.counts)}); "
            f"received {x.shape}"
        )
    lead = batch, elements // size
    x = reshape(x, (*lead, *blocks.size, *blocks.counts))
    for i, axes in ((1, (3, 5)), (0, (2, 3))):
        numbers = blocks.stride[i], blocks.dilation[i], blocks.padded[i]
        x = _add_windows(x, axes, *numbers)
    stop = tuple(p + n for p, n in zip(blocks.pads, spatial, strict=True))
    bounds = {"start": (0, 0, *blocks.pads), "stop": (*lead, *stop), "step": (1,) * 4}
    return bind(slice_p, x, **bounds)


def _check_blocks(op: str, x: TensorLike, block_size: int) -> Tensor:
    x = convert(x)
    if x.ndim != 4:
        raise ShapeError(f"{op}: expected a tensor of 4 axes; received {x.shape}")
    if not is_int(block_size) or block_size < 2:
        raise ArgumentError(
            f"{op}: `block_size` must be at least 2. Received: block_size={block_size}"
        )
    return x


@operation
def depth_to_space(
    x: TensorLike, block_size: int, data_format: str | None = "channels_last"
) -> Tensor:
    """Rearrange channels as blocks of pixels, also called pixel shuffle.

    Args:
        x: (batch, height, width, channels), or (batch, channels, height, width).
        block_size: the extent r >= 2 of a block; r ** 2 divides the number of channels.
        data_format: "channels_last", "channels_first", or None for the global default.

    Returns:
        A tensor of shape (batch, r * height, r * width, channels / r ** 2), in the data
        format and dtype of `x`.

    Raises:
        ShapeError: r ** 2 does not divide the number of channels.

    Reference:
        Shi et al., Real-Time Single Image and Video Super-Resolution (2016),
            https://arxiv.org/abs/1609.05158

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape(ops.arange(4), (1, 1, 1, 4))
        >>> ops.depth_to_space(x, 2)[0, :, :, 0].tolist()
        [[0, 1], [2, 3]]
    """
    x, r = _check_blocks("depth_to_space", x, block_size), block_size
    first = standardize_data_format(data_format) == "channels_first"
    batch, height, width, channels = (x.shape[i] for i in _axes(first))
    if channels % r**2:
        raise ShapeError(
            f"depth_to_space: expected channels that are a multiple of {r**2}; "
            f"received {channels}"
        )
    depth = channels // r**2
    if first:
        x = transpose(
            reshape(x, (batch, depth, r, r, height, width)), (0, 1, 4, 2, 5, 3)
        )
        return reshape(x, (batch, depth, height * r, width * r))
    x = transpose(reshape(x, (batch, height, width, r, r, depth)), (0, 1, 3, 2, 4, 5))
    return reshape(x, (batch, height * r, width * r, depth))


@operation
def space_to_depth(
    x: TensorLike, block_size: int, data_format: str | None = "channels_last"
) -> Tensor:
    """Rearrange blocks of pixels as channels: the inverse of `depth_to_space`.

    Args:
        x: (batch, height, width, channels), or (batch, channels, height, width).
        block_size: the extent r >= 2 of a block; r divides the height and the width.
        data_format: "channels_last", "channels_first", or None for the global default.

    Returns:
        A tensor of shape (batch, height / r, width / r, channels * r ** 2), in the data
        format and dtype of `x`.

    Raises:
        ShapeError: r does not divide the height or the width.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape(ops.arange(4), (1, 2, 2, 1))
        >>> ops.space_to_depth(x, 2).tolist()
        [[[[0, 1, 2, 3]]]]
    """
    x, r = _check_blocks("space_to_depth", x, block_size), block_size
    first = standardize_data_format(data_format) == "channels_first"
    batch, height, width, channels = (x.shape[i] for i in _axes(first))
    if height % r or width % r:
        raise ShapeError(
            f"space_to_depth: expected a height and a width that are multiples of {r}; "
            f"received {height} and {width}"
        )
    h, w = height // r, width // r
    if first:
        x = transpose(reshape(x, (batch, channels, h, r, w, r)), (0, 1, 3, 5, 2, 4))
        return reshape(x, (batch, channels * r**2, h, w))
    x = transpose(reshape(x, (batch, h, r, w, r, channels)), (0, 1, 3, 2, 4, 5))
    return reshape(x, (batch, h, w, channels * r**2))


def _axes(first: bool) -> tuple[int, int, int, int]:
    """Return the axes of batch, height, width and channels."""
    return (0, 2, 3, 1) if first else (0, 1, 2, 3)
