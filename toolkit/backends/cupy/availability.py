"""Checks that a GPU is usable: CuPy, driver, device and libraries."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolkit import settings
from toolkit.backends.cupy import cudnn, libraries
from toolkit.console.frames import warn
from toolkit.errors import BackendUnavailable
from toolkit.release import install_command, requirement

EXTRAS = f"{install_command('cuda13')} (or {requirement('cuda12')} for an older driver)"


def cupy_module() -> Any:
    """Return the CuPy module.

    Raises:
        BackendUnavailable: CuPy is not installed.
    """
    try:
        return import_module("cupy")
    except ImportError as error:
        raise BackendUnavailable(
            f"gpu: CuPy is not installed ({error}): {EXTRAS}"
        ) from error


def count_devices(runtime: Any) -> int:
    """Return the number of GPUs, at least 1.

    Args:
        runtime: CuPy's binding of the CUDA runtime.

    Raises:
        BackendUnavailable: no driver, an outdated driver, or no device.
    """
    driver, built = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if driver == 0:
        raise BackendUnavailable(
            "gpu: this machine has no CUDA driver (the runtime reports "
            "cudaErrorInsufficientDriver): install NVIDIA's driver"
        )
    if driver // 1000 < built // 1000:
        raise BackendUnavailable(
            f"gpu: the driver is for CUDA {_words(driver)}, CuPy for CUDA "
            f"{_words(built)}: update the driver, or install "
            f"{requirement(f'cuda{driver // 1000}')} instead"
        )
    try:
        count = int(runtime.getDeviceCount())
    # any error of the runtime means that no device is usable
    except Exception as error:
        raise BackendUnavailable(f"gpu: no device can be used: {error}") from error
    if count == 0:
        raise BackendUnavailable("gpu: the driver finds no CUDA device")
    return count


def _words(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def usable_libraries() -> tuple[frozenset[str], dict[str, str]]:
    """Return the available libraries, and the reason for each unavailable one."""
    available, reasons = set(), {}
    for name, probe in (
        ("cublaslt", lambda: libraries.load("cublasLt")),
        ("cudnn", cudnn.version),
    ):
        try:
            probe()
            available.add(name)
        except BackendUnavailable as error:
            reasons[name] = str(error)
    return frozenset(available), reasons


def check_libraries(available: frozenset[str]) -> None:
    """Raise an error without cuBLASLt; warn once about slow convolutions.

    Raises:
        BackendUnavailable: cuBLASLt is missing, or cuDNN is missing and
        TOOLKIT_REQUIRE_CUDNN is set.
    """
    _, reasons = usable_libraries()
    if "cublaslt" not in available:
        raise BackendUnavailable(f"gpu: {reasons['cublaslt']}")
    if "cudnn" not in available:
        if settings.environment("REQUIRE_CUDNN"):
            raise BackendUnavailable(f"gpu: {reasons['cudnn']}")
        warn(
            "convolutions run as matrix products, which is several times slower: "
            f"{reasons['cudnn']}"
        )
