"""The CPU backend: NumPy's kernels with OpenBLAS or MKL."""

from __future__ import annotations

from toolkit import settings
from toolkit.backends.numpy.kernels import NumPyBackend

__all__ = ["NumPyBackend", "create"]


def create() -> NumPyBackend:
    """The backend with the BLAS and the number of threads that the environment asks."""
    chosen = settings.environment("NUM_THREADS")
    return NumPyBackend(
        blas=settings.environment("BLAS") or "auto",
        threads=None if chosen is None else settings.default_num_threads(),
    )
