"""Resampling along each axis: a weighted sum of few pixels, or a matrix product."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ops.contract import matmul
from toolkit.ops.creation import arange
from toolkit.ops.elementwise import (
    add,
    equal,
    greater,
    greater_equal,
    isfinite,
    isnan,
    less,
    less_equal,
    maximum,
    sign,
    where,
)
from toolkit.ops.image.layout import as_pixels, batched, widened
from toolkit.ops.index import take
from toolkit.ops.numeric import absolute, logical_and, stop_gradient
from toolkit.ops.ranges import index_range
from toolkit.ops.reduce import sum
from toolkit.ops.shape import expand_dims, pad_p, reshape, slice_axis, transpose
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import exp, sin
from toolkit.type_aliases import Array, TensorLike

# --- kernels: the weight of a pixel at a distance x >= 0 ------------------------------


def _triangle(x: Tensor) -> Tensor:
    return maximum(1 - x, 0.0)


def _cubic(x: Tensor) -> Tensor:
    """Compute Keys' cubic with a = -1/2 (1981, doi:10.1109/TASSP.1981.1163711)."""
    near = ((1.5 * x - 2.5) * x) * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return where(less(x, 1), near, where(less(x, 2), far, 0.0))


def _lanczos(radius: int) -> Callable[[Tensor], Tensor]:
    def kernel(x: Tensor) -> Tensor:
        is_nonzero = greater(x, 1e-3)
        angle = math.pi * where(is_nonzero, x, 1.0)
        y = radius * sin(angle) * sin(angle / radius) / (angle * angle)
        return where(greater(x, radius), 0.0, where(is_nonzero, y, 1.0))

    return kernel


def _gaussian(x: Tensor) -> Tensor:
    """Compute a Gaussian of standard deviation 1/2, truncated at three deviations."""
    return where(less(x, 1.5), exp(-2.0 * (x * x)), 0.0)


def _mitchell_cubic(x: Tensor) -> Tensor:
    """Compute the Mitchell cubic, B = C = 1/3 (1988, doi:10.1145/378456.378514)."""
    near = ((7 * x - 12) * x * x + 16 / 3) / 6
    far = (((-7 / 3 * x + 12) * x - 20) * x + 32 / 3) / 6
    return where(less(x, 1), near, where(less(x, 2), far, 0.0))


_KERNELS = {
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), _triangle),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), _cubic),
    "lanczos3": _lanczos(3),
    "lanczos5": _lanczos(5),
}
# for scale_and_translate; the remaining kernels are only for imported files
_METHODS = tuple(_KERNELS)
_KERNELS |= {"gaussian": _gaussian, "mitchellcubic": _mitchell_cubic}
_BLURRING = ("gaussian", "mitchellcubic")  # they also change images of the same size
# Radius of a kernel, in whole pixels.
_RADII = {
    "bilinear": 1,
    "bicubic": 2,
    "lanczos3": 3,
    "lanczos5": 5,
    "gaussian": 2,
    "mitchellcubic": 2,
}
_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
INTERPOLATIONS = (*_INTERPOLATIONS, "area", "gaussian", "mitchellcubic")
"""What `to_size` knows."""


def _weights(
    n: int,
    count: int,
    scale: Tensor,
    shift: Tensor | float,
    method: str,
    antialias: bool,
    sources: Array | Tensor | None = None,
) -> Tensor:
    """Return (n, count) weights: column j has the weights of result pixel j.

    Pixel centers are at half-integers; pixels outside the image count as 0. If `taken`
    is given, (taps, count), each column has the weights of these pixels only.
    """
    step = 1 / scale
    centers = (arange(count, dtype=step.dtype) + 0.5) * step - shift * step - 0.5
    pixels = expand_dims(arange(n), -1) if sources is None else sources
    distances = absolute(convert(pixels, step.dtype) - centers)
    weights = _KERNELS[method](
        distances / maximum(step, 1.0) if antialias else distances
    )
    if sources is not None:
        weights = where((sources >= 0) & (sources < n), weights, 0.0)
    total = sum(weights, axis=0, keepdims=True)
    usable = greater(absolute(total), 1e-4 if step.dtype == "float32" else 1e-12)
    is_inside = logical_and(greater_equal(centers, -0.5), less_equal(centers, n - 0.5))
    divisor = where(equal(total, 0), 1.0, total)
    return where(logical_and(usable, is_inside), weights / divisor, 0.0)


