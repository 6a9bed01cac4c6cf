"""Compressed streams, decompressed up to the budget of a load."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from toolkit.errors import LoadBudgetError
from toolkit.reading.budget import load_budget

_CHUNK_SIZE = 1 << 24  # bytes allocated at once
_OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x5d\x00\x00": lzma.open,
}
CORRUPT_STREAM_ERRORS = (  # errors for a corrupt stream
    *(OSError, EOFError, ValueError, zlib.error, lzma.LZMAError),
)


def decompression_limit(path: str | os.PathLike[str]) -> int:
    """Return the maximum decompressed size of a file."""
    return load_budget(os.path.getsize(path))


def size_error(label: str, limit: int) -> LoadBudgetError:
    """Return the error for a stream that exceeds its limit."""
    return LoadBudgetError(
        f"{label} takes more than {limit:,} bytes, far more than the size of the "
        "file. To change the limit, call toolkit.saving.set_load_budget"
    )


def read_exactly(file: IO[bytes], size: int, limit: int | None = None) -> bytes:
    """Read `size` bytes, fewer at the end, with allocation in steps.

    Args:
        file: the file.
        size: the size from the file's header, which can be any number.
        limit: the maximum size; None means no limit.

    Raises:
        LoadBudgetError: the data exceeds the limit.
    """
    if size <= _CHUNK_SIZE:
        return file.read(size)
    chunks, remaining = [], size
    while remaining > 0 and (chunk := file.read(min(remaining, _CHUNK_SIZE))):
        chunks.append(chunk)
        remaining -= len(chunk)
        if limit is not None and size - remaining > limit:
            raise size_error("a record", limit)
    return b"".join(chunks)


def read_limited_lines(file: IO[bytes], limit: int) -> Iterator[bytes]:
    """Yield the lines of a compressed file, each up to a maximum length."""
    while line := file.readline(limit + 1):
        if len(line) > limit:
            raise size_error("a line", limit)
        yield line


def decompress(data: Any, limit: int) -> bytes:
    """Decompress zlib data up to a limit.

    Raises:
        LoadBudgetError: the data exceeds the limit.
        zlib.error: the data is corrupt or truncated.
    """
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(data, limit)
    if unpacker.unconsumed_tail:
        raise size_error("what is packed", limit)
    content += unpacker.flush()
    if not unpacker.eof:
        raise zlib.error("the data is truncated")
    return content


class DecompressedFile:
    """File with gzip, bzip2, xz or no compression, read decompressed.

    Args:
        path: the path of the file.
        limit: the maximum size; more raises a LoadBudgetError.
        max_read: the maximum size of one read.
    """

    def __init__(self, path: Path, limit: int, max_read: int | None = None) -> None:
        with open(path, "rb") as file:
            head = file.read(6)
        openers = [o for magic, o in _OPENERS.items() if head.startswith(magic)]
        self._file = (openers or [open])[0](path, "rb")
        self._limit, self._max_read = limit, max_read

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, by default all."""
        if self._max_read is not None and size > self._max_read:
            raise size_error("a header", self._max_read)
        remaining = max(0, self._limit - self._file.tell())
        if 0 <= size <= remaining:
            return read_exactly(self._file, size)
        data = read_exactly(self._file, remaining + 1)
        if len(data) > remaining:
            raise size_error("what is packed", self._limit)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset."""
        if whence == 0 and offset > self._limit:
            raise size_error("what is packed", self._limit)
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """Return the current offset."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> DecompressedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
