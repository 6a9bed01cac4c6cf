"""The CPU backend: NumPy's kernels with OpenBLAS or MKL."""

from __future__ import annotations

from toolkit import config
from toolkit.backends.numpy.kernels import NumPyBackend

__all__ = ["NumPyBackend", "create"]


def create() -> NumPyBackend:
    """The backend with the BLAS and the number of threads that the environment asks."""
    chosen = config.environment("NUM_THREADS")
    return NumPyBackend(
        blas=config.environment("BLAS") or "auto",
        threads=None if chosen is None else config.default_num_threads(),
    )
