"""Byte ranges of files as arrays."""

from __future__ import annotations

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
