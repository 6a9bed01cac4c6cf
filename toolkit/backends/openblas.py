"""The OpenBLAS in NumPy's wheels: its threads, and how to disable them.

Its results on several threads have different bits for each number of threads. So its
threads are never used; this package splits products itself.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np

from toolkit.backends.base import Kernel

# The spellings of its functions in NumPy's wheels, and in other builds.
_SPELLINGS = (
    "scipy_openblas_{}64_",
    "openblas_{}64_",
    "scipy_openblas_{}",
    "openblas_{}",
)


def _library() -> str:
    """Return the path of a library that resolves the symbols of NumPy's BLAS.

    A library that links to the BLAS resolves them. On Windows, it does not, so the path
    is the BLAS itself in the folder `numpy.libs`.
    """
    if sys.platform == "win32":
        for path in Path(np.__file__).parents[1].glob("numpy.libs/*openblas*.dll"):
            return str(path)
    return str(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]


def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    """Return a function of NumPy's OpenBLAS; None if it is missing."""
    library = ctypes.CDLL(_library())
    for spelling in _SPELLINGS:
        found: Any = getattr(library, spelling.format(name), None)
        if found is not None:
            found.restype = result
            found.argtypes = arguments
            return found  # type: ignore[no-any-return]
    return None


set_threads = function("set_num_threads", None, ctypes.c_int)
get_threads = function("get_num_threads", ctypes.c_int)


class _Alone:
    """Context in which OpenBLAS computes on the calling thread.

    The number of threads is global to the process. So the first entry sets it, and only
    the last exit restores it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before = 1

    def __enter__(self) -> None:
        if set_threads is None or get_threads is None:
            return
        with self._lock:
            if self._inside == 0:
                self._before = get_threads()
                if self._before != 1:
                    set_threads(1)
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if set_threads is None or get_threads is None:
            return
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._before != 1:
                set_threads(self._before)

    def use(self, count: int) -> None:
        """Set the number of OpenBLAS threads, after the last exit."""
        if set_threads is None:
            return
        with self._lock:
            if self._inside:
                self._before = count
            else:
                set_threads(count)

    def forget(self) -> None:
        """Reset the state after a fork, where the other threads do not exist."""
        self._lock = Lock()
        if self._inside and set_threads is not None:
            set_threads(self._before)
        self._inside = 0


alone: _Alone = _Alone()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=alone.forget)


def on_one_thread(kernel: Kernel) -> Kernel:
    """Return a function that runs without OpenBLAS threads."""

    @functools.wraps(kernel)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        with alone:
            return kernel(*arguments, **options)

    return wrapper
