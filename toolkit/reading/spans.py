"""Byte ranges of files as arrays."""

from __future__ import annotations

from typing import IO, Any

import numpy as np

from toolkit.errors import ModelFileError
from toolkit.reading.budget import spend


def bytes_at(
    file: IO[bytes], start: int, nbytes: int, what: str
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Read a byte range of a file, within the load budget.

    Args:
        file: an unbuffered file.
        start: the offset.
        nbytes: the number of bytes.
        what: the name of the data in messages.

    Raises:
        LoadBudgetError: the range exceeds the budget.
        ModelFileError: the file has become shorter.
    """
    spend(nbytes, what)
    data = np.empty(nbytes, np.uint8)
    file.seek(start)
    left = data.data
    while len(left):  # the system reads at most 2 GB at once
        count = file.readinto(left)  # type: ignore[attr-defined]
        if not count:
            raise ModelFileError(f"{what}: the file became shorter")
        left = left[count:]
    return data
