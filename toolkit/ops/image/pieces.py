"""Parts of images: patches, padding and cropping."""

from __future__ import annotations

import math
from typing import Any

from toolkit.arguments import is_int
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError
from toolkit.ops.blocks import window_indices
from toolkit.ops.image.layout import batched
from toolkit.ops.index import gather_p
from toolkit.ops.shape import pad_p, reshape, slice_p, transpose
from toolkit.ops.spatial import padding_pairs, per_axis
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import Array, TensorLike


def _patches(
    op: str,
    images: Array | Tensor,
    size: Any,
    strides: tuple[int, ...] | None,
    dilation_rate: Any,
    padding: str,
    data_format: str | None,
    spatial: int,
) -> Tensor:
    x, restore = batched(op, images, data_format, spatial)
    size = per_axis(op, "size", size, spatial)
    strides = per_axis(op, "strides", strides or size, spatial)
    dilation = per_axis(op, "dilation_rate", dilation_rate, spatial)
    pads = padding_pairs(op, padding, x.shape[1:-1], size, strides, dilation)
    x = bind(pad_p, x, widths=((0, 0), *pads, (0, 0)), value=0)
    # Each spatial axis becomes two: the windows, and the elements of a window.
    for i in range(spatial):
        reach = (size[i] - 1) * dilation[i]
        count = (x.shape[1 + 2 * i] - reach - 1) // strides[i] + 1
        indices = window_indices(count, size[i], strides[i], dilation[i])
        x = bind(gather_p, x, indices, axis=1 + 2 * i)
    windows, offsets = range(1, 2 * spatial, 2), range(2, 2 * spatial + 1, 2)
    x = transpose(x, (0, *windows, *offsets, 2 * spatial + 1))
    counts = x.shape[: spatial + 1]
    length = math.prod(size) * x.shape[-1]
    return restore(reshape(x, (*counts, length)))


