"""The OpenBLAS in NumPy's wheels: its threads, and how to disable them.

Its results on several threads have different bits for each number of threads. So its
threads are never used; this package splits products itself.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from toolkit.backends.kernels import Kernel

# The spellings of its functions in NumPy's wheels, and in other builds.
# A function of a C library, for ctypes.
LibraryFunction: TypeAlias = Callable[..., Any]
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


def load_function(
    name: str, result: object, *arguments: object
) -> LibraryFunction | None:
    """Return a function of NumPy's OpenBLAS; None if it is missing."""
    library = ctypes.CDLL(_library())
    for spelling in _SPELLINGS:
        function: Any = getattr(library, spelling.format(name), None)
        if function is not None:
            function.restype = result
            function.argtypes = arguments
            return function  # type: ignore[no-any-return]
    return None


def load_blas_function(
    name: str, result: object, arguments: Callable[[Any], Sequence[Any]]
) -> LibraryFunction | None:
    """Return a function of the BLAS of NumPy; None if it is missing.

    Args:
        name: a function of CBLAS.
        result: the type of the result.
        arguments: returns the types of the arguments for the type of an integer.
    """
    library = ctypes.CDLL(_library())
    for spelling in ("scipy_{}64_", "{}64_", "scipy_{}", "{}"):
        function: Any = getattr(library, spelling.format(name), None)
        if function is not None:
            integer = ctypes.c_int64 if "64_" in spelling else ctypes.c_int
            function.restype, function.argtypes = result, tuple(arguments(integer))
            typed: LibraryFunction = function
            return typed
    return None


def load_lapack_function(
    name: str,
) -> tuple[LibraryFunction, type[ctypes.c_int64] | type[ctypes.c_int]] | None:
    """Return a function of the LAPACK of NumPy and its integers; None if missing."""
    library = ctypes.CDLL(_library())
    for spelling in ("scipy_{}_64_", "{}_64_", "scipy_{}_", "{}_"):
        function: Any = getattr(library, spelling.format(name), None)
        if function is not None:
            function.restype = None
            integer = ctypes.c_int64 if "64_" in spelling else ctypes.c_int
            return function, integer
    return None


set_threads = load_function("set_num_threads", None, ctypes.c_int)
get_threads = load_function("get_num_threads", ctypes.c_int)


class _SingleThread:
    """Context in which OpenBLAS computes on the calling thread.

    The number of threads is global to the process. So the first entry sets it, and only
    the last exit restores it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries = 0
        self._saved_count = 1

    def __enter__(self) -> None:
        if set_threads is None or get_threads is None:
            return
        with self._lock:
            if self._entries == 0:
                self._saved_count = get_threads()
                if self._saved_count != 1:
                    set_threads(1)
            self._entries += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if set_threads is None or get_threads is None:
            return
        with self._lock:
            self._entries -= 1
            if self._entries == 0 and self._saved_count != 1:
                set_threads(self._saved_count)

    def set_thread_count(self, count: int) -> None:
        """Set the number of OpenBLAS threads, after the last exit."""
        if set_threads is None:
            return
        with self._lock:
            if self._entries:
                self._saved_count = count
            else:
                set_threads(count)

    def reset_after_fork(self) -> None:
        """Reset the state after a fork, where the other threads do not exist."""
        self._lock = Lock()
        if self._entries and set_threads is not None:
            set_threads(self._saved_count)
        self._entries = 0


single_threaded: _SingleThread = _SingleThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=single_threaded.reset_after_fork)


def on_one_thread(kernel: Kernel) -> Kernel:
    """Return a function that runs without OpenBLAS threads."""

    @functools.wraps(kernel)
    def wrapper(*arguments: object, **options: object) -> Any:
        with single_threaded:
            return kernel(*arguments, **options)

    return wrapper
