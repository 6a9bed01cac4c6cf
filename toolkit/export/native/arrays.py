"""Input arrays of a native library."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.errors import ArgumentError, ToolkitError

Array = np.ndarray[Any, Any]


def as_input(name: str, value: Any, dtype: str) -> Array:
    """Return values as a contiguous array of a dtype; only floats are rounded.

    Raises:
        ArgumentError: the dtype cannot represent a value, or the values are not
            numbers.
    """
    array = _array(name, value, dtype)
    own = array.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.ascontiguousarray(array, dtypes.numpy_dtype(dtype))
    found = found.reshape(array.shape)  # ascontiguousarray adds an axis to a number
    if found.dtype == own or not array.size:
        return found
    if dtype in dtypes.INEXACT:
        fits = np.isfinite(found) | ~np.isfinite(array)
    else:
        low, high = _limits(dtype)
        fits = (array >= low) & (array <= high)
    if not fits.all():
        raise ArgumentError(
            f"input {name!r}: expected values of {dtype}; received "
            f"{array[~fits].flat[0]}"
        )
    return found


def _array(name: str, value: Any, dtype: str) -> Array:
    """Return numbers as an array of a kind compatible with the dtype."""
    try:
        array = np.asarray(value)
        found = dtypes.standardize(array.dtype)
    except (ToolkitError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"input {name!r}: expected an array of {dtype}; received "
            f"{type(value).__name__}: {error}"
        ) from None
    is_whole = found in dtypes.INTEGERS or found == "bool"
    is_kept = found in dtypes.INEXACT and found not in dtypes.COMPLEX
    if array.size and not (is_whole or (dtype in dtypes.INEXACT and is_kept)):
        kind = "real numbers" if dtype in dtypes.INEXACT else "integers"
        raise ArgumentError(
            f"input {name!r}: expected {kind} for {dtype}; received {found}"
        )
    return array


def _limits(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    info = np.iinfo(dtypes.numpy_dtype(dtype))
    return int(info.min), int(info.max)
