"""Conversions between float32 and bfloat16, its rounded upper half."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Builder, Value, vector_type
from toolkit.backends.numpy.jit.math.rare_lanes import select_rare
from toolkit.backends.numpy.jit.math.vector import Vector
from toolkit.backends.numpy.jit.processor import current

NARROW, WIDE = "bfloat16", "float32"
# The lanes of a vector of AVX-512, and its classes of numbers: quiet and signaling NaN,
# and denormal.
_LANES, _DENORMAL_OR_NAN = 16, 0x01 | 0x80 | 0x20


def widened(b: Builder, x: Value) -> Value:
    """Convert bfloat16 to float32."""
    bits = b.convert("zext", x, "int32")
    return b.convert("bitcast", b.binary("shl", bits, b.constant(16, bits)), WIDE)


def narrowed(b: Builder, x: Value) -> Value:
    """Convert float32 to the nearest bfloat16, ties to even.

    ARM has an instruction for this. The instruction of AVX512_BF16 flushes denormal
    numbers to 0, and keeps other NaNs, so vectors with these are rounded as integers.
    """
    if current().is_arm64 and current().has("bf16"):
        half, bits_of = (vector_type(kind, x.lanes) for kind in ("bfloat", "i16"))
        rounded_half = b.let(f"fptrunc {x.type} {x} to {half}", NARROW, x.lanes)
        return b.let(f"bitcast {half} {rounded_half} to {bits_of}", NARROW, x.lanes)
    if x.lanes == _LANES and not current().is_arm64 and current().has("avx512bf16"):
        usual, rare = Vector(b, _converted(b, x)), Vector(b, _is_rare(b, x))
        (y,) = select_rare(rare, [usual], lambda: [Vector(b, _rounded(b, x))])
        return y.value
    return _rounded(b, x)


def _converted(b: Builder, x: Value) -> Value:
    """Round by the instruction of AVX512_BF16."""
    half, bits = (vector_type(kind, x.lanes) for kind in ("bfloat", "i16"))
    name = "@llvm.x86.avx512bf16.cvtneps2bf16.512"
    b.declarations.add(f"declare {half} {name}({x.type})")
    number = b.let(f"call {half} {name}({x.type} {x})", NARROW, x.lanes)
    return b.let(f"bitcast {half} {number} to {bits}", NARROW, x.lanes)


def _is_rare(b: Builder, x: Value) -> Value:
    """Return which lanes are denormal or NaN."""
    name, mask = "@llvm.x86.avx512.fpclass.ps.512", vector_type("i1", x.lanes)
    b.declarations.add(f"declare {mask} {name}({x.type}, i32 immarg)")
    text = f"call {mask} {name}({x.type} {x}, i32 {_DENORMAL_OR_NAN})"
    return b.let(text, "bool", x.lanes)


def _rounded(b: Builder, x: Value) -> Value:
    """Round by integer instructions."""
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
