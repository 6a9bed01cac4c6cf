"""GPU backend: generated CUDA kernels, cuBLASLt and cuDNN on CuPy's device memory."""

from __future__ import annotations

from toolkit.backends.cupy.availability import (
    check_libraries,
    count_devices,
    cupy_module,
)
from toolkit.backends.cupy.backend import CupyBackend
from toolkit.errors import BackendUnavailable

__all__ = ["CupyBackend", "create"]


def create(number: int = 0) -> CupyBackend:
    """Return the backend of one GPU.

    Args:
        number: the device number.

    Raises:
        BackendUnavailable: a requirement is missing; the message names it and its fix.
    """
    cupy = cupy_module()
    count = count_devices(cupy.cuda.runtime)
    if number >= count:
        names = ", ".join(f"gpu:{i}" for i in range(count))
        raise BackendUnavailable(f"gpu: expected one of {names}; received gpu:{number}")
    from toolkit.backends.cupy.cuda_device import CudaDevice

    device = CudaDevice(number)
    check_libraries(device.libraries)
    backend = CupyBackend(device, cupy, count)
    backend.precompile_initializers()
    return backend
