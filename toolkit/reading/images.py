"""Images: of known formats only, and not larger than Pillow thinks safe.

Pillow tells formats by the first bytes, not by a file's name, and hands some to other
programs, such as PostScript to Ghostscript.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np

from toolkit.errors import ImageFileError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


# Deflate, which PNG packs with, makes a byte of at most so many.
_MOST_PACKED = 1032


def pillow(function: str) -> Any:
    """The module PIL.Image, or an error that tells what to install."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"{function} needs Pillow: `pip install pillow`") from error
    return Image


def open_image(file: Any, label: str, draft: str | None = None) -> Any:
    """The picture in a file, the first of several, read as a whole.

    Args:
        file: a path, or a file that is open for reading bytes.
        label: what messages call it.
        draft: the mode that a JPEG's own decoder shall give it, if it can: "L".

    Raises:
        ImportError: there is no Pillow.
        ImageFileError: it is of no format in `FORMATS`, is damaged, or has more than
            `PIL.Image.MAX_IMAGE_PIXELS` pixels.
    """
    Image = pillow(label)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(file, formats=FORMATS)
            _check_length(image, file)
            if draft is not None:
                image.draft(draft, image.size)
            image.load()
        return image
    except FileNotFoundError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageFileError(
            f"{label}: {error}; PIL.Image.MAX_IMAGE_PIXELS sets the limit"
        ) from None
    except Exception as error:  # decoders raise anything
        raise _damaged(error, label) from error


def open_frames(image: Any, label: str) -> list[Any]:
    """All pictures in a file, in RGB.

    Args:
        image: of `open_image`.
        label: what messages call it.

    Raises:
        ImageFileError: one is damaged, or all have more than eight times
            `PIL.Image.MAX_IMAGE_PIXELS` pixels.
    """
    most = 8 * (pillow(label).MAX_IMAGE_PIXELS or sys.maxsize)
    found = []
    try:
        for index in range(getattr(image, "n_frames", 1)):
            if (index + 1) * image.width * image.height > most:
                raise ValueError(f"its pictures have more than {most:,} pixels")
            image.seek(index)
            found.append(image.convert("RGB"))
    except Exception as error:  # decoders raise anything
        raise _damaged(error, label) from error
    return found


def upper_bits(image: Any) -> Any:
    """The upper 8 of 16 bits of a grey picture's pixels: (height, width), uint8."""
    return (np.asarray(image).astype("uint16") >> 8).astype("uint8")


def _damaged(error: Exception, label: str) -> ImageFileError:
    return ImageFileError(
        f"{label}: expected an image, one of {', '.join(FORMATS)}, that is whole; "
        f"reading it failed ({type(error).__name__}: {error})"
    )


def _check_length(image: Any, file: Any) -> None:
    """Raise for a PNG that is far too short for its pixels, before they have memory."""
    bits = 8 * len(image.getbands()) if image.mode not in ("1", "L", "P") else 1
    if image.format == "PNG":
        whole = image.width * image.height * bits // 8
        held = _length(file)
        if whole > _MOST_PACKED * held:
            raise ValueError(
                f"{image.width} x {image.height} pixels cannot be in {held:,} bytes"
            )


def _length(file: Any) -> int:
    """The bytes of a path or of an open file."""
    if not hasattr(file, "seek"):
        return os.stat(file).st_size
    place = file.tell()
    length = int(file.seek(0, os.SEEK_END))
    file.seek(place)
    return length
