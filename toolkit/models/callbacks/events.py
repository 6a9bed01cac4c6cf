"""Event files for TensorBoard: numbers, histograms, images and texts.

This module encodes the messages itself: event.proto, summary.proto and tensor.proto of
https://github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.data.records import write_record
from toolkit.type_aliases import Array

_BINS = 30
_STRING = 7  # the enum value of the string type
_MODES = {1: 0, 3: 2, 4: 6}  # channels -> the color type of a PNG file


class EventWriter:
    """Writer that appends events to a new file in a folder.

    Args:
        folder: the folder; it is created.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{os.getpid()}."
        self._file = (folder / (name + os.urandom(4).hex())).open("wb")
        self._write(_text(3, "brain.Event:2"))

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Add a number."""
        self._value(tag, _packed(2, "<f", float(value)), step)

    def histogram(self, tag: str, values: Any, step: int) -> None:
        """Add a histogram of the finite numbers in an array."""
        flat = np.asarray(values, "float64").ravel()
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return
        counts, edges = np.histogram(flat, _BINS)
        numbers = (flat.min(), flat.max(), flat.size, flat.sum(), (flat**2).sum())
        message = b"".join(_packed(i, "<d", x) for i, x in enumerate(numbers, 1))
        for field, array in ((6, edges[1:]), (7, counts)):
            message += _bytes(field, array.astype("<f8").tobytes())
        self._value(tag, _bytes(5, message), step)

    def image(self, tag: str, pixels: Any, step: int) -> None:
        """Add an image: floats in [0, 1], shape (height, width, channels)."""
        pixels = np.clip(np.asarray(pixels, "float64") * 255, 0, 255).astype("uint8")
        sizes = b"".join(_number(i, n) for i, n in enumerate(pixels.shape, 1))
        self._value(tag, _bytes(4, sizes + _bytes(4, _png(pixels))), step)

    def text(self, tag: str, text: str, step: int) -> None:
        """Add a text, which is shown as Markdown."""
        shape = _bytes(2, _bytes(2, _number(1, 1)))
        tensor = _number(1, _STRING) + shape + _text(8, text)
        plugin = _bytes(9, _bytes(1, _text(1, "text")))
        self._value(tag, plugin + _bytes(8, tensor), step)

    def flush(self) -> None:
        """Flush the file, so that readers see all events."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _value(self, tag: str, content: bytes, step: int) -> None:
        summary = _bytes(1, _text(1, tag) + content)
        self._write(_number(2, step) + _bytes(5, summary))

    def _write(self, event: bytes) -> None:
        write_record(self._file, _packed(1, "<d", time.time()) + event)


# --- message fields -------------------------------------------------------------------


def _varint(number: int) -> bytes:
    """Encode a number as a varint: groups of seven bits, the lowest first."""
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*result, number])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _packed(field: int, form: str, value: float) -> bytes:
    kind = 1 if form == "<d" else 5
    return _varint(field << 3 | kind) + struct.pack(form, value)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _png(pixels: Array) -> bytes:
    """Encode uint8 pixels as a PNG file."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _MODES[channels], 0, 0, 0)
    # filter type 0 for each row
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))
    sections = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    )
    chunks = [
        struct.pack(">I", len(body))
        + kind
        + body
        + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in sections
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
