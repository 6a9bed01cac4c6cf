"""Deferred initial values of Variables that a file is about to replace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.thread_state import ThreadState
from toolkit.type_aliases import Array

# Values below this size are computed at once: a layer may read them in its `build`.
_MIN_NBYTES = 1 << 18


class _Deferral(ThreadState):
    """The initializations that the current load may need at its end, or None."""

    pending: list[Callable[[], None]] | None = None


_deferral = _Deferral()


@contextmanager
def defer_initial_values() -> Iterator[None]:
    """Return a context in which large Variables have no random initial values.

    Their memory stays unused until a value is assigned. At the end, the initializers
    compute the values that were not assigned.
    """
    pending: list[Callable[[], None]] = []
    with _deferral.override(pending=pending):
        yield
    for initialize in pending:
        initialize()


def is_deferred(initializer: Any, shape: tuple[int, ...], dtype: str) -> bool:
    """Return whether a Variable is created without its initial value."""
    return (
        _deferral.pending is not None
        and getattr(initializer, "is_random", False)
        and prod(shape) * dtypes.itemsize(dtype) >= _MIN_NBYTES
    )


def blank_array(shape: tuple[int, ...], dtype: str) -> Array:
    """Return zeros whose memory the system provides at the first write."""
    return np.zeros(shape, dtypes.numpy_dtype(dtype))


def defer(initialize: Callable[[], None]) -> None:
    """Call a function at the end of the load."""
    if _deferral.pending is not None:
        _deferral.pending.append(initialize)
