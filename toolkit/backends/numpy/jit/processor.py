"""The target processor of machine code: the host, or a named processor."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from toolkit import settings
from toolkit.backends.numpy.jit.llvm import binding
from toolkit.definitions.records import record
from toolkit.dtypes import itemsize
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.plans.rules import rules

# The size of a cache line in bytes.
CACHE_LINE = 64
# The default size of a core's second-level cache, in bytes.
_DEFAULT_CACHE_BYTES = 1 << 20
_CACHE_FILE = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
# The rows of an AMX tile, and the float32 numbers of a row.
TILE_LINES = 16
# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) on x86-64.
_REQUEST_TILES = (158, 0x1023, 18)
_ARM64 = ("aarch64", "arm64")
# Features of 64-bit ARM that LLVM does not detect: the entry of Linux's auxiliary
# vector and its bit (arch/arm64/include/uapi/asm/hwcap.h), and the name on macOS.
_UNDETECTED = {
    "dotprod": ((16, 1 << 20), b"hw.optional.arm.FEAT_DotProd"),
    "bf16": ((26, 1 << 14), b"hw.optional.arm.FEAT_BF16"),
}
_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl")
# The features that the name of a processor implies, in LLVM's terms.
LEVELS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}


@record
class Processor:
    """The properties of a processor that code generators use.

    Attributes:
        triple, cpu, features, abi: LLVM's names of the system, the processor, its
            additional features, and the calling convention ("": the default).
        lanes: the number of float32 lanes of a vector.
        registers: the number of vector registers.
        has_fma: whether a fused multiply-add instruction exists.
        pointer_bits: the size of an address.
        cache_bytes: the size of a core's second-level cache. The rows of a group should
            fit in it.
        threads: whether programs can divide their work among threads.
        tiles: whether this process can use AMX tiles of bfloat16.
    """

    triple: str
    cpu: str
    features: str = ""
    abi: str = ""
    lanes: int = 4
    registers: int = 16
    has_fma: bool = True
    pointer_bits: int = 64
    cache_bytes: int = _DEFAULT_CACHE_BYTES
    threads: bool = True
    tiles: bool = False

    @property
    def architecture(self) -> str:
        """The first part of the triple."""
        return self.triple.partition("-")[0]

    @property
    def has_tiles(self) -> bool:
        """Whether AMX is available, and vectors have the length of a tile's rows."""
        return self.tiles and self.lanes == TILE_LINES

    @property
    def has_dots(self) -> bool:
        """Whether bfloat16 dot products are faster than float32 products.

        The vector dot products of Intel are not faster: one takes as long as two
        float32 products.
        """
        if self.is_arm64:
            return self.has("bf16")
        return self.has("avx512bf16") and self.lanes == 16 and "znver" in self.cpu

    @property
    def rounds_factors(self) -> bool:
        """Whether products round factors to bfloat16 if the program allows it."""
        return self.has_tiles or self.has_dots

    @property
    def converts_float16(self) -> bool:
        """Whether instructions convert between float16 and float32."""
        return self.is_arm64 or self.lanes == 16 or self.has("f16c")

    @property
    def has_rounding(self) -> bool:
        """Whether instructions for rounding to integers exist."""
        return not self.architecture.startswith("arm")

    @property
    def name(self) -> str:
        """The name in `PROCESSORS`; for another processor, the name of LLVM."""
        names = (
            name
            for name, processor in PROCESSORS.items()
            if (processor.triple, processor.cpu) == (self.triple, self.cpu)
        )
        return next(names, self.cpu)

    @property
    def is_arm64(self) -> bool:
        """Whether it is a 64-bit ARM."""
        return self.architecture in _ARM64

    def has(self, feature: str) -> bool:
        """Return whether a feature is listed, or implied by the processor's name."""
        if f"+{feature}" in self.features.split(","):
            return True
        return feature in LEVELS.get(self.cpu, ())

    def with_lanes(self, lanes: int) -> Processor:
        """Return this processor with vectors of another width."""
        registers = 32 if lanes == 16 or self.is_arm64 else 16
        return replace(self, lanes=lanes, registers=registers)

    @staticmethod
    @lru_cache(maxsize=1)
    def host() -> Processor:
        """Return the host processor, or the baseline that the environment selects."""
        llvm = binding()
        triple = llvm.get_default_triple()
        try:
            features = llvm.get_host_cpu_features()
        except RuntimeError:  # LLVM cannot detect features on this system
            features = llvm.FeatureMap()
        lanes = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4
        is_x86 = platform.machine() in ("x86_64", "AMD64")
        host = Processor(
            triple=triple,
            cpu=llvm.get_host_cpu_name(),
            features=",".join(
                filter(None, (features.flatten(), *_undetected_features(triple)))
            ),
            has_fma=not is_x86 or bool(features.get("fma")),
            cache_bytes=_host_cache_bytes(),
            tiles=bool(features.get("amx-bf16")) and _request_tiles(),
        )
        host = host.with_lanes(lanes)
        name = settings.environment("PROCESSOR")
        return _baseline_processor(host, name) if name else host


