"""Filters of images, and structural similarity."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ops.arrange import tile
from toolkit.ops.conv import depthwise_conv
from toolkit.ops.creation import arange
from toolkit.ops.image.layout import as_pixels, batched, widened
from toolkit.ops.numeric import square
from toolkit.ops.padding import pad
from toolkit.ops.reduce import mean, sum
from toolkit.ops.shape import reshape, slice_axis, stack, unstack
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import exp
from toolkit.type_aliases import TensorLike

# The channels for which weighted slices replace a convolution, and the most weights of
# both axes. A depthwise convolution fills vectors with the channels of a pixel. On AVX2
# slices with 3 x 3 weights take 0.15 times as long for 3 channels, and their gradient
# 0.4 times. Slices with more weights are slower in gradients and in eager mode.
_SLICED_CHANNELS, _MAX_SLICES = (2, 3, 4), 6


def bell(size: int, sigma: Any, dtype: str) -> Tensor:
    """Return the normal density around the middle, (size,), with sum 1."""
    distances = arange(size, dtype=dtype) - (size - 1) / 2
    y = exp(-0.5 * square(distances / convert(sigma, dtype)))
    return y / sum(y)


def _filtered(x: Tensor, kernel: Tensor, padding: str) -> Tensor:
    """Convolve each channel with one kernel (height, width, multiplier)."""
    height, width, multiplier = kernel.shape
    kernel = tile(
        reshape(kernel, (height, width, 1, multiplier)), (1, 1, x.shape[-1], 1)
    )
    return depthwise_conv(x, kernel, 1, padding, "channels_last")


def blurred(x: Tensor, down: Tensor, right: Tensor, padding: str = "same") -> Tensor:
    """Convolve images (batch, height, width, channels) with `down` and `right`."""
    if x.shape[-1] in _SLICED_CHANNELS and down.size + right.size <= _MAX_SLICES:
        return _blurred_by_slices(x, down, right, padding)
    y = _filtered(x, reshape(down, (-1, 1, 1)), padding)
    return _filtered(y, reshape(right, (1, -1, 1)), padding)


def _blurred_by_slices(x: Tensor, down: Tensor, right: Tensor, padding: str) -> Tensor:
    """Add weighted slices, with the pixels of a row and their channels as one axis."""
    if padding == "same":
        extents = [((w.size - 1) // 2, w.size // 2) for w in (down, right)]
        x = pad(x, [(0, 0), *extents, (0, 0)])
    batch, height, width, channels = x.shape
    rows = reshape(x, (batch, height, width * channels))
    y = _weighted_slices(_weighted_slices(rows, down, 1, 1), right, 2, channels)
    return reshape(y, (*y.shape[:2], width + 1 - right.size, channels))


def _weighted_slices(x: Tensor, weights: Tensor, axis: int, step: int) -> Tensor:
    """Return the sum of the weighted slices of an axis that are `step` apart."""
    extent = x.shape[axis] - (weights.size - 1) * step
    products = (
        slice_axis(x, axis, k * step, k * step + extent) * weight
        for k, weight in enumerate(unstack(weights))
    )
    return reduce(add, products)


@operation
def gaussian_blur(
    images: TensorLike,
    kernel_size: tuple[int, int] = (3, 3),
    sigma: Any = (1.0, 1.0),
    data_format: str | None = None,
) -> Tensor:
    """Blur images with a Gaussian kernel; zeros surround the images.

    Args:
        images: (height, width, channels), or (batch, height, width, channels).
        kernel_size: the extents of the kernel along the width and the height, in
            pixels, as in Keras.
        sigma: the standard deviations along the width and the height, in pixels.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        A tensor with the shape and dtype of `images`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape([0.0, 0.0, 1.0, 0.0, 0.0], (1, 5, 1))
        >>> y = ops.image.gaussian_blur(x, kernel_size=(3, 1))
        >>> print(ops.round(y[0, :, 0], 3))
        [0.    0.274 0.452 0.274 0.   ]
    """
    x, restore = batched("gaussian_blur", images, data_format)
    wide = widened(x)
    right, down = (bell(n, sigma[i], wide.dtype) for i, n in enumerate(kernel_size))
    return restore(as_pixels(blurred(wide, down, right), x.dtype))


@operation
def sobel_edges(images: TensorLike, data_format: str | None = None) -> Tensor:
    """Compute the vertical and the horizontal gradients of images by Sobel filters.

    Zeros surround the images.

    Args:
        images: (batch, height, width, channels).
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        A tensor with the shape of `images` and an additional last axis of extent 2: the
        gradients down and to the right.

    Raises:
        ShapeError: `images` does not have 4 axes.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape(ops.arange(9.0), (1, 3, 3, 1))
        >>> ops.image.sobel_edges(x)[0, 1, 1, 0].tolist()
        [24.0, 8.0]
    """
    if convert(images).ndim != 4:
        raise ShapeError(
            "sobel_edges: Invalid images rank: expected rank 4 (batch of images). "
            f"Received: shape {convert(images).shape}"
        )
    x, restore = batched("sobel_edges", images, data_format)
    down = np.outer([-1, 0, 1], [1, 2, 1])
    kernel = convert(np.stack([down, down.T], axis=-1).astype("float32"))
    y = _filtered(widened(x), convert(kernel, widened(x).dtype), "same")
    edges = unstack(as_pixels(reshape(y, (*x.shape, 2)), x.dtype), axis=-1)
    return stack([restore(edge) for edge in edges], axis=-1)


@operation
def ssim(
    image1: Any,
    image2: Any,
    max_val: float = 1.0,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    data_format: str | None = None,
) -> Tensor:
    """Compute the structural similarity of images: 1 for equal images, less otherwise.

    It is the mean over pixels and channels of (2 m1 m2 + c1) (2 v12 + c2) / ((m1 ** 2 +
    m2 ** 2 + c1) (v1 + v2 + c2)). The means m, the variances v and the covariance v12
    are under a Gaussian kernel.

    Args:
        image1: (height, width, channels), or (batch, height, width, channels).
        image2: images with the shape of `image1`.
        max_val: the largest possible value of a pixel.
        filter_size: the extent of the kernel in pixels, an odd number.
        filter_sigma: the standard deviation of the kernel in pixels.
        k1: the constant c1 is (k1 * max_val) ** 2.
        k2: the constant c2 is (k2 * max_val) ** 2.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        A tensor of shape (batch,), or a scalar for one image.

    Raises:
        ArgumentError: `filter_size` is not an odd number.
        ShapeError: the shapes differ.

    Reference:
        Wang et al., Image Quality Assessment (2004), doi:10.1109/TIP.2003.819861

    Example:
        >>> from toolkit import ops
        >>> x = ops.ones((16, 16, 3))
        >>> round(float(ops.image.ssim(x, x)), 4)
        1.0
    """
    if filter_size < 1 or filter_size % 2 == 0:
        raise ArgumentError(
            f"ssim: expected filter_size, an odd number >= 1; received {filter_size}"
        )
    (x, _), (y, _) = (batched("ssim", i, data_format) for i in (image1, image2))
    if x.shape != y.shape:
        raise ShapeError(
            f"ssim: expected images of one shape; received {x.shape} and {y.shape}"
        )
    a, b = widened(x), convert(y, widened(x).dtype)
    weights = bell(filter_size, filter_sigma, a.dtype)
    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2

    def average(t: Tensor) -> Tensor:
        return blurred(t, weights, weights, "valid")

    m1, m2 = average(a), average(b)
    v1, v2 = average(a * a) - m1 * m1, average(b * b) - m2 * m2
    v12 = average(a * b) - m1 * m2
    over = (2 * m1 * m2 + c1) * (2 * v12 + c2)
    under = (m1 * m1 + m2 * m2 + c1) * (v1 + v2 + c2)
    similarity = convert(mean(over / under, axis=(1, 2, 3)), _float_dtype(x))
    return similarity if convert(image1).ndim == 4 else reshape(similarity, ())


def _float_dtype(x: Tensor) -> str:
    wide = widened(x).dtype
    return x.dtype if x.dtype in ("float16", "bfloat16") else wide
