"""Protocol Buffers' wire format, parsed without copies.

The parser counts fields while it reads. A parser that creates an object for every two
bytes could use fifty times the file size before a check.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.errors import ModelFileError
from toolkit.type_aliases import Array

MAX_FIELDS = 2_000_000  # of a file, except elements of packed lists
_MESSAGE = 10  # a message counts as this number of fields
MAX_DEPTH = 100  # nesting depth, as in Google's parsers
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WORD = 1 << 64

Field = tuple[int, Any]


class FieldParser:
    """Parser that limits the number of fields in a file."""

    def __init__(self) -> None:
        self.remaining_fields = MAX_FIELDS

    def fields(self, data: memoryview) -> Iterator[Field]:
        """Yield (number, value) of each field of a message.

        A value is an int, or a memoryview for a length-delimited field. Fixed numbers
        of 4 and 8 bytes are also memoryviews.
        """
        offset, end = 0, len(data)
        self.remaining_fields -= _MESSAGE
        while offset < end:
            self.remaining_fields -= 1
            if self.remaining_fields < 0:
                raise ModelFileError(f"the file has more than {MAX_FIELDS:,} fields")
            key, offset = _read_varint(data, offset)
            number, kind = key >> 3, key & 7
            if number == 0 or number >= 1 << 29:
                raise ModelFileError("it is corrupt: a field has an invalid number")
            if kind == _VARINT:
                value, offset = _read_varint(data, offset)
                yield number, value
                continue
            if kind == _BYTES:
                size, offset = _read_varint(data, offset)
            elif kind in (_FIXED32, _FIXED64):
                size = 4 if kind == _FIXED32 else 8
            else:
                raise ModelFileError(f"it is corrupt: unsupported field type {kind}")
            if size > end - offset:
                raise ModelFileError(
                    f"it is truncated or corrupt: a field of {size:,} bytes, but the "
                    f"file contains {end - offset:,} "
                )
            yield number, data[offset : offset + size]
            offset += size


def _read_varint(data: memoryview, offset: int) -> tuple[int, int]:
    """Return the varint at an offset, and the offset of its end."""
    value = shift = 0
    while shift < 70:
        if offset >= len(data):
            raise ModelFileError(
                "it is truncated or corrupt: a number without a last byte"
            )
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _WORD, offset
        shift += 7
    raise ModelFileError("it is corrupt: a number of more than ten bytes")


def to_signed(value: int) -> int:
    """Return the signed int64 for 64 bits."""
    return value - _WORD if value >> 63 else value


def unpack_integers(data: memoryview) -> Array:
    """Return the int64 numbers of a packed list."""
    octets = np.frombuffer(data, np.uint8)
    if not octets.size:
        return np.zeros(0, np.int64)
    is_last = octets < 0x80
    if not is_last[-1]:
        raise ModelFileError("it is truncated or corrupt: a number without a last byte")
    starts = np.flatnonzero(np.concatenate(([True], is_last[:-1])))
    lengths = np.diff(np.append(starts, octets.size))
    if lengths.max() > 10:
        raise ModelFileError("it is corrupt: a number of more than ten bytes")
    if lengths.max() == 1:
        return octets.astype(np.int64)
    byte_indices = np.arange(octets.size) - np.repeat(starts, lengths)
    bits = (octets & 0x7F).astype(np.uint64) << (7 * byte_indices).astype(np.uint64)
    return np.add.reduceat(bits, starts).view(np.int64)


def unpack_numbers(data: memoryview, dtype: str) -> Array:
    """Return the fixed-size numbers of a packed list."""
    if len(data) % np.dtype(dtype).itemsize:
        raise ModelFileError("it is corrupt: half a number at the end of a list")
    return np.frombuffer(data, dtype)
