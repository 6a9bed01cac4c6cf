"""Color spaces."""

from __future__ import annotations

import numpy as np

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.ops.elementwise import equal, floor, greater, less, where
from toolkit.ops.image.layout import batched, need_floats, widened
from toolkit.ops.numeric import absolute, clip
from toolkit.ops.reduce import max, min, sum
from toolkit.ops.shape import stack, unstack
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


def _need_channels(op: str, x: Tensor, kinds: dict[int, str]) -> None:
    if x.shape[-1] not in kinds:
        names = " or ".join(f"{n} ({kind})" for n, kind in kinds.items())
        raise ShapeError(
            f"{op}: Invalid channel size: expected {names}. Received: {x.shape[-1]} "
            f"channels, in images of shape {x.shape}"
        )


@operation
def rgb_to_grayscale(images: TensorLike, data_format: str | None = None) -> Tensor:
    """Convert color images to gray: 0.2989 * red + 0.587 * green + 0.114 * blue.

    Args:
        images: (height, width, 3), or (batch, height, width, 3). Images with 1 channel
            are returned unchanged.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        Images with 1 channel, and the dtype of `images`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.image.rgb_to_grayscale([[[1.0, 1.0, 0.0]]]), 4))
        [[[0.8859]]]
    """
    x, restore = batched("rgb_to_grayscale", images, data_format)
    _need_channels("rgb_to_grayscale", x, {3: "RGB", 1: "Grayscale"})
    if x.shape[-1] == 1:
        return restore(x)
    weights = convert(np.array([0.2989, 0.587, 0.114]), widened(x).dtype)
    y = sum(widened(x) * weights, axis=-1, keepdims=True)
    return restore(convert(y, x.dtype))


@operation
def rgb_to_hsv(images: TensorLike, data_format: str | None = None) -> Tensor:
    """Convert red, green and blue to hue, saturation and value.

    All numbers are in [0, 1]. The hue of red is 0, of green 1 / 3, and of blue 2 / 3.

    Args:
        images: (height, width, 3), or (batch, height, width, 3), with a floating dtype.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        A tensor with the shape and dtype of `images`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.image.rgb_to_hsv([[[0.0, 1.0, 0.0]]]), 4))
        [[[0.3333 1.     1.    ]]]
    """
    x, restore = batched("rgb_to_hsv", images, data_format)
    need_floats("rgb_to_hsv", x)
    _need_channels("rgb_to_hsv", x, {3: "RGB"})
    tiny = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10}
    wide = widened(x)
    wide = where(less(absolute(wide), tiny.get(x.dtype, 2.0**-7)), 0.0, wide)
    red, green, blue = unstack(wide, axis=-1)
    value = max(wide, axis=-1)
    extent = value - min(wide, axis=-1)
    colored = greater(extent, 0)
    slope = 1 / (6 * where(colored, extent, 1.0))
    hue = where(
        equal(value, green), slope * (blue - red) + 2 / 6, slope * (red - green) + 4 / 6
    )
    hue = where(equal(value, red), slope * (green - blue), hue)
    hue = where(colored, where(less(hue, 0), hue + 1, hue), 0.0)
    bright = greater(value, 0)
    saturation = where(bright, extent / where(bright, value, 1.0), 0.0)
    return restore(convert(stack([hue, saturation, value], axis=-1), x.dtype))


@operation
def hsv_to_rgb(images: TensorLike, data_format: str | None = None) -> Tensor:
    """Convert hue, saturation and value to red, green and blue.

    All numbers are in [0, 1]. The hue of red is 0, of green 1 / 3, and of blue 2 / 3.

    Args:
        images: (height, width, 3), or (batch, height, width, 3), with a floating dtype.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        A tensor with the shape and dtype of `images`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.image.hsv_to_rgb([[[0.0, 1.0, 0.5]]]), 4))
        [[[0.5 0.  0. ]]]
    """
    x, restore = batched("hsv_to_rgb", images, data_format)
    need_floats("hsv_to_rgb", x)
    _need_channels("hsv_to_rgb", x, {3: "HSV"})
    hue, saturation, value = unstack(widened(x), axis=-1)
    sixths = (hue - floor(hue)) * 6
    shares = (
        absolute(sixths - 3) - 1,
        2 - absolute(sixths - 2),
        2 - absolute(sixths - 4),
    )
    colors = [value * (1 - saturation * (1 - clip(s, 0.0, 1.0))) for s in shares]
    return restore(convert(stack(colors, axis=-1), x.dtype))
