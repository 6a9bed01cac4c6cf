"""The two libraries for matrix products: NumPy's own BLAS, and MKL."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.backends.base import Kernel
from toolkit.backends.numpy import mkl
from toolkit.errors import unknown_choice

# How OpenBLAS's functions are called in NumPy's wheels, and in other builds.
_SPELLINGS = (
    "scipy_openblas_{}64_",
    "openblas_{}64_",
    "scipy_openblas_{}",
    "openblas_{}",
)


# Multiply-adds from which a product is worth several threads: some milliseconds. They
# wait for each other at its end; where another process has taken a core, for a time
# slice, which would make a step of many small products ten times as long.
_LEAST_SHARED = 1 << 28
# Up to here OpenBLAS takes one thread by itself.
_MOST_ALONE = 1 << 18


class Blas:
    """The BLAS that NumPy was built with."""

    def __init__(self) -> None:
        self._count = self.threads or 1
        self._set_threads = _openblas("set_num_threads", None, ctypes.c_int)

    def gemm(self, a: Any, b: Any, out: Any = None) -> Any:
        """np.matmul for two or more axes, on one thread unless matrices are large."""
        if self._count == 1 or a.size * b.shape[-1] <= _MOST_ALONE:
            return np.matmul(a, b, out)
        size = a.shape[-2] * a.shape[-1] * b.shape[-1]
        set_threads = self._set_threads
        if size >= _LEAST_SHARED or set_threads is None:
            return np.matmul(a, b, out)
        set_threads(1)
        try:
            return np.matmul(a, b, out)
        finally:
            set_threads(self._count)

    @property
    def description(self) -> str:
        """Name and version."""
        config = _openblas("get_config", ctypes.c_char_p)
        if config is not None:
            return " ".join(config().decode().split()[:2])
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()

    @property
    def threads(self) -> int | None:
        """The number of threads; None if this BLAS does not tell."""
        get = _openblas("get_num_threads", ctypes.c_int)
        return None if get is None else int(get())

    @threads.setter
    def threads(self, count: int) -> None:
        if self._set_threads is not None:
            self._set_threads(count)
            self._count = count

    def kernels(self, table: dict[str, Kernel]) -> dict[str, Kernel]:
        """Kernels of this library that are better than those of `table`."""
        return {}


def find_blas(choice: str) -> Any:
    """The BLAS for "numpy", "mkl" or "auto" (MKL if it is installed)."""
    if choice not in ("numpy", "mkl", "auto"):
        raise unknown_choice("blas", choice, ("numpy", "mkl", "auto"))
    if choice == "mkl" or (choice == "auto" and mkl.is_installed()):
        return mkl.Mkl()
    return Blas()


def _openblas(name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    """A function of the OpenBLAS that NumPy has loaded; None if there is none."""
    # A library's handle also finds the symbols of the libraries that it depends on.
    library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    for spelling in _SPELLINGS:
        function = getattr(library, spelling.format(name), None)
        if function is not None:
            function.restype = result
            function.argtypes = arguments
            return function  # type: ignore[no-any-return]
    return None
