"""Byte ranges of files, as arrays and as files."""

from __future__ import annotations

import io
import os
from typing import IO, Any

import numpy as np

from toolkit.errors import ModelFileError
from toolkit.reading.budget import spend


def read_bytes(
    file: IO[bytes], start: int, nbytes: int, label: str
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Read a byte range of a file, within the load budget.

    Args:
        file: an unbuffered file.
        start: the offset.
        nbytes: the number of bytes.
        label: the name of the data in messages.

    Raises:
        LoadBudgetError: the range exceeds the budget.
        ModelFileError: the file has become shorter.
    """
    spend(nbytes, label)
    data = np.empty(nbytes, np.uint8)
    file.seek(start)
    remaining = data.data
    while len(remaining):  # the system reads at most 2 GB at once
        count = file.readinto(remaining)  # type: ignore[attr-defined]
        if not count:
            raise ModelFileError(f"{label}: the file was truncated")
        remaining = remaining[count:]
    return data


class FileRange(io.RawIOBase):
    """A range of an open file as a file for reading.

    Args:
        file: the file.
        start: the offset of the range.
        nbytes: the number of bytes of the range.
    """

    def __init__(self, file: IO[bytes], start: int, nbytes: int) -> None:
        self._file, self._start, self.nbytes = file, start, nbytes
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset in the range; return the new one."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}
        self._position = max(0, origin.get(whence, self.nbytes) + offset)
        return self._position

    def tell(self) -> int:
        """Return the offset in the range."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes."""
        target = memoryview(buffer).cast("B")
        target = target[: max(0, self.nbytes - self._position)]
        self._file.seek(self._start + self._position)
        count: int = self._file.readinto(target)  # type: ignore[attr-defined]
        self._position += count
        return count
