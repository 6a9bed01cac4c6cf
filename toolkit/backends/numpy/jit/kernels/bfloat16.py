"""Conversions between float32 and bfloat16, which is its upper half, rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.lowering import Call, Lowered, Operand, Reference
from toolkit.backends.numpy.jit.processor import current

GRAIN = 32768
_PAIR = ("bfloat16", "float32")


def emit_conversion(to_wide: bool) -> Kernel:
    """out = x in the other dtype, elements [low, high)."""
    b = Kernel(current().lanes)
    x, out = b.address(0), b.address(1)
    convert = _to_wide if to_wide else _to_narrow
    dtype = "uint16" if to_wide else "float32"
    for index, mask in b.run(b.low, b.high):
        b.store(convert(b, b.load(x, index, dtype, mask)), out, index, mask)
    return b


def _to_wide(b: Kernel, bits: Value) -> Value:
    """float32 from the bits of bfloat16, which are its upper half."""
    wide = b.convert("zext", bits, "int32")
    return b.convert("bitcast", b.binary("shl", wide, b.constant(16, wide)), "float32")


def _to_narrow(b: Kernel, number: Value) -> Value:
    """The bits of the nearest bfloat16."""
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
    return b.convert("trunc", b.select(is_nan, nan, rounded), "uint16")


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
