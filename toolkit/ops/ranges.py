"""Ranges of indices as NumPy arrays, checked against the memory budget of a load."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toolkit.reading.budget import check_temporary

# Bytes for each index: the index, a result of arithmetic, and that result in another
# dtype.
_BYTES_OF_INDEX = 24


def index_range(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, rows: int = 1
) -> Any:
    """Return `np.arange(start, stop, step, dtype)`.

    A config selects the extents of a layer, so that such a range may have any length.
    While a file is loaded, a range that does not fit the budget of the load is rejected
    before it is allocated.

    Args:
        start, stop, step, dtype: as for `numpy.arange`.
        rows: number of rows of this length that the caller computes from the range.

    Raises:
        LoadBudgetError: the range does not fit the remaining budget of the load.
    """
    if stop is None:
        start, stop = 0, start
    length = (stop - start) / step if step else 0
    if math.isfinite(length):
        check_range(max(math.ceil(length), 0), rows)
    return np.arange(start, stop, step, dtype=dtype)


def check_range(length: int, rows: int = 1) -> None:
    """Raise if rows with this number of indices do not fit the budget of a load."""
    nbytes = _BYTES_OF_INDEX * length * max(rows, 1)
    check_temporary(nbytes, f"a range of {length:,} indices")
