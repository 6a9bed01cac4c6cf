"""Parts of files as arrays of bytes."""

from __future__ import annotations

from typing import IO, Any

import numpy as np

from toolkit.errors import ModelFileError
from toolkit.reading.budget import spend


def bytes_at(
    file: IO[bytes], start: int, nbytes: int, what: str
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """So many bytes of a file that has them, in the budget of the load.

    Args:
        file: opened without a buffer.
        start: the first byte.
        nbytes: how many.
        what: they are, for messages.

    Raises:
        LoadBudgetError: they are too many.
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