_NAN = 1e20  # marker of NaN: times any weight it is larger than a sum of weights


def _along(x: Tensor, axis: int, weights: TensorLike, is_finite: bool) -> Tensor:
    """Multiply one axis by a matrix.

    Args:
        x: any shape.
        axis: its extent is the number of rows of the matrix.
        weights: the matrix. A pixel whose weight is 0 has no effect.
        is_finite: whether x is known to contain neither NaN nor infinity.
    """
    if is_finite:
        return _product(x, axis, weights)
    zero = convert(0.0, x.dtype)
    y = _product(where(isfinite(x), x, zero), axis, weights)
    marks = where(isnan(x), _NAN, where(isfinite(x), zero, sign(x)))
    reached = stop_gradient(_product(convert(marks, x.dtype), axis, weights))
    wrong = where(greater(absolute(reached), 1e3), math.nan, reached * math.inf)
    return where(equal(reached, 0), y, convert(wrong, x.dtype))


def _product(x: Tensor, axis: int, weights: TensorLike) -> Tensor:
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    if not after:
        return matmul(x, weights)
    # One product for each index of the leading axes, with the trailing axes in memory
    # order.
    columns = reshape(x, (math.prod(before), n, math.prod(after)))
    product = matmul(transpose(weights), columns)
    return reshape(product, (*before, product.shape[1], *after))


@operation
def scale_and_translate(
    images: TensorLike,
    output_shape: Sequence[int],
    scale: TensorLike,
    translation: Any,
    spatial_dims: Sequence[int],
    method: str,
    antialias: bool = True,
) -> Tensor:
    """Resample images so that the point p moves to p * scale + translation.

    Args:
        images: tensor of any shape.
        output_shape: the shape of the result, which differs from the shape of `images`
            only along `spatial_dims`.
        scale: (k,), the factor for each of `spatial_dims`.
        translation: (k,), the distance for each of `spatial_dims`, in pixels of the
            result. Pixel i is centered at i + 0.5.
        spatial_dims: k axes.
        method: "linear", "cubic", "lanczos3" or "lanczos5". "bilinear", "trilinear",
            "triangle", "bicubic" and "tricubic" are aliases.
        antialias: whether to average over more pixels if the scale is below 1.

    Returns:
        A tensor of shape `output_shape` with the dtype of `images`.

    Raises:
        ShapeError: `output_shape` or `scale` contradicts `spatial_dims`.

    Example:
        >>> from toolkit import ops
        >>> x = ops.array([1.0, 2.0, 3.0, 4.0])
        >>> ops.image.scale_and_translate(x, (4,), [1.0], [1.0], [0], "linear").tolist()
        [0.0, 1.0, 2.0, 3.0]
    """
    if method not in _METHODS:
        raise unknown_choice("scale_and_translate: method", method, _METHODS)
    images = convert(images)
    x = widened(images)
    scale, translation = convert(scale, x.dtype), convert(translation, x.dtype)
    axes = [axis % x.ndim for axis in spatial_dims]
    if len(output_shape) == x.ndim:  # None, as in symbols: the extent of the images
        output_shape = [
            n if m is None else m for m, n in zip(output_shape, x.shape, strict=True)
        ]
    expected = [output_shape[i] if i in axes else n for i, n in enumerate(x.shape)]
    if list(output_shape) != expected or scale.shape != (len(axes),):
        raise ShapeError(
            "scale_and_translate: expected an output_shape that differs from "
            f"{images.shape} only along the axes {tuple(axes)}, and a scale for each "
            f"of these axes; received {tuple(output_shape)} and {scale.shape}"
        )
    is_finite = not dtypes.is_float(images.dtype)
    for i, axis in enumerate(axes):
        sizes = x.shape[axis], output_shape[axis]
        weights = _weights(*sizes, scale[i], translation[i], method, antialias)
        x = _along(x, axis, weights, is_finite)
    return as_pixels(x, images.dtype)


