"""Uniform random numbers: the bits of NumPy's Philox 4x64-10, in any order of blocks.

Philox turns a counter and a key into a block of four 64-bit words by ten rounds of two
products each (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011), so
every block can be computed by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.lowering import Call, Lowered, Operand, partition
from toolkit.backends.numpy.jit.memory import Memory

_ROUNDS = 10
_FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
# For each dtype: elements of a block, integer type, bits dropped, scale.
_FORMS = {
    "float32": (8, "i32", 8, 2.0**-24),
    "float64": (4, "i64", 11, 2.0**-53),
}
# Instructions of a block, roughly, which count as its arithmetic.
_BLOCK_COST = 100


def emit_uniform(dtype: str, ragged: bool) -> Builder:
    """out = the elements of blocks [low, high); `ragged`: the last may be partial."""
    elements, integer, drop, scale = _FORMS[dtype]
    b = Builder(elements)
    memory = Memory(b)
    key, out = (_entry(b, memory, k, "ptr") for k in range(2))
    size = _entry(b, memory, 2, "i64")
    keys = _round_keys(b, memory, key)
    with b.loop("%lo", "%hi") as row:
        # NumPy counts up before it computes a block.
        words = [b.integer("add", row, 1), "0", "0", "0"]
        for first, second in keys:
            high0, low0 = _product(b, _FACTORS[0], words[0])
            high1, low1 = _product(b, _FACTORS[1], words[2])
            words = [
                b.integer("xor", b.integer("xor", high1, words[1]), first),
                low1,
                b.integer("xor", b.integer("xor", high0, words[3]), second),
                low0,
            ]
        block = _uniform(b, words, elements, integer, drop, scale, dtype)
        start = b.integer("mul", row, elements)
        mask = _mask(b, start, size) if ragged else None
        memory.store(block, out, start, mask)
    return b


def _entry(b: Builder, memory: Memory, index: int, kind: str) -> str:
    place = memory.offset("%table", str(index), "i64")
    return b.let(f"load {kind}, ptr {place}", "int64").text


def _round_keys(b: Builder, memory: Memory, key: str) -> list[tuple[str, str]]:
    """The two key words of every round."""
    words = []
    for k in range(2):
        place = memory.offset(key, str(k), "i32")
        word = b.let(f"load i32, ptr {place}", "uint32")
        words.append(b.let(f"zext i32 {word.text} to i64", "int64").text)
    keys = []
    for number in range(_ROUNDS):
        steps = [_signed(number * step % 2**64) for step in _STEPS]
        first, second = (
            b.integer("add", word, step) if step else word
            for word, step in zip(words, steps, strict=True)
        )
        keys.append((first, second))
    return keys


def _product(b: Builder, factor: int, word: str) -> tuple[str, str]:
    """The upper and the lower half of a product of 64-bit words."""
    wide = b.let(f"zext i64 {word} to i128", "int64").text
    product = b.let(f"mul i128 {wide}, {factor}", "int64").text
    shifted = b.let(f"lshr i128 {product}, 64", "int64").text
    high = b.let(f"trunc i128 {shifted} to i64", "int64").text
    low = b.let(f"trunc i128 {product} to i64", "int64").text
    return high, low


def _uniform(
    b: Builder,
    words: list[str],
    elements: int,
    integer: str,
    drop: int,
    scale: float,
    dtype: str,
) -> Value:
    """The words as numbers in [0, 1), from their upper bits."""
    vector = "poison"
    for k, word in enumerate(words):
        vector = b.let(
            f"insertelement <4 x i64> {vector}, i64 {word}, i64 {k}", "int64"
        ).text
    name = "int32" if integer == "i32" else "int64"
    bits = b.let(f"bitcast <4 x i64> {vector} to <{elements} x {integer}>", name)
    bits = Value(bits.text, name, elements)
    kept = b.binary("lshr", bits, b.constant(drop, bits))
    number = b.convert("uitofp", kept, dtype)
    return b.binary("fmul", number, b.constant(scale, number))


def _mask(b: Builder, start: str, size: str) -> str:
    left = b.splat(Value(b.integer("sub", size, start), "int64"))
    lanes = ", ".join(f"i64 {i}" for i in range(b.lanes))
    return b.binary(
        "icmp slt", Value(f"<{lanes}>", "int64", b.lanes), left, "bool"
    ).text


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def lower_random_uniform(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Numbers from a key of two words."""
    spec = outputs[0].spec
    if spec.dtype not in _FORMS or not inputs[0].is_contiguous:
        return None
    elements = _FORMS[spec.dtype][0]
    blocks, ragged = -(-spec.size // elements), bool(spec.size % elements)
    call = Call(
        Code(emit_uniform, spec.dtype, ragged),
        (("in", 0), ("out", 0)),
        (spec.size,),
        blocks,
        partition(blocks),
        frozenset() if ragged else frozenset({("out", 0)}),
        flops=_BLOCK_COST * blocks,
        nbytes=spec.nbytes,
    )
    return Lowered((call,))
