"""Datatype and dataspace messages of HDF5 files."""

from __future__ import annotations

import struct
from typing import NamedTuple

_MAX_AXES = 32
# Size -> bit fields of an IEEE 754 number.
_FLOATS = {
    2: (0, 16, 10, 5, 0, 10, 15),
    4: (0, 32, 23, 8, 0, 23, 127),
    8: (0, 64, 52, 11, 0, 52, 1023),
}


class UnverifiableFile(Exception):
    """Error for a structure that is not verified as harmless."""


class ElementType(NamedTuple):
    """Element size; whether the element is a reference; bytes read."""

    size: int
    is_variable: bool
    length: int


def parse_datatype(data: bytes) -> ElementType:
    """Return the type that a message describes.

    Raises:
        UnverifiableFile: the type is not a number, boolean or string.
    """
    if len(data) < 8:
        raise UnverifiableFile("a type is truncated")
    version, kind = divmod(data[0], 16)
    flags = int.from_bytes(data[1:4], "little")
    (size,) = struct.unpack_from("<I", data, 4)
    if version not in (1, 2, 3):
        raise UnverifiableFile(f"unsupported type version {version}")
    try:
        return _TYPES[kind](data, size, flags, version)
    except (KeyError, struct.error):
        raise UnverifiableFile(f"unsupported type of kind {kind}") from None


def _parse_integer(data: bytes, size: int, flags: int, version: int) -> ElementType:
    if size not in (1, 2, 4, 8) or struct.unpack_from("<HH", data, 8) != (0, 8 * size):
        raise UnverifiableFile("unsupported size of integers")
    if flags & ~0b1001:
        raise UnverifiableFile("unsupported format of integers")
    return ElementType(size, False, 12)


def _parse_float(data: bytes, size: int, flags: int, version: int) -> ElementType:
    fields = struct.unpack_from("<HHBBBBI", data, 8)
    if size not in _FLOATS or fields != _FLOATS[size]:
        raise UnverifiableFile("unsupported format of floating-point numbers")
    if flags & 0xFF & ~1 != 0x20 or flags >> 8 != 8 * size - 1:
        raise UnverifiableFile("unsupported format of floating-point numbers")
    return ElementType(size, False, 20)


def _parse_string(data: bytes, size: int, flags: int, version: int) -> ElementType:
    if not 0 < size <= 1 << 20 or flags & 0xF > 2 or flags >> 4 > 1:
        raise UnverifiableFile("unsupported format of strings")
    return ElementType(size, False, 8)


def _parse_opaque(data: bytes, size: int, flags: int, version: int) -> ElementType:
    """Parse an opaque type, for example of bfloat16."""
    tag = flags & 0xFF
    if not 0 < size <= 64 or tag % 8 or len(data) < 8 + tag:
        raise UnverifiableFile("unsupported format of bytes")
    return ElementType(size, False, 8 + tag)


def _parse_enumeration(data: bytes, size: int, flags: int, version: int) -> ElementType:
    """Parse an enumeration: h5py's booleans."""
    base = parse_datatype(data[8:])
    if base.size != size or base.is_variable or not 0 < flags <= 256:
        raise UnverifiableFile("unsupported numbers of an enumeration")
    offset = 8 + base.length
    for _ in range(flags):
        end = data.index(b"\0", offset) + 1 if b"\0" in data[offset:] else -1
        if end < 0:
            raise UnverifiableFile("names are truncated")
        offset = end if version == 3 else offset + -(-(end - offset) // 8) * 8
    if offset + flags * size > len(data):
        raise UnverifiableFile("names are truncated")
    return ElementType(size, False, offset + flags * size)


def _parse_variable_length(
    data: bytes, size: int, flags: int, version: int
) -> ElementType:
    """Parse a variable-length type; an element has the address of its value."""
    base = parse_datatype(data[8:])
    if base.is_variable or size != 16 or flags & 0xF > 1:
        raise UnverifiableFile("unsupported length of elements")
    return ElementType(size, True, 8 + base.length)


_TYPES = {
    0: _parse_integer,
    1: _parse_float,
    3: _parse_string,
    5: _parse_opaque,
    8: _parse_enumeration,
    9: _parse_variable_length,
}


def parse_extents(data: bytes) -> list[int]:
    """Return the extents that a message describes; empty for a scalar.

    Raises:
        UnverifiableFile: the message has another version, or too many axes.
    """
    version, rank, flags = struct.unpack_from("<BBB", data.ljust(4, b"\0"))
    if version not in (1, 2) or rank > _MAX_AXES or flags > 1:
        raise UnverifiableFile(f"unsupported version of extents {version}")
    if version == 2 and data[3] != (1 if rank else 0):
        raise UnverifiableFile("no extents")
    start = 8 if version == 1 else 4
    end = start + 8 * rank * (2 if flags else 1)
    if end > len(data):
        raise UnverifiableFile("extents are truncated")
    shape = list(struct.unpack_from(f"<{rank}Q", data, start))
    if any(n >= 2**48 for n in shape):
        raise UnverifiableFile("extents exceed the memory of all machines")
    return shape
