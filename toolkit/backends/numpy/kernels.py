"""The numpy backend: the shared kernels, with MKL's in front where it is used."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.backends.array import array_table
from toolkit.backends.base import Backend
from toolkit.backends.numpy.blas import find_blas


class NumPyBackend(Backend):
    """NumPy on the CPU.

    Args:
        blas: "numpy" for the BLAS that NumPy was built with, "mkl" for that of the
            `mkl` package, or "auto" for MKL if it is installed, else NumPy's.
        threads: how many threads the BLAS uses; None leaves it as it is.
    """

    name = "numpy"

    def __init__(self, blas: str = "auto", threads: int | None = None) -> None:
        self.blas = find_blas(blas)
        table = array_table(np, self.blas.gemm)
        super().__init__(table | self.blas.kernels(table))
        if threads is not None:
            self.blas.threads = threads

    def describe(self) -> dict[str, Any]:
        """The CPU, the BLAS and its number of threads."""
        return {
            **super().describe(),
            "numpy": np.__version__,
            "blas": self.blas.description,
            "threads": self.blas.threads,
        }
