"""The two libraries for matrix products: the BLAS of NumPy, and MKL."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from toolkit.backends import openblas
from toolkit.backends.array.linalg import Linalg
from toolkit.backends.kernels import Kernel
from toolkit.backends.numpy import lapack, mkl, tiled_matmul
from toolkit.backends.numpy.triangular import solve_by_blas
from toolkit.backends.openblas import on_one_thread, single_threaded
from toolkit.errors import unknown_choice

# Up to these sizes OpenBLAS uses one thread: multiply-adds of matrix products, and
# elements of matrix-vector products.
_MAX_SINGLE_THREAD_PRODUCT = 1 << 18
_MAX_SINGLE_THREAD_VECTOR = 9000


class Blas:
    """The BLAS of the NumPy build; results do not depend on the thread count."""

    def __init__(self) -> None:
        self._count = self.threads or 1

    def gemm(self, a: Any, b: Any, out: Any = None) -> Any:
        """Compute np.matmul for two or more axes, in tiles if matrices are large."""
        rows, columns = a.shape[-2], b.shape[-1]
        if a.shape[-1] == 1:  # BLAS takes up to 20 times as long
            return np.multiply(a, b, out=out, order="C")
        small = (
            _MAX_SINGLE_THREAD_VECTOR
            if rows == 1 or columns == 1
            else _MAX_SINGLE_THREAD_PRODUCT
        )
        if a.size * columns <= small:
            return np.matmul(a, b, out)
        with single_threaded:
            if tiled_matmul.needs_tiles(a, b):
                return tiled_matmul.multiply_tiled(a, b, out, self._count)
            return np.matmul(a, b, out)

    @property
    def description(self) -> str:
        """The name and version."""
        config = openblas.load_function("get_config", ctypes.c_char_p)
        if config is not None:
            return " ".join(config().decode().split()[:2])
        build = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{build.get('name', 'unknown')} {build.get('version', '')}".strip()

    @property
    def threads(self) -> int | None:
        """The number of threads; None if this BLAS does not report it."""
        return openblas.get_threads and int(openblas.get_threads())

    @threads.setter
    def threads(self, count: int) -> None:
        single_threaded.set_thread_count(count)
        self._count = count

    def kernels(self, table: dict[str, Kernel]) -> dict[str, Kernel]:
        """Return the kernels of this library that replace kernels of `table`."""
        names = [name for name in vars(Linalg) if name in table]
        table = table | {"solve_triangular": solve_by_blas(table["solve_triangular"])}
        if lapack.has_lapack():
            table |= {"lu": lapack.lu_by_lapack(table["lu"])}
            table |= {"least_squares": lapack.least_squares}
            names.append("least_squares")
        return {name: on_one_thread(table[name]) for name in names}


def find_blas(choice: str) -> Any:
    """Return the BLAS for "numpy", "mkl" or "auto" (MKL if it is installed)."""
    if choice not in ("numpy", "mkl", "auto"):
        raise unknown_choice("blas", choice, ("numpy", "mkl", "auto"))
    if choice == "mkl" or (choice == "auto" and mkl.is_installed()):
        return mkl.Mkl(Blas())
    return Blas()
