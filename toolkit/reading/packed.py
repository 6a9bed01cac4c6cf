"""Packed streams, of which no more is unpacked than a load may take."""

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

_PIECE = 1 << 24  # bytes for which memory is taken at once
_OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x5d\x00\x00": lzma.open,
}
DAMAGES = (  # what reading a damaged stream may raise
    *(OSError, EOFError, ValueError, zlib.error, lzma.LZMAError),
)


def budget_of(path: str | os.PathLike[str]) -> int:
    """How many bytes may be made of a file."""
    return load_budget(os.path.getsize(path))


def too_much(what: str, limit: int) -> LoadBudgetError:
    """The error for a stream that unpacks to more than it may."""
    return LoadBudgetError(
        f"{what} takes more than {limit:,} bytes, far more than the file holds: "
        "refused. toolkit.saving.set_load_budget sets that"
    )


def read_exactly(file: IO[bytes], size: int, limit: int | None = None) -> bytes:
    """So many bytes, fewer at the end; memory is taken as they come.

    Args:
        file: to read from.
        size: how many, as a file says: it may be any number.
        limit: the most that there may be; None: as many as there are.

    Raises:
        LoadBudgetError: there are more.
    """
    if size <= _PIECE:
        return file.read(size)
    pieces, left = [], size
    while left > 0 and (piece := file.read(min(left, _PIECE))):
        pieces.append(piece)
        left -= len(piece)
        if limit is not None and size - left > limit:
            raise too_much("a record", limit)
    return b"".join(pieces)


def limited_lines(file: IO[bytes], limit: int) -> Iterator[bytes]:
    """The lines of a packed file, none of which may be longer than the limit."""
    while line := file.readline(limit + 1):
        if len(line) > limit:
            raise too_much("a line", limit)
        yield line


def decompressed(data: Any, limit: int) -> bytes:
    """What was packed by zlib, if that is no more than the limit.

    Raises:
        LoadBudgetError: it is.
        zlib.error: it is damaged or cut off.
    """
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(data, limit)
    if unpacker.unconsumed_tail:
        raise too_much("what is packed", limit)
    found += unpacker.flush()
    if not unpacker.eof:
        raise zlib.error("the data is cut off")
    return found


class Unpacked:
    """A file that is packed by gzip, bzip2 or xz, or not at all, as what is in it.

    Args:
        path: of the file.
        limit: bytes after which reading stops with a LoadBudgetError.
        at_once: the most that may be asked for at once.
    """

    def __init__(self, path: Path, limit: int, at_once: int | None = None) -> None:
        with open(path, "rb") as file:
            head = file.read(6)
        openers = [o for magic, o in _OPENERS.items() if head.startswith(magic)]
        self._file = (openers or [open])[0](path, "rb")
        self._limit, self._at_once = limit, at_once

    def read(self, size: int = -1) -> bytes:
        """So many bytes, all by default."""
        if self._at_once is not None and size > self._at_once:
            raise too_much("a header", self._at_once)
        left = max(0, self._limit - self._file.tell())
        if 0 <= size <= left:
            return read_exactly(self._file, size)
        found = read_exactly(self._file, left + 1)
        if len(found) > left:
            raise too_much("what is packed", self._limit)
        return found

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a byte."""
        if whence == 0 and place > self._limit:
            raise too_much("what is packed", self._limit)
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        """The byte at which reading is."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
