"""`tf.image`: images as tensors, channels last."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import extents, refuse
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.image_colors import (
    rgb_to_yiq as rgb_to_yiq,
    rgb_to_yuv as rgb_to_yuv,
    yiq_to_rgb as yiq_to_rgb,
    yuv_to_rgb as yuv_to_rgb,
)
from toolkit.compat.tensorflow.image_files import (
    decode_bmp as decode_bmp,
    decode_gif as decode_gif,
    decode_image as decode_image,
    decode_jpeg as decode_jpeg,
    decode_png as decode_png,
    encode_jpeg as encode_jpeg,
    encode_png as encode_png,
    is_jpeg as is_jpeg,
)
from toolkit.compat.tensorflow.parameter_names import rename_functions
from toolkit.compat.tensorflow.random import random_crop as random_crop
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, DTypeError, ShapeError
from toolkit.type_aliases import DTypeLike, TensorLike

globals().update(
    rename_functions(
        {
            "rgb_to_hsv": (ops.image.rgb_to_hsv, "images"),
            "hsv_to_rgb": (ops.image.hsv_to_rgb, "images"),
        }
    )
)


class ResizeMethod:
    """The names of the resize methods."""

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    AREA = "area"


def resize(
    images: TensorLike,
    size: TensorLike,
    method: str = "bilinear",
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str | None = None,
) -> Tensor:
    """Resize images; float32, except for the nearest neighbour.

    Args:
        images: one, or a batch.
        size: (height, width).
        method: bilinear, nearest, bicubic, lanczos3, lanczos5, or area: the mean over
            the area of a pixel.
        preserve_aspect_ratio: whether `size` is only the maximum.
        antialias: whether to smooth before a reduction.
    """
    x, (height, width) = convert(images), extents(size)
    if preserve_aspect_ratio:
        old = x.shape[-3:-1]
        scale = min(height / old[0], width / old[1])
        height, width = (int(round(n * scale)) for n in old)
    x = x if method == "nearest" else convert(x, "float32")
    if method == "area":
        for axis, count in ((-3, height), (-2, width)):
            x = _area_means(x, axis, count)
        return x
    return ops.image.resize(x, (height, width), method, antialias)


def _area_means(x: Tensor, axis: int, count: int) -> Tensor:
    """Return the means over `count` equal parts of an axis, with fractional pixels."""
    n = x.shape[axis]
    ends = np.arange(count + 1) * (n / count)
    pixels = np.arange(n)
    low = np.maximum(ends[:-1, None], pixels)
    high = np.minimum(ends[1:, None], pixels + 1)
    shares = np.maximum(high - low, 0) * (count / n)
    y = ops.tensordot(x, convert(shares.T, x.dtype), ((axis,), (0,)))
    return ops.moveaxis(y, -1, axis)


def flip_left_right(image: TensorLike) -> Tensor:
    """Flip the image from left to right."""
    return ops.flip(image, -2)


def flip_up_down(image: TensorLike) -> Tensor:
    """Flip the image upside down."""
    return ops.flip(image, -3)


def transpose(image: TensorLike, name: str | None = None) -> Tensor:
    """Exchange height and width."""
    return ops.swapaxes(image, -3, -2)


def rot90(image: TensorLike, k: int = 1, name: str | None = None) -> Tensor:
    """Rotate the image counterclockwise by k quarters."""
    return ops.rot90(image, k, (-3, -2))


def rgb_to_grayscale(images: TensorLike, name: str | None = None) -> Tensor:
    """Convert to brightness, in one channel."""
    _check_channels("rgb_to_grayscale", images, 3)
    return _apply_to_floats(images, ops.image.rgb_to_grayscale)


def grayscale_to_rgb(images: TensorLike, name: str | None = None) -> Tensor:
    """Repeat the one channel three times."""
    _check_channels("grayscale_to_rgb", images, 1)
    return ops.repeat(images, 3, -1)


def _check_channels(function: str, images: TensorLike, count: int) -> None:
    shape = tuple(convert(images).shape)
    if shape[-1:] != (count,):
        raise ShapeError(
            f"{function}: expected pictures with a last axis of {count}; received the "
            f"shape {shape}"
        )


def convert_image_dtype(
    image: TensorLike, dtype: DTypeLike, saturate: bool = False, name: str | None = None
) -> Tensor:
    """Convert from the range of the dtype to the range of another; [0, 1] for
    floats."""
    x, dtype = convert(image), dtypes.standardize(dtype)
    if x.dtype == dtype:
        return x
    old, new = dtypes.is_float(x.dtype), dtypes.is_float(dtype)
    if new:
        return (
            ops.cast(x, dtype) if old else ops.cast(x, dtype) / dtypes.highest(x.dtype)
        )
    if not old:
        return _as_integers(x, dtype, saturate)
    scaled = x * (float(dtypes.highest(dtype)) + 0.5)
    return ops.saturate_cast(scaled, dtype) if saturate else ops.cast(scaled, dtype)


def _as_integers(x: Tensor, dtype: str, saturate: bool) -> Tensor:
    """Scale to another integer dtype: append or drop low bits."""
    old, new = (int(dtypes.highest(kind)) + 1 for kind in (x.dtype, dtype))
    if new >= old:
        return ops.cast(x, dtype) * (new // old)
    scaled = ops.floor_divide(x, old // new)
    return ops.saturate_cast(scaled, dtype) if saturate else ops.cast(scaled, dtype)


def adjust_brightness(image: TensorLike, delta: TensorLike) -> Tensor:
    """Add delta to each value, in the scale of [0, 1]."""
    return _apply_to_floats(image, lambda x: x + delta)


def adjust_contrast(images: TensorLike, contrast_factor: TensorLike) -> Tensor:
    """Compute (x - mean) * contrast_factor + mean for each channel."""

    def adjust(x: Tensor) -> Tensor:
        mean = ops.mean(x, (-3, -2), keepdims=True)
        return (x - mean) * contrast_factor + mean

    return _apply_to_floats(images, adjust)


def adjust_saturation(
    image: TensorLike, saturation_factor: TensorLike, name: str | None = None
) -> Tensor:
    """Multiply the saturation of each colour by a factor."""
    return _adjust_in_hsv(
        image, lambda h, s, v: (h, ops.clip(s * saturation_factor, 0, 1), v)
    )


def adjust_hue(image: TensorLike, delta: Any, name: str | None = None) -> Tensor:
    """Rotate the hue of each colour by delta in [-1, 1]; 1 is the whole circle."""
    if not isinstance(delta, Tensor) and not -1 <= delta <= 1:
        raise ArgumentError(f"adjust_hue: expected delta in [-1, 1]; received {delta}")
    return _adjust_in_hsv(image, lambda h, s, v: (ops.mod(h + delta, 1.0), s, v))


def _adjust_in_hsv(image: TensorLike, change: Any) -> Tensor:
    def adjust(x: Tensor) -> Tensor:
        hsv = ops.unstack(ops.image.rgb_to_hsv(x), axis=-1)
        return ops.image.hsv_to_rgb(ops.stack(change(*hsv), -1))

    return _apply_to_floats(image, adjust)


def _apply_to_floats(image: TensorLike, change: Any) -> Tensor:
    """Apply a change to an image scaled to [0, 1]; keep the dtype."""
    x = convert(image)
    if dtypes.is_float(x.dtype):
        return change(x)
    changed = change(convert_image_dtype(x, "float32"))
    return convert_image_dtype(changed, x.dtype, saturate=True)


def per_image_standardization(image: TensorLike) -> Tensor:
    """Compute (x - mean) / max(std, 1 / sqrt(number of values)) of each image."""
    x = convert(image)
    x = x if dtypes.is_float(x.dtype) else convert(x, "float32")
    axes = (-3, -2, -1)
    minimum = 1.0 / float(np.sqrt(np.prod(x.shape[-3:])))
    mean, std = ops.mean(x, axes, keepdims=True), ops.std(x, axes, keepdims=True)
    return (x - mean) / ops.maximum(std, minimum)


def crop_to_bounding_box(
    image: TensorLike,
    offset_height: int,
    offset_width: int,
    target_height: int,
    target_width: int,
) -> Tensor:
    """Crop the image to a box."""
    top, x0, height, width = map(
        int, (offset_height, offset_width, target_height, target_width)
    )
    x = convert(image)
    if not (0 <= top <= x.shape[-3] - height and 0 <= x0 <= x.shape[-2] - width):
        raise ArgumentError(
            f"crop_to_bounding_box: expected a box within {tuple(x.shape)}; received "
            f"{(top, x0, height, width)}"
        )
    return x[..., top : top + height, x0 : x0 + width, :]


def pad_to_bounding_box(
    image: TensorLike,
    offset_height: int,
    offset_width: int,
    target_height: int,
    target_width: int,
) -> Tensor:
    """Pad the image with zeros to a size."""
    x = convert(image)
    top, x0 = int(offset_height), int(offset_width)
    below = int(target_height) - top - x.shape[-3]
    right = int(target_width) - x0 - x.shape[-2]
    if min(top, x0, below, right) < 0:
        raise ArgumentError(
            f"pad_to_bounding_box: expected a box around {tuple(x.shape)}; received "
            f"{(top, x0, int(target_height), int(target_width))}"
        )
    return ops.pad(x, [(0, 0)] * (x.ndim - 3) + [(top, below), (x0, right), (0, 0)])


def central_crop(image: TensorLike, central_fraction: float) -> Tensor:
    """Crop to the center of the image: this fraction of height and width."""
    if not 0 < central_fraction <= 1:
        raise ArgumentError(
            f"central_crop: expected a fraction in (0, 1]; received {central_fraction}"
        )
    x = convert(image)
    starts = [int((n - n * central_fraction) / 2) for n in x.shape[-3:-1]]
    sizes = [n - 2 * start for n, start in zip(x.shape[-3:-1], starts, strict=True)]
    return crop_to_bounding_box(x, *starts, *sizes)


def resize_with_crop_or_pad(
    image: TensorLike, target_height: Any, target_width: Any
) -> Tensor:
    """Crop or pad with zeros around the center."""
    x, target = convert(image), (int(target_height), int(target_width))
    old = x.shape[-3:-1]
    cropped_size = [min(n, w) for n, w in zip(old, target, strict=True)]
    starts = [(n - k) // 2 for n, k in zip(old, cropped_size, strict=True)]
    x = crop_to_bounding_box(x, *starts, *cropped_size)
    return _pad_to_center(x, target)


def resize_with_pad(
    image: TensorLike,
    target_height: int,
    target_width: int,
    method: str = "bilinear",
    antialias: bool = False,
) -> Tensor:
    """Resize with the aspect ratio, rounded down, and pad with zeros.

    Raises:
        ArgumentError: the height or width would be 0.
    """
    x, target = convert(image), (int(target_height), int(target_width))
    old = x.shape[-3:-1]
    # As TensorFlow rounds: in float32, in which 9 / (9 / 7) is 7.
    ratio = max(np.float32(n) / np.float32(w) for n, w in zip(old, target, strict=True))
    sizes = [np.float32(n) / ratio for n in old]
    height, width = map(int, sizes)
    if not height or not width:
        raise ArgumentError(
            "resize_with_pad: expected a size that keeps at least one pixel of "
            f"{old}; received {target}"
        )
    top, x0 = (int((w - n) / 2) for w, n in zip(target, sizes, strict=True))
    y = resize(x, (height, width), method, antialias=antialias)
    return pad_to_bounding_box(y, top, x0, *target)


def _pad_to_center(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Pad with zeros around the center."""
    top, x0 = ((w - n) // 2 for w, n in zip(size, x.shape[-3:-1], strict=True))
    return pad_to_bounding_box(x, top, x0, *size)


def extract_patches(
    images: TensorLike,
    sizes: int | Sequence[int],
    strides: int | Sequence[int],
    rates: int | Sequence[int],
    padding: str,
    name: str | None = None,
) -> Tensor:
    """Extract patches of images; the values of a patch are its channels."""
    size, step, rate = (extents(n)[1:3] for n in (sizes, strides, rates))
    return ops.image.extract_patches(images, size, step, rate, padding.lower())


def psnr(a: TensorLike, b: TensorLike, max_val: Any, name: str | None = None) -> Tensor:
    """Compute 20 * log10(max_val) - 10 * log10(mean((a - b) ** 2)) of each image;
    float32.

    Integer images and `max_val` are first scaled to [0, 1].
    """
    x, y = convert(a), convert(b)
    peak = convert_image_dtype(convert(max_val, x.dtype), "float32")
    x, y = (convert_image_dtype(picture, "float32") for picture in (x, y))
    error = ops.mean(ops.square(x - y), (-3, -2, -1))
    tenth = 10 / float(np.log(10))
    return tenth * (2 * ops.log(peak) - ops.log(error))


def ssim(
    img1: Any,
    img2: Any,
    max_val: Any,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    return_index_map: bool = False,
) -> Tensor:
    """Compute the structural similarity of two images."""
    refuse("ssim", return_index_map=(return_index_map, False))
    return ops.image.ssim(img1, img2, float(max_val), filter_size, filter_sigma, k1, k2)


def image_gradients(image: TensorLike) -> tuple[Tensor, Tensor]:
    """Return the differences to the next row and column; 0 at the last ones."""
    x = convert(image)
    dy, dx = x[:, 1:] - x[:, :-1], x[:, :, 1:] - x[:, :, :-1]
    return (
        ops.pad(dy, [(0, 0), (0, 1), (0, 0), (0, 0)]),
        ops.pad(dx, [(0, 0), (0, 0), (0, 1), (0, 0)]),
    )


def sobel_edges(image: TensorLike) -> Tensor:
    """Return the gradients down and to the right, on a last axis; images are
    reflected."""
    x = _require_signed("sobel_edges", image)
    x = ops.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], "reflect")
    down, right = x[:, 2:] - x[:, :-2], x[:, :, 2:] - x[:, :, :-2]
    down = down[:, :, :-2] + 2 * down[:, :, 1:-1] + down[:, :, 2:]
    right = right[:, :-2] + 2 * right[:, 1:-1] + right[:, 2:]
    return ops.stack([down, right], -1)


