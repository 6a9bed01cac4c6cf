"""Conversions between float32 and bfloat16, its rounded upper half."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Builder, Value, vector_type
from toolkit.backends.numpy.jit.processor import current

NARROW, WIDE = "bfloat16", "float32"


def widened(b: Builder, x: Value) -> Value:
    """Convert bfloat16 to float32."""
    bits = b.convert("zext", x, "int32")
    return b.convert("bitcast", b.binary("shl", bits, b.constant(16, bits)), WIDE)


def narrowed(b: Builder, x: Value) -> Value:
    """Convert float32 to the nearest bfloat16, ties to even.

    ARM has an instruction for this. The instruction of AVX512_BF16 flushes denormal
    numbers to 0, so it is not used.
    """
    if current().is_arm64 and current().has("bf16"):
        half, bits_of = (vector_type(kind, x.lanes) for kind in ("bfloat", "i16"))
        rounded_half = b.let(f"fptrunc {x.type} {x} to {half}", NARROW, x.lanes)
        return b.let(f"bitcast {half} {rounded_half} to {bits_of}", NARROW, x.lanes)
    bits = b.convert("bitcast", x, "int32")

    def constant(number: int) -> Value:
        return b.constant(number, bits)

    upper = b.binary("lshr", bits, constant(16))
    # A carry into the exponent also gives the right result.
    odd = b.binary("and", upper, constant(1))
    rounded = b.binary("add", bits, b.binary("add", odd, constant(0x7FFF)))
    rounded = b.binary("lshr", rounded, constant(16))
    sign = b.binary("and", upper, constant(0x8000))
    nan = b.binary("or", sign, constant(0x7FC0))
    is_nan = b.binary("fcmp uno", x, x, "bool")
    return b.convert("trunc", b.select(is_nan, nan, rounded), NARROW)
