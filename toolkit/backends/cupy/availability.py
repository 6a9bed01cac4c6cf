"""Whether a GPU can be used, and if not, why: CuPy, driver, device, libraries."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolkit import settings
from toolkit.backends.cupy import cudnn, libraries
from toolkit.console.frames import warn
from toolkit.errors import BackendUnavailable

EXTRAS = "pip install 'toolkit[cuda13]' (or 'toolkit[cuda12]' for an older driver)"


def cupy_module() -> Any:
    """CuPy.

    Raises:
        BackendUnavailable: it is not installed.
    """
    try:
        return import_module("cupy")
    except ImportError as error:
        raise BackendUnavailable(
            f"gpu: CuPy is not installed ({error}): {EXTRAS}"
        ) from error


def require(runtime: Any) -> int:
    """The number of GPUs, at least 1.

    Args:
        runtime: CuPy's binding of the CUDA runtime.

    Raises:
        BackendUnavailable: there is no driver, an old one, or no device.
    """
    driver, built = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if driver == 0:
        raise BackendUnavailable(
            "gpu: there is no CUDA driver on this machine (the runtime reports "
            "cudaErrorInsufficientDriver): install NVIDIA's driver"
        )
    if driver // 1000 < built // 1000:
        raise BackendUnavailable(
            f"gpu: the driver is for CUDA {_words(driver)}, CuPy for CUDA "
            f"{_words(built)}: update the driver, or install "
            f"'toolkit[cuda{driver // 1000}]' instead"
        )
    try:
        count = int(runtime.getDeviceCount())
    except Exception as error:  # whatever the runtime raises, it has no device to use
        raise BackendUnavailable(f"gpu: no device can be used: {error}") from error
    if count == 0:
        raise BackendUnavailable("gpu: the driver finds no CUDA device")
    return count


def _words(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def usable_libraries() -> tuple[frozenset[str], dict[str, str]]:
    """The libraries that are there, and for the others why they are not."""
    found, missing = set(), {}
    for name, probe in (
        ("cublaslt", lambda: libraries.load("cublasLt")),
        ("cudnn", cudnn.version),
    ):
        try:
            probe()
            found.add(name)
        except BackendUnavailable as error:
            missing[name] = str(error)
    return frozenset(found), missing


def warn_of_missing(found: frozenset[str]) -> None:
    """Refuse to go on without cuBLASLt; warn once of slow convolutions.

    Raises:
        BackendUnavailable: without cuBLASLt; with TOOLKIT_REQUIRE_CUDNN also without
            cuDNN.
    """
    _, missing = usable_libraries()
    if "cublaslt" not in found:
        raise BackendUnavailable(f"gpu: {missing['cublaslt']}")
    if "cudnn" not in found:
        if settings.environment("REQUIRE_CUDNN"):
            raise BackendUnavailable(f"gpu: {missing['cudnn']}")
        warn(
            f"convolutions run as matrix products, several times slower: "
            f"{missing['cudnn']}"
        )
