"""Where CUDA's libraries are: in wheels of the `nvidia` namespace, or the system's.

They are loaded by full path and for everyone (RTLD_GLOBAL), in an order in which each
finds what it needs: cuDNN ends the process where it does not find cuBLASLt.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from toolkit.errors import BackendUnavailable

# What each is called in a version of CUDA, and the wheel that brings it.
SONAMES = {
    "cublasLt": "libcublasLt.so.{cuda}",
    "cudnn": "libcudnn.so.9",
    "nvrtc": "libnvrtc.so.{cuda}",
    "nvrtc-builtins": "libnvrtc-builtins.so.{cuda}.*",
}
WHEELS = {
    "cublasLt": "nvidia-cublas",
    "cudnn": "nvidia-cudnn-cu13",
    "nvrtc": "nvidia-cuda-nvrtc",
    "nvrtc-builtins": "nvidia-cuda-nvrtc",
}
# cuDNN last: what it compiles at run time needs the others in place.
ORDER = ("nvrtc-builtins", "nvrtc", "cublasLt", "cudnn")


def versions() -> tuple[int, int]:
    """The versions of CUDA to look for: first that of CuPy, as far as it is in use."""
    cupy = sys.modules.get("cupy")
    built = 13 if cupy is None else cupy.cuda.runtime.runtimeGetVersion() // 1000
    return (12, 13) if built == 12 else (13, 12)


def sonames(name: str) -> list[str]:
    """What the file of a library may be called, best first."""
    found = (SONAMES[name].format(cuda=version) for version in versions())
    return list(dict.fromkeys(found))


def folders() -> Iterator[Path]:
    """The `lib` folders of the installed wheels of the `nvidia` namespace."""
    spec = find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(root).glob("*/lib"))


def wheel_path(name: str) -> Path | None:
    """The file of a library in a wheel, None if no wheel has it."""
    for soname in sonames(name):
        for folder in folders():
            for found in sorted(folder.glob(soname)):
                return found
    return None


@cache
def load(name: str) -> ctypes.CDLL:
    """A library by its short name, loaded once.

    Args:
        name: a key of `SONAMES`.

    Raises:
        BackendUnavailable: neither a wheel nor the system has it.
    """
    path = wheel_path(name)
    candidates = [str(path)] if path else [s for s in sonames(name) if "*" not in s]
    problems = []
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            problems.append(str(error))
    raise BackendUnavailable(
        f"{sonames(name)[0]} was not found ({'; '.join(problems) or 'no wheel'}): "
        f"pip install 'toolkit[cuda13]', or {WHEELS[name]} alone"
    )


def preload() -> None:
    """Load all that cuDNN needs before its first graph, as far as it is there.

    Raises:
        BackendUnavailable: there is no cuBLASLt, without which cuDNN may not be used.
    """
    for name in ORDER[:-2]:
        if wheel_path(name) is not None:
            load(name)
    load("cublasLt")
