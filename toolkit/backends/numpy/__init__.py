"""The CPU backend: NumPy's kernels with OpenBLAS or MKL."""

from __future__ import annotations

from toolkit import config
from toolkit.backends.numpy.kernels import NumPyBackend
from toolkit.errors import ArgumentError

__all__ = ["NumPyBackend", "create"]


def create() -> NumPyBackend:
    """The backend with the BLAS and the number of threads that the environment asks."""
    threads = config.environment("NUM_THREADS")
    if threads is not None and not (threads.isdecimal() and int(threads) > 0):
        raise ArgumentError(
            f"TOOLKIT_NUM_THREADS: expected a number of threads; received {threads!r}"
        )
    return NumPyBackend(
        blas=config.environment("BLAS") or "auto",
        threads=None if threads is None else int(threads),
    )
