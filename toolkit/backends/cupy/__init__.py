"""The GPU backend: generated CUDA, cuBLASLt and cuDNN over CuPy's memory."""

from __future__ import annotations

from toolkit.backends.cupy.availability import cupy_module, require, warn_of_missing
from toolkit.backends.cupy.backend import CupyBackend

__all__ = ["CupyBackend", "create"]


def create() -> CupyBackend:
    """The backend on the first GPU.

    Raises:
        BackendUnavailable: with what is missing, and what to install.
    """
    cupy = cupy_module()
    count = require(cupy.cuda.runtime)
    from toolkit.backends.cupy.cuda_device import CudaDevice

    device = CudaDevice(0)
    warn_of_missing(device.libraries)
    return CupyBackend(device, cupy, count)
