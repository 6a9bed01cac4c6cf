"""Spatial axes of images: windows, padding, and the position of the channels."""

from __future__ import annotations

from typing import Any

from toolkit.arguments import is_int
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ops.shape import moveaxis, slice_axis
from toolkit.settings import standardize_data_format

Extents = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


def window_counts(
    op: str,
    spatial: Extents,
    size: Extents,
    strides: Extents,
    padding: Pads,
    dilation: Extents,
) -> Extents:
    """Return the number of windows along each axis; raise a ShapeError if none fits."""
    counts = []
    axes = zip(spatial, size, strides, padding, dilation, strict=True)
    for n, k, stride, (low, high), d in axes:
        room = n + low + high - ((k - 1) * d + 1)
        if room < 0:
            raise ShapeError(
                f"{op}: a window of size {size} (dilation {dilation}) does not fit "
                f"into spatial shape {spatial} with padding {padding}: Computed "
                "output size would be zero or negative. Use larger inputs, "
                "padding='same', or fewer layers that reduce the extents"
            )
        counts.append(room // stride + 1)
    return tuple(counts)


def window_slices(x: Tensor, size: int, stride: int, dilation: int) -> list[Tensor]:
    """Return the elements with each position in the windows of lines.

    Args:
        x: (batch, length, channels).
        size: the elements of a window.
        stride: the distance between windows.
        dilation: the distance between the elements of a window.

    Returns:
        `size` tensors of shape (batch, windows, channels).
    """
    count = (x.shape[1] - (size - 1) * dilation - 1) // stride + 1
    starts = range(0, size * dilation, dilation)
    return [
        slice_axis(x, 1, start, start + (count - 1) * stride + 1, stride)
        for start in starts
    ]


def per_axis(op: str, name: str, value: Any, ndim: int) -> Extents:
    """Return an argument per spatial axis, as a tuple of positive ints."""
    is_sequence = isinstance(value, (tuple, list))
    values = tuple(value) if is_sequence else (value,) * ndim
    valid = len(values) == ndim and all(is_int(n) and n > 0 for n in values)
    if not valid:
        raise ArgumentError(
            f"{op}: {name} must be a positive integer or {ndim} of them; "
            f"received {value!r}"
        )
    return tuple(map(int, values))


def padding_pairs(
    op: str,
    padding: str,
    spatial: Extents,
    size: Extents,
    strides: Extents,
    dilation: Extents,
) -> Pads:
    """Return the zeros before and after each axis for padding "valid" or "same".

    "same" gives ceil(extent / stride) windows; if the total is odd, the extra zero is
    after the axis.
    """
    mode = str(padding).lower()
    if mode not in ("valid", "same"):
        raise unknown_choice(f"{op}: padding", padding, ("same", "valid"))
    pairs = [(0, 0)] * len(spatial)
    if mode == "same":
        for i, n in enumerate(spatial):
            # From the first element of the first window to the last element of the last
            # window.
            total = max((size[i] - 1) * dilation[i] - (n - 1) % strides[i], 0)
            pairs[i] = (total // 2, total - total // 2)
    window_counts(op, spatial, size, strides, tuple(pairs), dilation)
    return tuple(pairs)


def spatial_ndim(op: str, x: Tensor) -> int:
    """Return the number of spatial axes of a batch of images, 1 to 3."""
    if not 3 <= x.ndim <= 5:
        raise ShapeError(
            f"{op}: expected inputs with a batch, 1 to 3 spatial and a channel axis; "
            f"received shape {x.shape}"
        )
    return x.ndim - 2


def channels_last(x: Tensor, data_format: str | None) -> Tensor:
    """Return `x` with its channels moved to the last axis."""
    first = standardize_data_format(data_format) == "channels_first"
    return moveaxis(x, 1, -1) if first else x


def in_format(y: Tensor, data_format: str | None) -> Tensor:
    """Return `y`, channels last, in the requested layout."""
    first = standardize_data_format(data_format) == "channels_first"
    return moveaxis(y, -1, 1) if first else y
