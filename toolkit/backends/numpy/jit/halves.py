"""Conversions between float32 and bfloat16, which is its upper half, rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.engine import host
from toolkit.backends.numpy.jit.lowering import Call, Lowered, Operand, Reference
from toolkit.backends.numpy.jit.memory import Memory

GRAIN = 32768
_PAIR = ("bfloat16", "float32")


def emit_conversion(to_wide: bool) -> Builder:
    """out = x in the other dtype, elements [low, high)."""
    b = Builder(host().lanes)
    memory = Memory(b)
    x, out = (
        b.let(f"load ptr, ptr {memory.offset('%table', str(k), 'i64')}", "int64").text
        for k in range(2)
    )
    rest = b.integer("and", b.integer("sub", "%hi", "%lo"), b.lanes - 1)
    whole = b.integer("sub", "%hi", rest)
    with b.loop("%lo", whole, b.lanes) as i:
        _convert(b, memory, x, out, i, None, to_wide)
    with b.loop(whole, "%hi", b.lanes) as i:
        left = b.splat(b.convert("trunc", Value(rest, "int64"), "int32"))
        numbers = ", ".join(f"i32 {k}" for k in range(b.lanes))
        lanes = Value(f"<{numbers}>", "int32", b.lanes)
        mask = b.binary("icmp slt", lanes, left, "bool").text
        _convert(b, memory, x, out, i, mask, to_wide)
    return b


def _convert(
    b: Builder,
    memory: Memory,
    x: str,
    out: str,
    index: str,
    mask: str | None,
    to_wide: bool,
) -> None:
    if to_wide:
        half = b.convert("zext", memory.load(x, index, "uint16", mask), "int32")
        bits = b.binary("shl", half, b.constant(16, half))
        memory.store(b.convert("bitcast", bits, "float32"), out, index, mask)
        return
    number = memory.load(x, index, "float32", mask)
    bits = b.convert("bitcast", number, "int32")

    def constant(value: int) -> Value:
        return b.constant(value, bits)

    upper = b.binary("lshr", bits, constant(16))
    # To the nearest, a tie to the even one; a carry into the exponent is right too.
    odd = b.binary("and", upper, constant(1))
    rounded = b.binary("add", bits, b.binary("add", odd, constant(0x7FFF)))
    rounded = b.binary("lshr", rounded, constant(16))
    sign = b.binary("and", upper, constant(0x8000))
    nan = b.binary("or", sign, constant(0x7FC0))
    is_nan = b.binary("fcmp uno", number, number, "bool")
    half = b.convert("trunc", b.select(is_nan, nan, rounded), "uint16")
    memory.store(half, out, index, mask)


def lower_cast(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """A cast from or to bfloat16; all others are part of fused loops."""
    source, target = inputs[0].spec.dtype, outputs[0].spec.dtype
    if {source, target} != set(_PAIR) or not inputs[0].is_contiguous:
        return None
    size = outputs[0].spec.size
    operands: tuple[Reference, ...] = (("in", 0), ("out", 0))
    call = Call(
        Code(emit_conversion, target == "float32"),
        operands,
        (),
        size,
        GRAIN,
        frozenset(operands),
        flops=size,
        nbytes=6 * size,
    )
    return Lowered((call,))