def _require_signed(function: str, image: TensorLike) -> Tensor:
    """Convert to a tensor; raise for unsigned dtypes, which have no differences."""
    x = convert(image)
    if x.dtype.is_unsigned:
        raise DTypeError(
            f"{function}: expected floats or signed integers, because differences "
            f"can be negative; received {x.dtype}"
        )
    return x


def adjust_gamma(
    image: TensorLike, gamma: TensorLike = 1, gain: TensorLike = 1
) -> Tensor:
    """Compute gain * x ** gamma, in the scale of [0, 1]."""
    return _apply_to_floats(image, lambda x: gain * ops.power(x, gamma))


def total_variation(images: TensorLike, name: str | None = None) -> Tensor:
    """Sum the absolute differences between neighbours, for each image."""
    x = _require_signed("total_variation", images)
    down = ops.absolute(x[..., 1:, :, :] - x[..., :-1, :, :])
    right = ops.absolute(x[..., 1:, :] - x[..., :-1, :])
    return ops.sum(down, (-3, -2, -1)) + ops.sum(right, (-3, -2, -1))


make_operations(__name__)

# Modules that import this one.
_OF_OTHERS = ("image_boxes", "image_distortion", "image_random", "suppression")


def __getattr__(name: str) -> Any:
    for module in () if name.startswith("__") else _OF_OTHERS:
        members = vars(import_module(f"toolkit.compat.tensorflow.{module}"))
        if name in members["__all__"]:
            return members[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    lazy_names = (
        import_module(f"toolkit.compat.tensorflow.{module}").__all__
        for module in _OF_OTHERS
    )
    return sorted({*globals(), *chain.from_iterable(lazy_names)})
