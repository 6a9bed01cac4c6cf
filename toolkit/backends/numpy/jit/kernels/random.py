"""Uniform random numbers: the bits of NumPy's Philox 4x64-10, in any order of blocks.

Philox maps a counter and a key to a block of four 64-bit words. It has ten rounds of
two products each (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).
Blocks are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.backends.numpy.jit.builder import TYPES, Index, Number, Pointer, Value
from toolkit.backends.numpy.jit.calls import Call, Lowered, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

_ROUNDS = 10
_FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
# For each dtype: elements of a block, integer type, dropped bits, scale.
_FORMS = {
    "float32": (8, "int32", 8, 2.0**-24),
    "float64": (4, "int64", 11, 2.0**-53),
}
# The approximate number of instructions of a block, counted as FLOPs.
_BLOCK_COST = 100


def emit_uniform(dtype: str, ragged: bool) -> Kernel:
    """Emit out = the elements of blocks [low, high). A `ragged` end is partial."""
    elements = _FORMS[dtype][0]
    b = Kernel(elements)
    key, out, size = b.address(0), b.address(1), b.entry(2)
    keys = _round_keys(b, key)
    with b.loop(b.low, b.high) as row:
        # NumPy increments the counter before it computes a block.
        words: list[Number] = [row + 1, 0, 0, 0]
        for first, second in keys:
            high0, low0 = _product(b, _FACTORS[0], words[0])
            high1, low1 = _product(b, _FACTORS[1], words[2])
            words = [high1 ^ words[1] ^ first, low1, high0 ^ words[3] ^ second, low0]
        block = _uniform(b, words, dtype)
        start = row * elements
        mask = b.first_lanes(size - start, "int64") if ragged else None
        b.store(block, out, start, mask)
    return b


def _round_keys(b: Kernel, key: Pointer) -> list[tuple[Index, Index]]:
    """Return the two key words of every round."""
    words = [
        b.index(f"zext i32 {b.scalar(key + 4 * k, 'uint32')} to i64") for k in (0, 1)
    ]
    first, second = _STEPS
    return [
        (words[0] + _signed(number * first), words[1] + _signed(number * second))
        for number in range(_ROUNDS)
    ]


def _product(b: Kernel, factor: int, word: Number) -> tuple[Index, Index]:
    """Return the high and the low half of a product of 64-bit words."""
    word_128 = b.index(f"zext i64 {word} to i128")
    product = b.index(f"mul i128 {word_128}, {factor}")
    shifted = b.index(f"lshr i128 {product}, 64")
    high = b.index(f"trunc i128 {shifted} to i64")
    return high, b.index(f"trunc i128 {product} to i64")


def _uniform(b: Kernel, words: Sequence[Number], dtype: str) -> Value:
    """Return the words as numbers in [0, 1), from their upper bits."""
    elements, integer, dropped_bits, scale = _FORMS[dtype]
    block = Value("poison", "int64", len(words))
    for k, word in enumerate(words):
        text = f"insertelement {block.type} {block}, i64 {word}, i64 {k}"
        block = b.let(text, "int64", len(words))
    target = f"<{elements} x {TYPES[integer]}>"
    bits = b.let(f"bitcast {block.type} {block} to {target}", integer, elements)
    shifted = b.binary("lshr", bits, b.constant(dropped_bits, bits))
    number = b.convert("uitofp", shifted, dtype)
    return b.binary("fmul", number, b.constant(scale, number))


def _signed(word: int) -> int:
    """Return the lower 64 bits as a signed integer."""
    word %= 2**64
    return word - 2**64 if word >= 2**63 else word


def lower_random_uniform(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower uniform random numbers from a key of two words."""
    spec = outputs[0].spec
    if spec.dtype not in _FORMS or not inputs[0].is_contiguous:
        return None
    elements = _FORMS[spec.dtype][0]
    blocks, ragged = -(-spec.size // elements), bool(spec.size % elements)
    # The last task of a ragged result writes fewer elements than its rows have.
    result = ("out", 0)
    call = Call(
        Code(emit_uniform, spec.dtype, ragged),
        (("in", 0), result),
        (spec.size,),
        rows=blocks,
        grain=partition(blocks),
        row_operands=frozenset() if ragged else frozenset({result}),
        flops=_BLOCK_COST * blocks,
        nbytes=spec.nbytes,
    )
    return Lowered((call,))
