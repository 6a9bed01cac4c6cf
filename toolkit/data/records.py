"""TFRecord format: the records of TensorFlow's record files and event files.

A record is its length (8 bytes), a checksum of the length, the data, and a checksum of
the data. Numbers are little-endian. A checksum is a masked CRC-32C. The mask (a
rotation and an addition) avoids problems with data that contains checksums:
https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import IO, Any, BinaryIO, cast

from toolkit.errors import ArgumentError, unknown_choice
from toolkit.files.writing import named_write_errors
from toolkit.reading.decompression import read_exactly

HEADER_SIZE = 12  # bytes: the length of a record and its checksum
RECORD_OVERHEAD = HEADER_SIZE + 4  # bytes of a record in addition to its data
_CHECKSUM = struct.Struct("<I")
_BLOCK_SIZE = 1 << 18  # bytes of a read: many small records, or a part of a large one


class RecordError(ValueError):
    """Error for a record that is corrupt or truncated."""


@cache
def crc32c_function() -> Callable[[bytes], int]:
    """Import the function that computes the CRC-32C of bytes; most programs need none.

    Example:
        >>> from toolkit.data.records import crc32c_function
        >>> hex(crc32c_function()(b"123456789"))
        '0xe3069283'
    """
    from google_crc32c import value

    return cast(Callable[[bytes], int], value)


def masked_crc32c(data: bytes) -> int:
    """Return the masked CRC-32C of data."""
    crc = crc32c_function()(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(4096)
def _header_of(size: int) -> bytes:
    """Return the header of a record; the records of a file have few sizes."""
    length = size.to_bytes(8, "little")
    return length + _CHECKSUM.pack(masked_crc32c(length))


def write_record(file: BinaryIO, data: bytes) -> None:
    """Append one record to a file."""
    if type(data) is not bytes:
        data = bytes(memoryview(data))
    checksum = _CHECKSUM.pack(masked_crc32c(data))
    file.write(b"".join((_header_of(len(data)), data, checksum)))


def read_records(file: IO[bytes], limit: int | None = None) -> Iterator[bytes]:
    """Yield the records of a file from its position on.

    Args:
        file: a file open for binary reading.
        limit: the maximum record size in bytes; None means no limit.

    Raises:
        RecordError: a record is corrupt or truncated, after the records before it.
    """
    data, start = file.read(_BLOCK_SIZE), 0
    while True:
        if len(data) - start < HEADER_SIZE:
            data, start = data[start:] + file.read(_BLOCK_SIZE), 0
            if not data:
                return
            if len(data) < HEADER_SIZE:
                raise RecordError("the file is truncated inside of a record's length")
        length = int.from_bytes(data[start : start + 8], "little")
        if data[start : start + HEADER_SIZE] != _header_of(length):
            raise RecordError("the checksum of the record's length is wrong")
        end = start + RECORD_OVERHEAD + length
        if end > len(data):
            data = data[start:]
            data += read_exactly(file, end - start - len(data), limit)
            start, end = 0, end - start
            if end > len(data):
                raise RecordError(
                    f"the file is truncated: the record has {length:,} bytes, but only "
                    f"{len(data) - HEADER_SIZE:,} remain"
                )
        record = data[start + HEADER_SIZE : end - 4]
        if masked_crc32c(record) != int.from_bytes(data[end - 4 : end], "little"):
            raise RecordError("the checksum of the record is wrong")
        data, start = (data, end) if end < len(data) else (b"", 0)
        yield record


def split_records(data: bytes) -> list[bytes]:
    """Return the records in consecutive bytes, with their lengths and checksums."""
    records, start = [], 0
    while start < len(data):
        length = int.from_bytes(data[start : start + 8], "little")
        end = start + length + RECORD_OVERHEAD
        records.append(data[start:end])
        start = end
    return records


def is_valid_header(header: bytes) -> bool:
    """Return whether the checksum of a record's length is correct."""
    length = int.from_bytes(header[:8], "little")
    return header[:HEADER_SIZE] == _header_of(length)


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