# --- resize ---------------------------------------------------------------------------


# A product with this number of pixels takes as long as one more pixel of a weighted
# sum.
_PIXELS_OF_A_TAP, _MOST_TAPS = 24, 32


def _resampled(
    x: Tensor, axis: int, count: int, method: str, antialias: bool, is_finite: bool
) -> Tensor:
    """Return x with `count` pixels along an axis."""
    n = x.shape[axis]
    if n == count and method not in _BLURRING:
        return x
    scale = convert(count / n, x.dtype)
    weights = partial(_weights, n, count, scale, 0.0, method, antialias)
    if count % n == 0:
        return _multiplied(x, axis, count // n, _RADII[method], weights, is_finite)
    reach = _RADII[method] * (max(n / count, 1) if antialias else 1)
    taps = math.ceil(2 * reach)
    if taps > _MOST_TAPS or taps * _PIXELS_OF_A_TAP > n:
        return _along(x, axis, weights(), is_finite)
    centers = (index_range(count, rows=taps) + 0.5) * (n / count) - 0.5
    first = np.clip(np.floor(centers - reach).astype(int) + 1, 0, n - taps)
    sources = first + np.arange(taps)[:, None]
    tap_weights = reshape(weights(sources), (taps, count, *[1] * (x.ndim - axis - 1)))
    pixels = (take(x, sources[k], axis) for k in range(taps))
    return _total(pixels, tap_weights, is_finite)


def _multiplied(
    x: Tensor,
    axis: int,
    factor: int,
    radius: int,
    weights: Callable[[Any], Tensor],
    is_finite: bool,
) -> Tensor:
    """Replace each pixel of x by several, computed from the same adjacent pixels."""
    n, taps = x.shape[axis], 2 * radius + 1
    sources = arange(n * factor) // factor + np.arange(-radius, radius + 1)[:, None]
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    tap_weights = reshape(weights(sources), (taps, n, factor, *[1] * len(after)))
    widths = [(0, 0)] * x.ndim
    widths[axis] = (radius, radius)
    padded = expand_dims(bind(pad_p, x, widths=tuple(widths), value=0), axis + 1)
    pixels = (slice_axis(padded, axis, k, k + n) for k in range(taps))
    y = _total(pixels, tap_weights, is_finite)
    return reshape(y, (*before, n * factor, *after))


def _total(pixels: Iterable[Tensor], tap_weights: Tensor, is_finite: bool) -> Tensor:
    """Sum pixels times weights, in order, without the pixels of weight 0."""
    if is_finite:
        return reduce(add, (x * tap_weights[k] for k, x in enumerate(pixels)))
    # A comparison of the weights is shared by all channels. The weights are constants,
    # so no gradient needs the pixels of weight 0.
    unused, zero = equal(tap_weights, 0), convert(0.0, tap_weights.dtype)
    return reduce(
        add,
        (where(unused[k], zero, x) * tap_weights[k] for k, x in enumerate(pixels)),
    )


def _nearest(x: Tensor, axis: int, count: int) -> Tensor:
    n = x.shape[axis]
    sources = (2 * arange(count, dtype="int64") + 1) * n // (2 * count)
    return take(x, sources, axis)


def _averaged(x: Tensor, axis: int, count: int, is_finite: bool) -> Tensor:
    """Return x with `count` pixels along an axis, each the mean of its range."""
    n = x.shape[axis]
    edges = index_range(count + 1, rows=n) * (n / count)
    low, high = edges[:-1], edges[1:]
    pixels = np.arange(n)[:, None]
    covered = np.minimum(pixels + 1, high) - np.maximum(pixels, low)
    weights = convert(np.maximum(covered, 0) * (count / n), x.dtype)
    return _along(x, axis, weights, is_finite)


def to_size(
    x: Tensor, size: tuple[int, int], interpolation: str, antialias: bool = False
) -> Tensor:
    """Resize images (batch, height, width, channels).

    Args:
        x: the images; integers are rounded.
        size: (height, width) of the result.
        interpolation: one of `INTERPOLATIONS`.
        antialias: whether to average over more pixels if the image shrinks.
    """
    if tuple(x.shape[1:3]) == tuple(size):
        return x
    if interpolation == "nearest":
        return _nearest(_nearest(x, 1, size[0]), 2, size[1])
    y, is_finite = widened(x), not dtypes.is_float(x.dtype)
    for axis, count in zip((1, 2), size, strict=True):
        if interpolation == "area":
            y = _averaged(y, axis, count, is_finite)
        else:
            y = _resampled(y, axis, count, interpolation, antialias, is_finite)
    return as_pixels(y, x.dtype)


def _fitting(other: int, size: int, other_size: int) -> int:
    """Return the extent that gives `other` the aspect ratio of the result."""
    return int(float(other * size) / other_size)


def cropped(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the largest centered window with the aspect ratio of `size`."""
    height, width = x.shape[1:3]
    extents = _fitting(width, *size), _fitting(height, *size[::-1])
    for axis, n, extent in zip((1, 2), (height, width), extents, strict=True):
        crop_size = max(min(n, extent), 1)
        start = int((n - crop_size) / 2)
        x = slice_axis(x, axis, start, start + crop_size)
    return x


def _padded(x: Tensor, size: tuple[int, int], value: TensorLike) -> Tensor:
    """Pad x equally on both sides, to approximate the aspect ratio of `size`."""
    height, width = x.shape[1:3]
    extents = _fitting(width, *size), _fitting(height, *size[::-1])
    sides = [
        max(extent - n, 0) // 2
        for n, extent in zip((height, width), extents, strict=True)
    ]
    if sides[0]:
        sides[1] = 0
    widths = ((0, 0), *((side, side) for side in sides), (0, 0))
    return bind(pad_p, x, widths=widths, value=value)


@operation
def resize(
    images: TensorLike,
    size: tuple[int, int],
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> Tensor:
    """Change the height and the width of images by interpolation.

    Args:
        images: (height, width, channels), or (batch, height, width, channels).
        size: (height, width) of the result in pixels.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5".
        antialias: whether to average over more pixels if the image shrinks.
        crop_to_aspect_ratio: whether to crop images on both sides to the aspect ratio
            of `size`.
        pad_to_aspect_ratio: whether to pad images on both sides to the aspect ratio of
            `size`.
        fill_mode: the mode of the padding; only "constant".
        fill_value: the value of the padding.
        data_format: "channels_last", "channels_first" (the channels are before the
            height), or None for the global default.

    Returns:
        Images with the dtype of `images`; integers are rounded. A pixel that is NaN or
        infinite affects only the result pixels that are computed from it.

    Raises:
        ArgumentError: both `crop_to_aspect_ratio` and `pad_to_aspect_ratio` are true.

    Example:
        >>> from toolkit import ops
        >>> x = ops.reshape([0.0, 1.0, 2.0, 3.0], (1, 4, 1))
        >>> ops.image.resize(x, (1, 2))[0, :, 0].tolist()
        [0.5, 2.5]
    """
    _check_resize(size, interpolation, fill_mode)
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ArgumentError(
            "resize: Only one of `pad_to_aspect_ratio` & `crop_to_aspect_ratio` can be "
            "`True`."
        )
    x, restore = batched("resize", images, data_format)
    size = int(size[0]), int(size[1])
    if crop_to_aspect_ratio:
        x = cropped(x, size)
    elif pad_to_aspect_ratio:
        x = _padded(x, size, fill_value)
    return restore(to_size(x, size, interpolation, antialias))


def _check_resize(size: tuple[int, ...], interpolation: str, fill_mode: str) -> None:
    if len(size) != 2 or min(size) <= 0:
        raise ArgumentError(
            f"resize: Expected `size` to be a tuple of 2 integers > 0. Received: {size}"
        )
    if interpolation not in _INTERPOLATIONS:
        raise unknown_choice("resize: interpolation", interpolation, _INTERPOLATIONS)
    if fill_mode != "constant":
        raise unknown_choice("resize: fill_mode", fill_mode, ("constant",))
