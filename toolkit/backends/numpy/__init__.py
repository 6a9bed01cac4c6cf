"""The CPU backend: NumPy kernels with OpenBLAS or MKL."""

from __future__ import annotations

from toolkit import settings
from toolkit.backends.numpy.kernels import NumPyBackend

__all__ = ["NumPyBackend", "create"]


def create() -> NumPyBackend:
    """Return the backend with the BLAS and thread count of the environment."""
    num_threads = settings.environment("NUM_THREADS")
    return NumPyBackend(
        blas=settings.environment("BLAS") or "auto",
        threads=None if num_threads is None else settings.default_num_threads(),
    )
