"""TFRecord format: the records of TensorFlow's record files and event files.

A record is its length (8 bytes), a checksum of the length, the data, and a checksum of
the data. Numbers are little-endian. A checksum is a masked CRC-32C. The mask (a
rotation and an addition) avoids problems with data that contains checksums:
https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import IO, Any, BinaryIO

import numpy as np

from toolkit.errors import ArgumentError, unknown_choice
from toolkit.files.writing import named_write_errors
from toolkit.reading.decompression import read_exactly
from toolkit.type_aliases import Array

_POLYNOMIAL = 0x82F63B78  # of Castagnoli, reversed bit order
HEADER_SIZE = 12  # bytes: the length of a record and its checksum
RECORD_OVERHEAD = HEADER_SIZE + 4  # bytes of a record in addition to its data
_MAX_LOOP_SIZE = 512  # bytes: a Python loop is faster for shorter data


class RecordError(ValueError):
    """Error for a record that is corrupt or truncated."""


@cache
def _table() -> list[int]:
    """Return the CRC lookup table for each byte."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


@cache
def _table_array() -> Array:
    return np.array(_table(), np.uint32)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of data.

    Example:
        >>> from toolkit.data.records import crc32c
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """
    if len(data) >= _MAX_LOOP_SIZE:
        return _long_crc32c(data)
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _long_crc32c(data: bytes) -> int:
    """Compute the CRC of many segments in parallel, then combine them.

    A CRC is linear over bits. The CRC of two segments is the CRC of the first, shifted
    by the length of the second, XOR the CRC of the second.
    """
    lanes = 1 << (len(data).bit_length() // 2 + 1)
    steps = -(-len(data) // lanes)
    padded = np.zeros(lanes * steps, np.uint8)
    start = padded.size - len(data)  # leading zeros change nothing
    padded[start:] = np.frombuffer(data, np.uint8)
    padded[start : start + 4] ^= 0xFF  # the initial value of a CRC
    crc, table = np.zeros(lanes, np.uint32), _table_array()
    for column in np.ascontiguousarray(padded.reshape(lanes, steps).T):
        crc = table[(crc ^ column) & 0xFF] ^ crc >> 8
    while len(crc) > 1:
        crc = _apply_linear_map(_zero_bytes_map(steps), crc[0::2]) ^ crc[1::2]
        steps *= 2
    return int(crc[0]) ^ 0xFFFFFFFF


def _apply_linear_map(columns: Array, crc: Array) -> Array:
    """Apply a linear map of 32 bits, given by the image of each bit."""
    result = np.zeros_like(crc)
    for bit in range(32):
        result ^= np.where(crc >> np.uint32(bit) & 1, columns[bit], 0).astype(np.uint32)
    return result


@lru_cache(256)
def _zero_bytes_map(count: int) -> Array:
    """Return the linear map of a CRC over this number of zero bytes."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if count == 0:
        return bits
    half = _zero_bytes_map(count // 2)
    moved = _apply_linear_map(half, half)
    return _table_array()[moved & 0xFF] ^ moved >> 8 if count % 2 else moved


def masked_crc32c(data: bytes) -> int:
    """Return the masked CRC-32C of data."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def write_record(file: BinaryIO, data: bytes) -> None:
    """Append one record to a file."""
    length = struct.pack("<Q", len(data))
    file.write(length + struct.pack("<I", masked_crc32c(length)))
    file.write(data + struct.pack("<I", masked_crc32c(data)))


def read_record(file: IO[bytes], limit: int | None = None) -> bytes | None:
    """Read the next record of a file; return None at its end.

    Args:
        file: a file open for binary reading.
        limit: the maximum record size in bytes; None means no limit.
    """
    head = file.read(12)
    if not head:
        return None
    if len(head) < 12:
        raise RecordError("the file is truncated inside of a record's length")
    length, checksum = struct.unpack("<QI", head)
    if masked_crc32c(head[:8]) != checksum:
        raise RecordError("the checksum of the record's length is wrong")
    data = read_exactly(file, length + 4, limit)
    if len(data) < length + 4:
        raise RecordError(
            f"the file is truncated: the record has {length:,} bytes, but only "
            f"{len(data):,} remain"
        )
    if masked_crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise RecordError("the checksum of the record is wrong")
    return data[:-4]


def split_records(data: bytes) -> list[bytes]:
    """Return the records in consecutive bytes, with their lengths and checksums."""
    records, start = [], 0
    while start < len(data):
        length = int.from_bytes(data[start : start + 8], "little")
        end = start + length + RECORD_OVERHEAD
        records.append(data[start:end])
        start = end
    return records


def are_valid_headers(headers: Sequence[bytes]) -> list[bool]:
    """Return for each header whether its checksum is correct."""
    joined = b"".join(header.ljust(HEADER_SIZE, b"\0") for header in headers)
    columns = np.frombuffer(joined, np.uint8).reshape(-1, HEADER_SIZE)
    crc, table = np.full(len(headers), 0xFFFFFFFF, np.uint32), _table_array()
    for column in columns.T[:8]:
        crc = table[(crc ^ column) & 0xFF] ^ crc >> 8
    crc ^= np.uint32(0xFFFFFFFF)
    masked = (crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)
    expected = np.ascontiguousarray(columns[:, 8:]).view("<u4").ravel()
    is_full = np.array([len(header) == HEADER_SIZE for header in headers], bool)
    return ((masked == expected) & is_full).tolist()


class _Deflated:
    """Writer of a zlib-compressed file."""

    def __init__(self, path: Any, level: int) -> None:
        # Imported late, as gzip below.
        import zlib

        self._file: Any = open(path, "wb")
        self._packer = zlib.compressobj(level)
        self._sync: int = zlib.Z_SYNC_FLUSH

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(self._packer.compress(data))

    def flush(self) -> None:
        """Flush all bytes to the operating system."""
        self._file.write(self._packer.flush(self._sync))
        self._file.flush()

    def close(self) -> None:
        """Finish the file; a second call does nothing."""
        if not self._file.closed:
            self._file.write(self._packer.flush())
            self._file.close()


def _open_for_writing(path: Any, compression: str | None, level: int) -> Any:
    """Open a file for records."""
    with named_write_errors(path):
        if compression == "GZIP":
            # Imported late: TensorBoard event files, which `fit` can write, need no
            # gzip.
            import gzip

            return gzip.open(path, "wb", _DEFAULT_LEVEL if level < 0 else level)
        return _Deflated(path, level) if compression == "ZLIB" else open(path, "wb")


_DEFAULT_LEVEL = 9  # default compression level of gzip
_COMPRESSIONS = (None, "", "GZIP", "ZLIB")


class TFRecordWriter:
    """Writer of records to a file.

    Args:
        path: the path of the file, which is overwritten.
        options: "GZIP" or "ZLIB", or None for no compression.
        compression_level: from 0, the fastest, to 9, the smallest file; -1 for the
            default.

    Example:
        >>> import tempfile
        >>> from toolkit.data import TFRecordWriter
        >>> with tempfile.NamedTemporaryFile() as file, TFRecordWriter(file.name) as w:
        ...     w.write(b"data")
    """

    def __init__(
        self, path: Any, options: str | None = None, compression_level: int = -1
    ) -> None:
        if options not in _COMPRESSIONS:
            raise unknown_choice("TFRecordWriter: options", options, _COMPRESSIONS)
        if not -1 <= compression_level <= 9:
            raise ArgumentError(
                "TFRecordWriter: expected a compression_level from -1 to 9; received "
                f"{compression_level}"
            )
        self._file: Any = _open_for_writing(path, options, compression_level)

    def write(self, record: bytes) -> None:
        """Append a record.

        Args:
            record: the bytes of the record.
        """
        write_record(self._file, record)

    def flush(self) -> None:
        """Flush the written data to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
