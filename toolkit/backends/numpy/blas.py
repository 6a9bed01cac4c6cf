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


class Blas:
    """The BLAS that NumPy was built with; `gemm` is None for NumPy's matmul."""

    gemm: Kernel | None = None

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
        set_threads = _openblas("set_num_threads", None, ctypes.c_int)
        if set_threads is not None:
            set_threads(count)

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