@operation
def extract_patches(
    images: Any,
    size: Any,
    strides: Any = None,
    dilation_rate: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Tensor:
    """Extract windows of images, each as one vector.

    Args:
        images: (height, width, channels), or (batch, height, width, channels). With
            three sizes: (depth, height, width, channels), or a batch of them.
        size: the extents of a window in pixels: an integer, or one for each of 2 or 3
            axes.
        strides: the distance between windows in pixels. None means `size`.
        dilation_rate: the distance between the pixels of a window.
        padding: "valid" (no padding) or "same" (zeros, for ceil(extent / stride)
            windows).
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        A tensor of shape (..., windows down, windows right, channels * pixels of a
        window), in the data format of `images`.

    Raises:
        TypeError: `size` is not an integer or a tuple.
        ArgumentError: `size` does not have 2 or 3 extents.

    Example:
        >>> from toolkit import ops
        >>> ops.image.extract_patches(ops.ones((20, 20, 3)), (5, 5)).shape
        (4, 4, 75)
    """
    if not is_int(size) and not isinstance(size, (tuple, list)):
        raise TypeError(
            "extract_patches: Invalid `size` argument. Expected an int or a tuple. "
            f"Received: size={size!r}"
        )
    spatial = len(size) if isinstance(size, (tuple, list)) else 2
    if spatial not in (2, 3):
        raise ArgumentError(
            "extract_patches: Invalid `size` argument. Expected a tuple of length 2 or "
            f"3. Received: size={size}"
        )
    options = (strides, dilation_rate, padding, data_format, spatial)
    return _patches("extract_patches", images, size, *options)


@operation
def extract_patches_3d(
    volumes: Any,
    size: Any,
    strides: Any = None,
    dilation_rate: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Tensor:
    """Extract windows of volumes, each as one vector.

    Args:
        volumes: (depth, height, width, channels), or (batch, depth, height, width,
            channels).
        size: the extents of a window in voxels: an integer, or one for each axis.
        strides: the distance between windows in voxels. None means `size`.
        dilation_rate: the distance between the voxels of a window.
        padding: "valid" (no padding) or "same" (zeros, for ceil(extent / stride)
            windows).
        data_format: "channels_last", "channels_first" (the channels are before the
            depth), or None for the global default.

    Returns:
        A tensor of shape (..., windows along the depth, the height and the width,
        channels * voxels of a window), in the data format of `volumes`.

    Example:
        >>> from toolkit import ops
        >>> ops.image.extract_patches_3d(ops.ones((4, 6, 8, 3)), 2).shape
        (2, 3, 4, 24)
    """
    options = (strides, dilation_rate, padding, data_format, 3)
    return _patches("extract_patches_3d", volumes, size, *options)


# --- margins --------------------------------------------------------------------------


def _margins(op: str, n: int, margins: dict[str, Any], sign: int) -> tuple[int, int]:
    """Return the margins before and after an axis of extent n, from two of three sizes.

    sign: 1 where margins are added, -1 where they are removed.
    """
    before, after, target = margins.values()
    text = ", ".join(f"{name}={value}" for name, value in margins.items())
    if list(margins.values()).count(None) != 1:
        raise ArgumentError(
            f"{op}: Must specify exactly two of {', '.join(margins)}. Received: {text}"
        )
    before = sign * (target - n) - after if before is None else before
    after = sign * (target - n) - before if after is None else after
    resolved = (before, after, n + sign * (before + after))
    for name, value in zip(margins, resolved, strict=True):
        if value < 0:
            raise ArgumentError(
                f"{op}: {name} must be >= 0. Received: {name}={value} ({text}, "
                f"for an extent of {n})"
            )
    return before, after


@operation
def pad_images(
    images: TensorLike,
    top_padding: int | None = None,
    left_padding: int | None = None,
    bottom_padding: int | None = None,
    right_padding: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Tensor:
    """Add rows and columns of zeros around images.

    Args:
        images: (height, width, channels), or (batch, height, width, channels).
        top_padding: the number of rows above. Two of `top_padding`, `bottom_padding`
            and `target_height` are necessary.
        left_padding: the number of columns on the left. Two of `left_padding`,
            `right_padding` and `target_width` are necessary.
        bottom_padding: the number of rows below.
        right_padding: the number of columns on the right.
        target_height: the height of the result in pixels.
        target_width: the width of the result in pixels.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        Larger images, with the dtype of `images`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.ones((2, 2, 1))
        >>> y = ops.image.pad_images(x, 1, 0, target_height=3, target_width=3)
        >>> print(y[:, :, 0])
        [[0. 0. 0.]
         [1. 1. 0.]
         [1. 1. 0.]]
    """
    x, restore = batched("pad_images", images, data_format)
    rows = {
        "top_padding": top_padding,
        "bottom_padding": bottom_padding,
        "target_height": target_height,
    }
    columns = {
        "left_padding": left_padding,
        "right_padding": right_padding,
        "target_width": target_width,
    }
    down = _margins("pad_images", x.shape[1], rows, 1)
    right = _margins("pad_images", x.shape[2], columns, 1)
    return restore(bind(pad_p, x, widths=((0, 0), down, right, (0, 0)), value=0))


@operation
def crop_images(
    images: TensorLike,
    top_cropping: int | None = None,
    left_cropping: int | None = None,
    bottom_cropping: int | None = None,
    right_cropping: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Tensor:
    """Remove rows and columns at the edges of images.

    Args:
        images: (height, width, channels), or (batch, height, width, channels).
        top_cropping: the number of rows to remove above. Two of `top_cropping`,
            `bottom_cropping` and `target_height` are necessary.
        left_cropping: the number of columns to remove on the left. Two of
            `left_cropping`, `right_cropping` and `target_width` are necessary.
        bottom_cropping: the number of rows to remove below.
        right_cropping: the number of columns to remove on the right.
        target_height: the height of the result in pixels.
        target_width: the width of the result in pixels.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        Smaller images, with the dtype of `images`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape(ops.arange(9), (3, 3, 1))
        >>> y = ops.image.crop_images(x, 1, 0, target_height=2, target_width=2)
        >>> print(y[:, :, 0])
        [[3 4]
         [6 7]]
    """
    x, restore = batched("crop_images", images, data_format)
    rows = {
        "top_cropping": top_cropping,
        "bottom_cropping": bottom_cropping,
        "target_height": target_height,
    }
    columns = {
        "left_cropping": left_cropping,
        "right_cropping": right_cropping,
        "target_width": target_width,
    }
    top, bottom = _margins("crop_images", x.shape[1], rows, -1)
    left, right = _margins("crop_images", x.shape[2], columns, -1)
    batch, height, width, channels = x.shape
    stop = (batch, height - bottom, width - right, channels)
    y = bind(slice_p, x, start=(0, top, left, 0), stop=stop, step=(1,) * 4)
    return restore(y)
