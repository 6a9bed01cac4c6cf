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


def budget_of(path: str | os.PathLike[str]) -> int:
    """Return the maximum decompressed size of a file."""
    return load_budget(os.path.getsize(path))


def size_error(what: str, limit: int) -> LoadBudgetError:
    """Return the error for a stream that exceeds its limit."""
    return LoadBudgetError(
        f"{what} takes more than {limit:,} bytes, far more than the file holds: "
        "refused. toolkit.saving.set_load_budget sets that"
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
    pieces, left = [], size
    while left > 0 and (piece := file.read(min(left, _CHUNK_SIZE))):
        pieces.append(piece)
        left -= len(piece)
        if limit is not None and size - left > limit:
            raise size_error("a record", limit)
    return b"".join(pieces)


def limited_lines(file: IO[bytes], limit: int) -> Iterator[bytes]:
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
    found = unpacker.decompress(data, limit)
    if unpacker.unconsumed_tail:
        raise size_error("what is packed", limit)
    found += unpacker.flush()
    if not unpacker.eof:
        raise zlib.error("the data is cut off")
    return found


class DecompressedFile:
    """File with gzip, bzip2, xz or no compression, read decompressed.

    Args:
        path: the path of the file.
        limit: the maximum size; more raises a LoadBudgetError.
        at_once: the maximum size of one read.
    """

    def __init__(self, path: Path, limit: int, at_once: int | None = None) -> None:
        with open(path, "rb") as file:
            head = file.read(6)
        openers = [o for magic, o in _OPENERS.items() if head.startswith(magic)]
        self._file = (openers or [open])[0](path, "rb")
        self._limit, self._at_once = limit, at_once

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, by default all."""
        if self._at_once is not None and size > self._at_once:
            raise size_error("a header", self._at_once)
        left = max(0, self._limit - self._file.tell())
        if 0 <= size <= left:
            return read_exactly(self._file, size)
        found = read_exactly(self._file, left + 1)
        if len(found) > left:
            raise size_error("what is packed", self._limit)
        return found

    def seek(self, place: int, whence: int = 0) -> int:
        """Move to an offset."""
        if whence == 0 and place > self._limit:
            raise size_error("what is packed", self._limit)
        return int(self._file.seek(place, whence))

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
