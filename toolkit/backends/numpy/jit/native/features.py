"""The x86 features that a native library checks before it runs its code."""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.backends.numpy.jit.processor import LEVELS, Processor

# Bits of cpuid by LLVM's names: of ECX in leaf 1, of EBX and ECX in leaf 7, and of EAX
# in subleaf 1 of leaf 7.
_ONE_C = {
    "sse3": 0,
    "pclmul": 1,
    "ssse3": 9,
    "fma": 12,
    "sse4.1": 19,
    "sse4.2": 20,
    "movbe": 22,
    "popcnt": 23,
    "xsave": 26,
    "avx": 28,
    "f16c": 29,
}
_SEVEN_B = {
    "bmi": 3,
    "avx2": 5,
    "bmi2": 8,
    "avx512f": 16,
    "avx512dq": 17,
    "avx512ifma": 21,
    "avx512cd": 28,
    "avx512bw": 30,
    "avx512vl": 31,
}
_SEVEN_C = {
    "avx512vbmi": 1,
    "avx512vbmi2": 6,
    "gfni": 8,
    "vaes": 9,
    "vpclmulqdq": 10,
    "avx512vnni": 11,
    "avx512bitalg": 12,
    "avx512vpopcntdq": 14,
}
_PART_A = {"avxvnni": 4, "avx512bf16": 5}
_OSXSAVE = 27  # of leaf 1: xgetbv reports the registers that the system saves
# The registers that the system must save for vectors of 32 and of 64 bytes.
_AVX, _AVX512 = 0x06, 0xE6


def required_features(processor: Processor) -> list[str]:
    """Return the fields of the record that processor_x86.ll compares with cpuid."""
    listed = (x[1:] for x in processor.features.split(",") if x.startswith("+"))
    features = {*LEVELS.get(processor.cpu, ()), *listed}
    states = _AVX if "avx" in features else 0
    states = _AVX512 if "avx512f" in features else states
    one = _mask(_ONE_C, features) | (1 << _OSXSAVE if states else 0)
    return [
        f"i32 {one}",
        f"i32 {_mask(_SEVEN_B, features)}",
        f"i32 {_mask(_SEVEN_C, features)}",
        f"i32 {_mask(_PART_A, features)}",
        f"i64 {states}",
    ]


def _mask(bits: dict[str, int], features: Iterable[str]) -> int:
    """Return the bits of features as a signed 32-bit integer."""
    mask = sum(1 << bits[name] for name in features if name in bits)
    return mask - (1 << 32) if mask >> 31 else mask
