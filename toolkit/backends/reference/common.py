"""What the reference kernels share."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.base import Kernel
from toolkit.backends.openblas import alone

Array = Any


def widen(x: Array) -> Array:
    """Floats as float64, all else as it is."""
    return x.astype(np.float64) if dtypes.is_float(dtypes.name_of(x.dtype)) else x


def deliver(result: Any, out: Any) -> Any:
    """The result, copied into `out` if there is one."""
    if isinstance(result, tuple):
        outs = out or (None,) * len(result)
        return tuple(deliver(r, o) for r, o in zip(result, outs, strict=True))
    if out is None:
        return result
    np.copyto(out, result)
    return out


def kernel(function: Kernel) -> Kernel:
    """A kernel from a function that knows nothing of `out`."""

    @wraps(function)
    def call(*arrays: Array, out: Any = None, **attrs: Any) -> Any:
        with alone:  # one order of sums, whatever the number of threads
            return deliver(function(*arrays, **attrs), out)

    return call
