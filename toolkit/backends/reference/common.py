"""Helpers of the reference kernels."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.kernels import Kernel
from toolkit.backends.openblas import single_threaded

Array = Any


def widen(x: Array) -> Array:
    """Convert floats to float64, and return other dtypes unchanged."""
    return x.astype(np.float64) if dtypes.is_float(dtypes.name_of(x.dtype)) else x


def deliver(result: Any, out: Any) -> Any:
    """Return the result, copied into `out` if given."""
    if isinstance(result, tuple):
        outs = out or (None,) * len(result)
        return tuple(deliver(r, o) for r, o in zip(result, outs, strict=True))
    if out is None:
        return result
    np.copyto(out, result)
    return out


def kernel(function: Kernel) -> Kernel:
    """Return a kernel from a function without an `out` argument."""

    @wraps(function)
    def call(*arrays: Array, out: Any = None, **attrs: Any) -> Any:
        with single_threaded:  # a fixed summation order, for any number of threads
            return deliver(function(*arrays, **attrs), out)

    return call
