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
    array = _as_real_array(name, value, dtype)
    source_dtype = array.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.ascontiguousarray(array, dtypes.numpy_dtype(dtype))
    result = result.reshape(array.shape)  # ascontiguousarray adds an axis to a number
    if result.dtype == source_dtype or not array.size:
        return result
    if dtype in dtypes.INEXACT:
        is_representable = np.isfinite(result) | ~np.isfinite(array)
    else:
        low, high = _limits(dtype)
        is_representable = (array >= low) & (array <= high)
    if not is_representable.all():
        raise ArgumentError(
            f"input {name!r}: expected values of {dtype}; received "
            f"{array[~is_representable].flat[0]}"
        )
    return result


def _as_real_array(name: str, value: Any, dtype: str) -> Array:
    """Return numbers as an array of a kind compatible with the dtype."""
    try:
        array = np.asarray(value)
        dtype_name = dtypes.standardize(array.dtype)
    except (ToolkitError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"input {name!r}: expected an array of {dtype}; received "
            f"{type(value).__name__}: {error}"
        ) from None
    is_integer = dtype_name in dtypes.INTEGERS or dtype_name == "bool"
    is_real = dtype_name in dtypes.INEXACT and dtype_name not in dtypes.COMPLEX
    if array.size and not (is_integer or (dtype in dtypes.INEXACT and is_real)):
        kind = "real numbers" if dtype in dtypes.INEXACT else "integers"
        raise ArgumentError(
            f"input {name!r}: expected {kind} for {dtype}; received {dtype_name}"
        )
    return array


def _limits(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    info = np.iinfo(dtypes.numpy_dtype(dtype))
    return int(info.min), int(info.max)
