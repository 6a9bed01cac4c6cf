"""Where CUDA's libraries are: in wheels of the `nvidia` namespace, a toolkit, or the
system's.

They are loaded by full path and for everyone (RTLD_GLOBAL), in an order in which each
finds what it needs: cuDNN ends the process where it does not find cuBLASLt.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from toolkit.errors import BackendUnavailable
from toolkit.processes import find_package_folders, load_library

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
# Where NVIDIA's installers put a toolkit.
TOOLKIT = "/usr/local/cuda"


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
    """Where they may be: in the wheels of the `nvidia` namespace, then in toolkits."""
    for root in find_package_folders("nvidia"):
        yield from sorted(root.glob("*/lib"))
    # A toolkit is often in none of the folders that the system searches.
    named = (os.environ.get(name) for name in ("CUDA_PATH", "CUDA_HOME"))
    for toolkit in (*named, TOOLKIT):
        if toolkit and os.path.isabs(toolkit):
            yield Path(toolkit) / "lib64"


def path_of(name: str) -> Path | None:
    """The file of a library, None if only the system can find it."""
    places = [*_before(name), *folders()]
    for soname in sonames(name):
        for folder in places:
            for found in sorted(folder.glob(soname)):
                return found
    return None


def _before(name: str) -> list[Path]:
    """Where cuDNN's frontend looks first: it must find the one that is loaded here."""
    if name != "cudnn":
        return []
    places = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return [Path(place) for place in places if os.path.isabs(place)]


@cache
def load(name: str) -> ctypes.CDLL:
    """A library by its short name, loaded once.

    Args:
        name: a key of `SONAMES`.

    Raises:
        BackendUnavailable: no wheel has it, no toolkit, and not the system.
    """
    path = path_of(name)
    candidates = [str(path)] if path else [s for s in sonames(name) if "*" not in s]
    problems = []
    for candidate in candidates:
        try:
            return load_library(candidate, ctypes.RTLD_GLOBAL)
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
        if path_of(name) is not None:
            load(name)
    load("cublasLt")
