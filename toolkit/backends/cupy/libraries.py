"""Location of the CUDA libraries: wheels of `nvidia`, a toolkit, or the system.

They are loaded by full path with RTLD_GLOBAL, each after its dependencies: cuDNN ends
the process if it does not find cuBLASLt.
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
from toolkit.release import install_command

# The file name of each library in a version of CUDA, and the wheel that contains it.
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
# cuDNN is last: its run-time compilation needs the other libraries.
ORDER = ("nvrtc-builtins", "nvrtc", "cublasLt", "cudnn")
# The toolkit folder of NVIDIA's installers.
TOOLKIT = "/usr/local/cuda"


def versions() -> tuple[int, int]:
    """Return the CUDA versions to search, the version of a loaded CuPy first."""
    cupy = sys.modules.get("cupy")
    built = 13 if cupy is None else cupy.cuda.runtime.runtimeGetVersion() // 1000
    return (12, 13) if built == 12 else (13, 12)


def sonames(name: str) -> list[str]:
    """Return the possible file names of a library, best first."""
    names = (SONAMES[name].format(cuda=version) for version in versions())
    return list(dict.fromkeys(names))


def folders() -> Iterator[Path]:
    """Yield the search folders: wheels of the `nvidia` namespace, then toolkits."""
    for root in find_package_folders("nvidia"):
        yield from sorted(root.glob("*/lib"))
    # A toolkit is often in none of the system's library folders.
    named = (os.environ.get(name) for name in ("CUDA_PATH", "CUDA_HOME"))
    for toolkit in (*named, TOOLKIT):
        if toolkit and os.path.isabs(toolkit):
            yield Path(toolkit) / "lib64"


def path_of(name: str) -> Path | None:
    """Return the file of a library; None if only the system can find it."""
    directories = [*_frontend_folders(name), *folders()]
    for soname in sonames(name):
        for folder in directories:
            for path in sorted(folder.glob(soname)):
                return path
    return None


def _frontend_folders(name: str) -> list[Path]:
    """Return the folders that cuDNN's frontend searches first, for the same file."""
    if name != "cudnn":
        return []
    directories = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return [Path(directory) for directory in directories if os.path.isabs(directory)]


@cache
def load(name: str) -> ctypes.CDLL:
    """Load a library by its short name, once.

    Args:
        name: a key of `SONAMES`.

    Raises:
        BackendUnavailable: no wheel, no toolkit and no system folder contains it.
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
        f"{install_command('cuda13')}, or {WHEELS[name]} alone"
    )


def preload() -> None:
    """Load the available libraries that cuDNN needs before its first graph.

    Raises:
        BackendUnavailable: cuBLASLt is missing, which cuDNN requires.
    """
    for name in ORDER[:-2]:
        if path_of(name) is not None:
            load(name)
    load("cublasLt")