def _baseline_processor(machine: Processor, name: str) -> Processor:
    """Return a named processor, if the host has all its features."""
    kind = machine.architecture.replace("arm64", "aarch64")
    names = [n for n, p in PROCESSORS.items() if p.architecture == kind]
    if name not in names:
        raise unknown_choice("TOOLKIT_PROCESSOR", name, names)
    unsupported = [x for x in LEVELS.get(name, ()) if not machine.has(x)]
    if unsupported:
        raise ArgumentError(
            f"TOOLKIT_PROCESSOR: this machine does not support {name}: it lacks "
            f"{', '.join(unsupported)}"
        )
    return replace(
        PROCESSORS[name], triple=machine.triple, cache_bytes=machine.cache_bytes
    )


def _undetected_features(triple: str) -> list[str]:
    """Return the features that LLVM does not detect, in LLVM's terms.

    Args:
        triple: the triple of this process. A 32-bit process can run on a 64-bit
            processor.
    """
    if triple.partition("-")[0] not in _ARM64:
        return []
    if sys.platform == "linux":
        names = [name for name, (bit, _) in _UNDETECTED.items() if _has_on_linux(*bit)]
    elif sys.platform == "darwin":
        names = [name for name, (_, key) in _UNDETECTED.items() if _has_on_mac(key)]
    else:
        names = []
    return [f"+{name}" for name in names]


def _has_on_linux(entry: int, bit: int) -> bool:
    ask = getattr(ctypes.CDLL(None), "getauxval", None)
    if ask is None:  # an older C library
        return False
    ask.restype = ctypes.c_ulong
    return bool(ask(ctypes.c_ulong(entry)) & bit)


def _has_on_mac(key: bytes) -> bool:
    value = ctypes.c_int(0)
    size, null = ctypes.c_size_t(ctypes.sizeof(value)), ctypes.c_void_p()
    status = ctypes.CDLL(None).sysctlbyname(
        key, ctypes.byref(value), ctypes.byref(size), null, ctypes.c_size_t(0)
    )
    return status == 0 and value.value == 1


def _request_tiles() -> bool:
    """Request AMX tiles: Linux saves tile registers only for processes that do.

    Repeated requests are valid. See https://docs.kernel.org/arch/x86/xstate.html
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.syscall(*map(ctypes.c_long, _REQUEST_TILES)) == 0)


def _host_cache_bytes() -> int:
    with contextlib.suppress(OSError, ValueError):
        return 1024 * int(_CACHE_FILE.read_text("utf-8").strip().removesuffix("K"))
    return _DEFAULT_CACHE_BYTES


_X86 = Processor("x86_64-unknown-linux-gnu", "")
# Cache sizes of common cores. A wrong size costs some speed.
PROCESSORS = {
    "x86-64-v2": replace(_X86, cpu="x86-64-v2", has_fma=False, cache_bytes=1 << 18),
    "x86-64-v3": replace(_X86, cpu="x86-64-v3", lanes=8, cache_bytes=1 << 19),
    "x86-64-v4": replace(_X86, cpu="x86-64-v4", lanes=16, registers=32),
    "aarch64": Processor(
        "aarch64-unknown-linux-gnu", "generic", registers=32, cache_bytes=1 << 19
    ),
    "armv7": Processor(
        "armv7-unknown-linux-gnueabihf",
        "generic",
        "+neon,+vfp4",
        pointer_bits=32,
        cache_bytes=1 << 18,
    ),
    "riscv64": Processor(
        "riscv64-unknown-linux-gnu",
        "generic-rv64",
        "+m,+a,+f,+d,+c,+v",
        "lp64d",
        registers=32,
        cache_bytes=1 << 18,
    ),
    "wasm32": Processor(
        "wasm32-unknown-unknown",
        "generic",
        "+simd128,+bulk-memory",
        has_fma=False,
        pointer_bits=32,
        cache_bytes=1 << 18,
        threads=False,
    ),
}
# Families of processors, each compatible with the previous ones.
FAMILIES = {"x86-64": ("x86-64-v2", "x86-64-v3", "x86-64-v4")}


def current() -> Processor:
    """Return the processor of the current compilation."""
    return rules.processor or Processor.host()


def lanes_of(dtype: str) -> int:
    """Return the number of elements of a vector register of the target processor."""
    return max(1, current().lanes * 4 // itemsize(dtype))


def find(name: str | None = None, threads: bool = True) -> tuple[Processor, ...]:
    """Return the host's processor, or the processors with a name.

    Raises:
        ArgumentError: if no processor has that name.
    """
    if name is None:
        # A program cannot use tiles without a request to the system.
        processors = [replace(Processor.host(), tiles=False)]
    elif name in FAMILIES or name in PROCESSORS:
        processors = [
            PROCESSORS[processor] for processor in FAMILIES.get(name, (name,))
        ]
    else:
        raise unknown_choice("processor", name, [*FAMILIES, *PROCESSORS])
    return tuple(
        replace(processor, threads=threads and processor.threads)
        for processor in processors
    )


def missing_dtypes(processor: Processor) -> dict[str, list[str]]:
    """Return the dtypes without code for a processor, and the processors with code."""
    missing: dict[str, list[str]] = {"complex64": [], "complex128": []}
    if not processor.converts_float16:
        missing["float16"] = [n for n, p in PROCESSORS.items() if p.converts_float16]
    return missing
