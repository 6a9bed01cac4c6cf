"""Image files: PNG, JPEG, GIF, BMP and WebP."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import refuse
from toolkit.compat.tensorflow.string_tensors import StringTensor, to_single_bytes
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import (
    ArgumentError,
    DTypeError,
    ImageFileError,
    ShapeError,
    UnsupportedError,
)
from toolkit.reading.images import import_pillow, open_frames, open_image, upper_bits
from toolkit.type_aliases import Array, DTypeLike, TensorLike

_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
_SEVERAL = ("GIF", "WEBP")  # can hold several images, and are a batch
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# Luma of red, green and blue in units of 1 / 32768, as libpng rounds them.
_BRIGHTNESS = np.array([9797, 19234, 3737])


def decode_image(
    contents: TensorLike,
    channels: int | None = None,
    dtype: DTypeLike = "uint8",
    name: str | None = None,
    expand_animations: bool = True,
) -> Tensor:
    """Decode a PNG, JPEG, GIF, BMP or WebP file: (height, width, channels).

    A GIF or WebP file is a batch of all its images.

    Args:
        contents: the bytes of the file.
        channels: 1, 3 or 4; None or 0 keeps the channels of the file, 3 for GIF and
            WebP.
        dtype: uint8, uint16, or a floating dtype, of values in [0, 1].
        expand_animations: whether a GIF is a batch; if not, its first image.
    """
    image = _decode(contents, "decode_image", _FORMATS, channels, dtype)
    return image[0] if image.ndim == 4 and not expand_animations else image


def decode_jpeg(
    contents: TensorLike,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """Decode a JPEG file, or another file of `decode_png`; uint8.

    Values can differ by a few units from TensorFlow, whose decoder has a larger
    rounding error.

    Args:
        contents: the bytes of the file.
        channels: 1 or 3; 0 keeps the channels of the file.
        ratio: only 1.
        fancy_upscaling: only True.
        try_recover_truncated: only False.
        acceptable_fraction: only 1.
        dct_method: only "".
    """
    refuse(
        "decode_jpeg",
        ratio=(ratio, 1),
        fancy_upscaling=(fancy_upscaling, True),
        try_recover_truncated=(try_recover_truncated, False),
        acceptable_fraction=(acceptable_fraction, 1),
        dct_method=(dct_method, ""),
    )
    return _decode_one(contents, "decode_jpeg", channels, "uint8")


def decode_png(
    contents: TensorLike,
    channels: int = 0,
    dtype: DTypeLike = "uint8",
    name: str | None = None,
) -> Tensor:
    """Decode a PNG file, or a JPEG or GIF file with one image.

    Args:
        contents: the bytes of the file.
        channels: 1, 3 or 4; 0 keeps the channels of the file.
        dtype: uint8 or uint16.
    """
    if dtypes.standardize(dtype) not in ("uint8", "uint16"):
        raise DTypeError(f"decode_png: expected uint8 or uint16; received {dtype}")
    return _decode_one(contents, "decode_png", channels, dtype)


def decode_bmp(
    contents: TensorLike, channels: int = 0, name: str | None = None
) -> Tensor:
    """Decode a BMP file; uint8; `channels`: 3, 4, or 0 for the channels of the file."""
    return _decode(contents, "decode_bmp", ("BMP",), channels, "uint8")


def decode_gif(contents: TensorLike, name: str | None = None) -> Tensor:
    """Decode the images of a GIF file, or the image of a PNG or JPEG file, as a batch;
    uint8."""
    image = _decode(contents, "decode_gif", ("GIF", "PNG", "JPEG"), 3, "uint8")
    return image if image.ndim == 4 else image[None]


def _decode_one(
    contents: TensorLike, function: str, channels: int, dtype: DTypeLike
) -> Tensor:
    image = _decode(contents, function, ("PNG", "JPEG", "GIF"), channels, dtype)
    if image.ndim == 4 and len(image) > 1:
        raise ArgumentError(
            f"{function}: expected one picture; received a GIF file with "
            f"{len(image)} images; use decode_gif or decode_image"
        )
    return image[0] if image.ndim == 4 else image


def _decode(
    contents: TensorLike,
    function: str,
    formats: tuple[str, ...],
    channels: int | None,
    dtype: DTypeLike,
) -> Tensor:
    """Return the pixels of one image, or of several, in a dtype."""
    data, dtype, count = (
        to_single_bytes(contents, function),
        dtypes.standardize(dtype),
        0,
    )
    count = int(channels or 0)
    if count not in (0, *_MODES):
        raise ArgumentError(
            f"{function}: channels: expected 0, 1, 3 or 4; received {channels}"
        )
    if dtype not in ("uint8", "uint16") and not dtypes.is_float(dtype):
        raise DTypeError(
            f"{function}: dtype: expected uint8, uint16 or a floating dtype; received "
            f"{dtype}"
        )
    image = open_image(io.BytesIO(data), function, "L" if count == 1 else None)
    if image.format not in formats:
        raise ImageFileError(
            f"{function}: expected a file of {', '.join(formats)}; received "
            f"{image.format}"
        )
    _check_channels(function, image.format, count)
    is_deep = image.format == "PNG" and data[24] == 16  # bits per sample
    if image.format in _SEVERAL:
        pixels = np.stack([np.asarray(x) for x in open_frames(image, function)])
    elif is_deep and dtype != "uint8":
        pixels = _to_uint16(function, image, count)
    else:
        pixels = _to_pixels(_restore_alpha(image, data), count)
    return _scale_dtype(pixels, dtype, image.format)


def _check_channels(function: str, kind: str, count: int) -> None:
    """Raise for a number of channels that TensorFlow does not support for a format."""
    minimum, maximum = {"JPEG": (1, 3), "BMP": (3, 4)}.get(kind, (1, 4))
    minimum, maximum = (3, 3) if kind in _SEVERAL else (minimum, maximum)
    if count and not minimum <= count <= maximum:
        allowed = sorted({0, *(n for n in _MODES if minimum <= n <= maximum)})
        raise ArgumentError(
            f"{function}: channels: expected one of {allowed} for {kind}; received "
            f"{count}"
        )


def _to_pixels(image: Any, count: int) -> Array:
    """Return (height, width, channels) of an image in uint8."""
    if image.mode.startswith("I"):  # 16 bits: keep the upper ones
        return _repeat_grey(upper_bits(image)[..., None], count)
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif image.mode not in ("L", "LA", "RGB", "RGBA"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    if count == 1 and image.mode[:3] == "RGB":
        return _compute_luma(np.asarray(image)[..., :3])
    if count:
        image = image.convert(_MODES[count])
    array = np.asarray(image)
    return array if array.ndim == 3 else array[..., None]


def _restore_alpha(image: Any, data: bytes) -> Any:
    """Return an image, with its alpha channel if it is a BMP with 32 bits per pixel."""
    if image.format != "BMP" or data[28] != 32 or any(data[30:34]):
        return image
    start, height = int.from_bytes(data[10:14], "little"), image.height
    rows = np.frombuffer(data, "uint8", 4 * image.width * height, start)
    rows = rows.reshape(height, image.width, 4)[..., [2, 1, 0, 3]]
    is_from_the_top = bool(data[25] & 128)  # a negative height
    return import_pillow("decode_bmp").fromarray(
        rows if is_from_the_top else rows[::-1]
    )


def _compute_luma(colours: Array) -> Array:
    """Convert colours to brightness as libpng: rounded down, and grey unchanged."""
    grey = (colours.astype("int64") @ _BRIGHTNESS) >> 15
    is_grey = (colours == colours[..., :1]).all(-1)
    return np.where(is_grey, colours[..., 0], grey).astype("uint8")[..., None]


def _to_uint16(function: str, image: Any, count: int) -> Array:
    """Return the pixels of an image with 16 bits, in uint16."""
    if not image.mode.startswith("I"):
        raise UnsupportedError(
            f"{function}: PNG files with 16 bits per sample support dtypes other "
            f"than uint8 only for grey images; received mode {image.mode}"
        )
    return _repeat_grey(np.asarray(image).astype("uint16")[..., None], count)


def _repeat_grey(grey: Array, count: int) -> Array:
    """Repeat a grey image to more channels."""
    colours = np.repeat(grey, {0: 1, 4: 3}.get(count, count), axis=-1)
    if count != 4:
        return colours
    opaque = np.full_like(grey, np.iinfo(grey.dtype).max)
    return np.concatenate([colours, opaque], axis=-1)


def _scale_dtype(pixels: Array, dtype: str, kind: str) -> Tensor:
    """Scale pixels to the full range of another dtype, or to [0, 1]."""
    if pixels.dtype == dtype:
        return convert(pixels)
    if dtype == "uint16":  # libpng repeats the byte; the other decoders shift bits
        return convert(pixels.astype("uint16") * (257 if kind == "PNG" else 256))
    highest = float(np.iinfo(pixels.dtype).max)
    return ops.cast(ops.cast(convert(pixels), "float32") / highest, dtype)


def is_jpeg(contents: TensorLike, name: str | None = None) -> Tensor:
    """Return whether bytes have the signature of a JPEG file."""
    return convert(to_single_bytes(contents, "is_jpeg")[:3] == b"\xff\xd8\xff")


# --- encoding -------------------------------------------------------------------------


def encode_png(
    image: TensorLike, compression: int = -1, name: str | None = None
) -> StringTensor:
    """Encode pixels as a PNG file.

    Args:
        image: (height, width, 1 to 4 channels) in uint8, or one channel in uint16.
        compression: 0 to 9: none to maximum; -1: automatic.
    """
    array = _validate_image("encode_png", image, (1, 2, 3, 4), ("uint8", "uint16"))
    if not -1 <= compression <= 9:
        raise ArgumentError(
            "encode_png: compression: expected a level in [-1, 9]; received "
            f"{compression}"
        )
    if array.dtype == "uint16" and array.shape[-1] > 1:
        raise UnsupportedError(
            "encode_png: only one channel is supported for uint16; received "
            f"{array.shape[-1]}"
        )
    options = {} if compression < 0 else {"compress_level": compression}
    return _encode(array, "PNG", options)


def encode_jpeg(
    image: TensorLike,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: str = "in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: str = "",
    name: str | None = None,
) -> StringTensor:
    """Encode pixels as a JPEG file.

    Args:
        image: (height, width, 1 or 3 channels) in uint8.
        format: "", or the name for the number of channels: "grayscale" or "rgb".
        quality: 0 to 100.
        progressive: whether to encode in passes of increasing quality.
        optimize_size: whether to search for the best code.
        chroma_downsampling: whether to store colours at half the resolution.
        density_unit: "in" or "cm", the unit of the densities.
        x_density, y_density: pixels per unit, for printing.
        xmp_metadata: only "".
    """
    array = _validate_image("encode_jpeg", image, (1, 3), ("uint8",))
    expected = "grayscale" if array.shape[-1] == 1 else "rgb"
    refuse("encode_jpeg", xmp_metadata=(xmp_metadata, ""))
    if format not in ("", expected):
        raise ArgumentError(
            f"encode_jpeg: format: expected {expected!r} for {array.shape[-1]} "
            f"channels; received {format!r}"
        )
    if not 0 <= quality <= 100:
        raise ArgumentError(
            f"encode_jpeg: quality: expected a number in [0, 100]; received {quality}"
        )
    if density_unit not in ("in", "cm"):
        raise ArgumentError(
            f"encode_jpeg: density_unit: expected 'in' or 'cm'; received "
            f"{density_unit!r}"
        )
    scale = 2.54 if density_unit == "cm" else 1
    options = {
        "quality": int(quality),
        "subsampling": "4:2:0" if chroma_downsampling else "4:4:4",
        "progressive": progressive,
        "optimize": optimize_size,
        "dpi": (round(x_density * scale), round(y_density * scale)),
    }
    return _encode(array, "JPEG", options)


def _validate_image(
    function: str, image: TensorLike, channels: tuple[int, ...], kinds: tuple[str, ...]
) -> Array:
    """Return the validated pixels of one image as an array."""
    array = np.asarray(convert(image))
    if array.ndim != 3 or array.shape[-1] not in channels:
        raise ShapeError(
            f"{function}: expected one picture (height, width, channels) with "
            f"{' or '.join(map(str, channels))} channels; received {array.shape}"
        )
    if array.dtype not in kinds:
        raise DTypeError(
            f"{function}: expected pixels of {' or '.join(kinds)}; received "
            f"{array.dtype}"
        )
    return array


def _encode(array: Any, kind: str, options: dict[str, Any]) -> StringTensor:
    picture = import_pillow(f"encode_{kind.lower()}").fromarray(
        array[..., 0] if array.shape[-1] == 1 else array
    )
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return StringTensor(file.getvalue())
