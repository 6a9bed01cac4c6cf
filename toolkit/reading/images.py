"""Image reader for known formats, with Pillow's size limit.

Pillow detects a format by the first bytes, not by the file name, and passes some
formats to other programs, such as PostScript to Ghostscript.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np

from toolkit.errors import ImageFileError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


# Maximum compression ratio of deflate, which PNG uses.
_MAX_RATIO = 1032


def import_pillow(function: str) -> Any:
    """Import PIL.Image and return it, or raise an error with the package to install."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"{function} needs Pillow: `pip install pillow`") from error
    return Image


def open_image(file: Any, label: str, draft: str | None = None) -> Any:
    """Read the first picture in a file.

    Args:
        file: a path, or a file open for binary reading.
        label: the name of the file in messages.
        draft: the mode of the JPEG decoder, if supported: "L".

    Raises:
        ImportError: Pillow is missing.
        ImageFileError: the format is not in `FORMATS`, the file is corrupt, or it has
            more than `PIL.Image.MAX_IMAGE_PIXELS` pixels.
    """
    Image = import_pillow(label)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(file, formats=FORMATS)
            _check_file_size(image, file)
            if draft is not None:
                image.draft(draft, image.size)
            image.load()
        return image
    except FileNotFoundError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageFileError(
            f"{label}: {error}; to change the limit, set PIL.Image.MAX_IMAGE_PIXELS"
        ) from None
    except Exception as error:  # decoders can raise any error
        raise _corrupt_image_error(error, label) from error


def open_frames(image: Any, label: str) -> list[Any]:
    """Read all pictures in a file, in RGB.

    Args:
        image: the result of `open_image`.
        label: the name of the file in messages.

    Raises:
        ImageFileError: a picture is corrupt, or all have more than eight times
            `PIL.Image.MAX_IMAGE_PIXELS` pixels in total.
    """
    max_pixels = 8 * (import_pillow(label).MAX_IMAGE_PIXELS or sys.maxsize)
    frames = []
    try:
        for index in range(getattr(image, "n_frames", 1)):
            if (index + 1) * image.width * image.height > max_pixels:
                raise ValueError(f"its frames have more than {max_pixels:,} pixels")
            image.seek(index)
            frames.append(image.convert("RGB"))
    except Exception as error:  # decoders can raise any error
        raise _corrupt_image_error(error, label) from error
    return frames


def upper_bits(image: Any) -> Any:
    """Return the upper 8 of 16 bits of a grey picture: (height, width), uint8."""
    return (np.asarray(image).astype("uint16") >> 8).astype("uint8")


def _corrupt_image_error(error: Exception, label: str) -> ImageFileError:
    return ImageFileError(
        f"{label}: expected an image, one of {', '.join(FORMATS)}, that is complete; "
        f"the read failed ({type(error).__name__}: {error})"
    )


def _check_file_size(image: Any, file: Any) -> None:
    """Raise an error for a PNG too short for its pixels, before their allocation."""
    bits = 8 * len(image.getbands()) if image.mode not in ("1", "L", "P") else 1
    if image.format == "PNG":
        raw_size = image.width * image.height * bits // 8
        file_size = _file_size(file)
        if raw_size > _MAX_RATIO * file_size:
            raise ValueError(
                f"{image.width} x {image.height} pixels do not fit {file_size:,} bytes"
            )


def _file_size(file: Any) -> int:
    """Return the size of a path or of an open file in bytes."""
    if not hasattr(file, "seek"):
        return os.stat(file).st_size
    offset = file.tell()
    length = int(file.seek(0, os.SEEK_END))
    file.seek(offset)
    return length
