"""ctypes binding of NVRTC: CUDA sources to machine code, with or without a device."""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from toolkit.backends.cupy import libraries
from toolkit.backends.cupy.cuda.launch import Kernel
from toolkit.errors import DeviceError
from toolkit.processes import find_package_folders, load_library

# C++17 and IEEE 754 arithmetic: no fast-math options. A prelude contains unused
# helpers, so warnings are disabled.
OPTIONS = ("--std=c++17", "-default-device", "--disable-warnings")
# Skips the compiler's own headers, whose unused declarations cost 8 ms per source.
# NVRTC 13 supports the option; it is an error in some earlier versions.
MINIMAL = "--minimal"
# For kernels whose bits must not depend on the fusion of products and sums.
NO_CONTRACTION = "--fmad=false"


@cache
def library() -> ctypes.CDLL | None:
    """Return NVRTC, or None if it is not installed."""
    for path in map(Path, _candidates()):
        # NVRTC loads its builtins library by name only, so that is loaded first. A name
        # that the system resolves has no folder, which would otherwise mean the current
        # one.
        builtins = (
            path.parent.glob("libnvrtc-builtins.so.*") if path.is_absolute() else ()
        )
        try:
            for other in sorted(builtins):
                load_library(str(other), ctypes.RTLD_GLOBAL)
            return load_library(str(path))
        except OSError:
            continue
    return None


def _candidates() -> list[str]:
    """Return the possible paths, in NVIDIA's wheels, a toolkit, or the system."""
    names = [*libraries.sonames("nvrtc"), "libnvrtc.so"]
    if sys.platform == "win32":
        names = [f"nvrtc64_{version}0_0.dll" for version in libraries.versions()]
    paths_in_roots: list[str] = []
    for root in find_package_folders("nvidia"):
        for name in names:
            paths_in_roots += map(str, sorted(root.glob(f"*/**/{name}")))
    paths = (folder / name for folder in libraries.folders() for name in names)
    return [*paths_in_roots, *(str(path) for path in paths if path.exists()), *names]


@cache
def version() -> str:
    """Return the compiler's version, for example "13.0"; "" without it."""
    nvrtc, numbers = library(), (ctypes.c_int * 2)()
    if nvrtc is None:
        return ""
    pointers = (
        ctypes.byref(numbers, i * ctypes.sizeof(ctypes.c_int)) for i in range(2)
    )
    _check(nvrtc.nvrtcVersion(*pointers))
    return ".".join(map(str, numbers))


def options() -> tuple[str, ...]:
    """Return the options of every compilation."""
    is_known = int(version().partition(".")[0] or 0) >= 13
    return (*OPTIONS, MINIMAL) if is_known else OPTIONS


def key(kernel: Kernel, arch: int, runtime: str = "") -> str:
    """Return a cache key that only equal machine code shares.

    Args:
        kernel, arch: as for `compile_kernel`.
        runtime: the version of the library that loads it.
    """
    facts = (version(), runtime, arch, options(), kernel.name, kernel.source)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _check(status: int) -> None:
    if status:
        get = library().nvrtcGetErrorString  # type: ignore[union-attr]
        get.restype = ctypes.c_char_p
        raise DeviceError(f"nvrtc: {get(status).decode()}")


def compile_source(
    source: str, name: str, arch: int, extra_options: Sequence[str] = ()
) -> tuple[bytes, str]:
    """Compile a source to machine code.

    Args:
        source: complete CUDA C++ text.
        name: the name for messages.
        arch: the compute capability, 90 for sm_90.
        extra_options: options in addition to `options`.

    Returns:
        The cubin, and the compiler's log.

    Raises:
        DeviceError: without NVRTC, or with the compiler's messages.
    """
    nvrtc = library()
    if nvrtc is None:
        raise DeviceError(
            "nvrtc: not found; expected NVIDIA's compiler library, which the extras "
            "cuda12 and cuda13 install"
        )
    program = ctypes.c_void_p()
    _check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), f"{name}.cu".encode(), 0, None, None
        )
    )
    try:
        words = [w.encode() for w in (f"-arch=sm_{arch}", *options(), *extra_options)]
        array = (ctypes.c_char_p * len(words))(*words)
        status = nvrtc.nvrtcCompileProgram(program, len(words), array)
        log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        message = log.rstrip(b"\0").decode()
        if status:
            raise DeviceError(f"nvrtc: {name} does not compile:\n{message}")
        cubin = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin, message


def _read(
    size_of: ctypes._NamedFuncPointer,
    get: ctypes._NamedFuncPointer,
    program: ctypes.c_void_p,
) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))
    content = ctypes.create_string_buffer(size.value)
    _check(get(program, content))
    return content.raw


def compile_kernel(
    kernel: Kernel, arch: int, extra_options: Sequence[str] = ()
) -> bytes:
    """Return the cubin of a kernel for a compute capability."""
    contraction = () if kernel.is_contracted else (NO_CONTRACTION,)
    options = (*contraction, *extra_options)
    return compile_source(kernel.source, kernel.name, arch, options)[0]
