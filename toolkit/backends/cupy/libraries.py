"""Where CUDA's libraries are: in wheels of the `nvidia` namespace, or the system's.

They are loaded by full path and for everyone (RTLD_GLOBAL), in an order in which each
finds what it needs: cuDNN ends the process where it does not find cuBLASLt.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from toolkit.errors import BackendUnavailable

# What each is called, newest first, and the wheel that brings it.
SONAMES = {
    "cublasLt": ("libcublasLt.so.13", "libcublasLt.so.12"),
    "cudnn": ("libcudnn.so.9",),
    "nvrtc": ("libnvrtc.so.13", "libnvrtc.so.12"),
    "nvrtc-builtins": ("libnvrtc-builtins.so.13.*", "libnvrtc-builtins.so.12.*"),
}
WHEELS = {
    "cublasLt": "nvidia-cublas",
    "cudnn": "nvidia-cudnn-cu13",
    "nvrtc": "nvidia-cuda-nvrtc",
    "nvrtc-builtins": "nvidia-cuda-nvrtc",
}
# cuDNN last: what it compiles at run time needs the others in place.
ORDER = ("nvrtc-builtins", "nvrtc", "cublasLt", "cudnn")


def folders() -> Iterator[Path]:
    """The `lib` folders of the installed wheels of the `nvidia` namespace."""
    spec = find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(root).glob("*/lib"))


def wheel_path(name: str) -> Path | None:
    """The file of a library in a wheel, None if no wheel has it."""
    for soname in SONAMES[name]:
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
    candidates = [str(path)] if path else [s for s in SONAMES[name] if "*" not in s]
    problems = []
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            problems.append(str(error))
    raise BackendUnavailable(
        f"{SONAMES[name][0]} was not found ({'; '.join(problems) or 'no wheel'}): "
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
