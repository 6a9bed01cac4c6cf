"""Images as files, as Pillow images and as arrays, as in `keras.utils`."""

from __future__ import annotations

import io
import os
import struct
import zlib
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit import ops
from toolkit.console.frames import warn
from toolkit.dtypes import is_float
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    ImageFileError,
    MissingDataError,
    ShapeError,
    unknown_choice,
)
from toolkit.files.writing import named_write_errors
from toolkit.reading.file_errors import check_regular_file
from toolkit.reading.images import import_pillow, open_image
from toolkit.settings import floatx, standardize_data_format
from toolkit.type_aliases import Array, DTypeLike

MODES = {"grayscale": ("L", "I;16", "I"), "rgb": ("RGB",), "rgba": ("RGBA",)}
_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "hamming", "box", "lanczos")


def load_img(
    path: Any,
    color_mode: str = "rgb",
    target_size: Any = None,
    interpolation: str = "nearest",
    keep_aspect_ratio: bool = False,
) -> Any:
    """Return the image in a file, as a Pillow image.

    Formats are BMP, GIF, JPEG, PNG, PPM, TIFF and WebP, independent of the file name.

    Args:
        path: path of a file, or a file that is open for reading bytes.
        color_mode: "grayscale", "rgb" or "rgba".
        target_size: (height, width) to resize to; None: no resizing.
        interpolation: "nearest", "bilinear", "bicubic", "hamming", "box" or "lanczos".
        keep_aspect_ratio: whether to crop to the aspect ratio of `target_size` instead
            of stretching.

    Returns:
        A PIL.Image.Image.

    Raises:
        ImageFileError: the file has another format, is corrupt, or has more pixels than
            `PIL.Image.MAX_IMAGE_PIXELS`.

    Example:
        >>> from toolkit.utils import load_img
        >>> image = load_img("photo.jpg", target_size=(224, 224))  # doctest: +SKIP
    """
    resampling = import_pillow("load_img").Resampling
    if color_mode not in MODES:
        raise unknown_choice("load_img: color_mode", color_mode, MODES)
    name = "the file"
    if isinstance(path, (str, bytes, os.PathLike)):
        name = os.fsdecode(path)
        check_regular_file(name, ImageFileError, MissingDataError)
        with open(path, "rb") as file:
            path = io.BytesIO(file.read())
    elif not hasattr(path, "read"):
        raise ArgumentTypeError(
            f"load_img: path should be path-like or an open file; received {path!r}"
        )
    image = open_image(path, f"load_img: {name}")
    modes = MODES[color_mode]
    if image.mode not in modes:
        image = image.convert(modes[0])
    if target_size is None or image.size == (target_size[1], target_size[0]):
        return image
    if interpolation not in _INTERPOLATIONS:
        raise unknown_choice("load_img: interpolation", interpolation, _INTERPOLATIONS)
    method = getattr(resampling, interpolation.upper())
    width, height = size = target_size[1], target_size[0]
    if not keep_aspect_ratio:
        return image.resize(size, method)
    crop_size = (
        min(image.size[0], image.size[1] * width // height),
        min(image.size[1], image.size[0] * height // width),
    )
    left, top = (
        (n - crop_extent) // 2
        for n, crop_extent in zip(image.size, crop_size, strict=True)
    )
    box = (left, top, left + crop_size[0], top + crop_size[1])
    return image.resize(size, method, box=box)


def img_to_array(
    img: Any, data_format: Any = None, dtype: DTypeLike | None = None
) -> Array:
    """Convert a Pillow image to an array.

    Args:
        img: a PIL.Image.Image, or anything else with 2 or 3 axes.
        data_format: "channels_last", "channels_first", or None for the global default.
        dtype: dtype of the result; floatx if None.

    Returns:
        (height, width, channels), or (channels, height, width) if channels first.

    Example:
        >>> import numpy as np
        >>> from toolkit.utils import img_to_array
        >>> img_to_array(np.zeros((4, 6))).shape
        (4, 6, 1)
    """
    data_format = standardize_data_format(data_format)
    array = np.asarray(img, dtype=dtype or floatx())
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3:
        raise ShapeError(
            f"img_to_array: Unsupported image shape: {array.shape}; expected 2 or 3 "
            "axes"
        )
    return array.transpose(2, 0, 1) if data_format == "channels_first" else array


def array_to_img(
    x: Any, data_format: Any = None, scale: bool = True, dtype: DTypeLike | None = None
) -> Any:
    """Convert an array to a Pillow image.

    Args:
        x: (height, width, channels) with 1, 3 or 4 channels.
        data_format: "channels_last", "channels_first", or None for the global default.
        scale: whether to map the minimum to 0 and the maximum to 255.
        dtype: dtype of the computation; floatx if None.

    Returns:
        A PIL.Image.Image of mode "L" ("I" if values exceed 255), "RGB" or "RGBA".

    Example:
        >>> import numpy as np
        >>> from toolkit.utils import array_to_img
        >>> image = array_to_img(np.zeros((4, 6, 3)))  # doctest: +SKIP
        >>> image.size  # doctest: +SKIP
        (6, 4)
    """
    return import_pillow("array_to_img").fromarray(
        _convert_to_pixels(x, data_format, scale, dtype)
    )


def _convert_to_pixels(
    x: Array, data_format: str | None, scale: bool, dtype: DTypeLike | None = None
) -> NDArray[np.integer[Any]]:
    """Return (height, width) or (height, width, 3 or 4): uint8, or int32 beyond 255."""
    array = np.asarray(x, dtype=dtype or floatx())
    if array.ndim != 3:
        raise ShapeError(
            "array_to_img: Expected image array to have rank 3 (single image); "
            f"received shape {array.shape}"
        )
    if standardize_data_format(data_format) == "channels_first":
        array = array.transpose(1, 2, 0)
    if scale:
        array = array - array.min()
        # in this order, the result is at most 255
        array = array / (array.max() or 1) * 255
    channels = array.shape[2]
    if channels not in (1, 3, 4):
        raise ArgumentError(
            f"array_to_img: Unsupported channel number: expected 1, 3 or 4; received "
            f"{channels}"
        )
    if channels == 1:
        needs_int32 = array.max() > 255
        return array[..., 0].astype("int32" if needs_int32 else "uint8")
    return array.astype("uint8")


def save_img(
    path: Any,
    x: Any,
    data_format: Any = None,
    file_format: str | None = None,
    scale: bool = True,
    **kwargs: Any,
) -> None:
    """Write an array as an image file; 8-bit PNG files do not need Pillow.

    Args:
        path: path of the file, or a file that is open for writing bytes.
        x: (height, width, channels) with 1, 3 or 4 channels.
        data_format: "channels_last", "channels_first", or None for the global default.
        file_format: for example "png"; None: the extension of the file name.
        scale: whether to map the minimum to 0 and the maximum to 255.
        **kwargs: arguments of `PIL.Image.Image.save`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from toolkit.utils import save_img
        >>> path = Path(tempfile.mkdtemp()) / "black.png"
        >>> save_img(path, np.zeros((4, 6, 3)), scale=False)
        >>> path.exists()
        True
    """
    if file_format is None and isinstance(path, (str, os.PathLike)):
        file_format = os.path.splitext(path)[1][1:]
    file_format = (file_format or "").lower().replace("jpg", "jpeg") or None
    pixels = _convert_to_pixels(x, data_format, scale)
    is_simple = file_format == "png" and pixels.dtype == "uint8" and not kwargs
    if is_simple and not _has_pillow():
        with _named_errors(path):
            return _write_png(path, pixels)
    image = import_pillow("save_img").fromarray(pixels)
    if image.mode == "RGBA" and file_format == "jpeg":
        warn(
            "save_img: The JPEG format does not support RGBA images, converting to RGB."
        )
        image = image.convert("RGB")
    with _named_errors(path):
        image.save(path, format=file_format, **kwargs)


def _named_errors(path: object) -> AbstractContextManager[None]:
    """Return a context whose errors name the path; a file object has none."""
    if isinstance(path, (str, os.PathLike)):
        return named_write_errors(path)
    return nullcontext()


def _has_pillow() -> bool:
    try:
        import_pillow("save_img")
    except ImportError:
        return False
    return True


def _write_png(path: Any, pixels: Array) -> None:
    """Write uint8 pixels, (height, width) or (height, width, 3 or 4).

    Reference: https://www.w3.org/TR/png-3/
    """
    height, width = pixels.shape[:2]
    color = {(): 0, (3,): 2, (4,): 6}[pixels.shape[2:]]
    # The byte before each row is its filter: 0, none.
    rows = np.insert(pixels.reshape(height, -1), 0, 0, axis=1)
    content = b"\x89PNG\r\n\x1a\n"
    for name, data in (
        (b"IHDR", struct.pack(">2I5B", width, height, 8, color, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    ):
        checksum = zlib.crc32(name + data)
        content += struct.pack(">I", len(data)) + name + data
        content += struct.pack(">I", checksum)
    if hasattr(path, "write"):
        path.write(content)
    else:
        Path(path).write_bytes(content)


def smart_resize(
    x: Any,
    size: Any,
    interpolation: str = "bilinear",
    data_format: str = "channels_last",
) -> Any:
    """Resize images, cropped at both sides so that nothing is stretched.

    Args:
        x: (height, width, channels), or a batch of images.
        size: (height, width) of the result.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5".
        data_format: "channels_last" or "channels_first".

    Returns:
        A NumPy array if x is one, or a tensor; integers become floatx, except with
        "nearest".

    Example:
        >>> import numpy as np
        >>> from toolkit.utils.images import smart_resize
        >>> smart_resize(np.ones((34, 50, 3)), (20, 20)).shape
        (20, 20, 3)
    """
    if len(size) != 2:
        raise ArgumentError(
            "smart_resize: Expected `size` to be a tuple of 2 integers; received "
            f"{size}"
        )
    if np.ndim(x) not in (3, 4):
        raise ShapeError(
            "smart_resize: Expected an image array with shape (height, width, channels)"
            f" or (batch, height, width, channels); received shape {np.shape(x)}"
        )
    pixels = ops.convert_to_tensor(x)
    if interpolation != "nearest" and not is_float(pixels.dtype):
        # so that interpolated pixels are not rounded
        pixels = ops.cast(pixels, floatx())
    y = ops.image.resize(
        pixels,
        tuple(size),
        interpolation=interpolation,
        crop_to_aspect_ratio=True,
        data_format=data_format,
    )
    return np.array(y) if isinstance(x, np.ndarray) else y
