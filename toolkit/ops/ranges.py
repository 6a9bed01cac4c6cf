"""Ranges of indices as NumPy arrays, whose memory a load is asked for first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toolkit.reading.budget import check_temporary

# Bytes for each index: itself, a result of arithmetic, and that in another dtype.
_BYTES_OF_INDEX = 24


def index_range(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, rows: int = 1
) -> Any:
    """Return `np.arange(start, stop, step, dtype)`.

    A config chooses the extents of a layer, so that a range of them may be of any
    length. While a file is loaded, one that does not fit the budget of the load is
    refused before it has memory.

    Args:
        start, stop, step, dtype: as for `numpy.arange`.
        rows: how many rows of this length the caller computes from the range.

    Raises:
        LoadBudgetError: a load has not enough memory left for it.
    """
    if stop is None:
        start, stop = 0, start
    length = (stop - start) / step if step else 0
    if math.isfinite(length):
        check_range(max(math.ceil(length), 0), rows)
    return np.arange(start, stop, step, dtype=dtype)


def check_range(length: int, rows: int = 1) -> None:
    """Raise if a load has not enough memory left for rows of so many indices."""
    nbytes = _BYTES_OF_INDEX * length * max(rows, 1)
    check_temporary(nbytes, f"a range of {length:,} indices")
