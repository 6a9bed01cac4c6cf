"""Words: terms of a product side by side in 32 bits, which are multiplied at once.

Dot-product instructions (VNNI, NEON's `sdot`) multiply four terms of 8 bits by four and
add all of it to a sum of 32 bits. Where there is none, a word is two terms of 16 bits:
most processors multiply and add such pairs, and LLVM knows the pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.backends.numpy.jit.builder import Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import Processor


@dataclass(frozen=True)
class Words:
    """How words are multiplied.

    Attributes:
        terms: of a word.
        offset: what is added to each term of the first factor, as the instruction takes
            that without a sign.
        instruction: LLVM's name of it; "": pairs, in plain operations.
    """

    terms: int = 2
    offset: int = 0
    instruction: str = ""

    @property
    def bits(self) -> int:
        """Of a term."""
        return 32 // self.terms

    def joined(self, b: Kernel, terms: Sequence[Value]) -> Value:
        """A vector of words from vectors of their terms, as int32."""
        word = b.filled(0, "int32")
        low = b.filled((1 << self.bits) - 1, "int32")
        for i, x in enumerate(terms):
            by = b.filled(i * self.bits, "int32")
            word = b.binary("or", word, b.binary("shl", b.binary("and", x, low), by))
        return word

    def multiply_add(self, b: Kernel, sums: Value, x: Value, y: Value) -> Value:
        """`sums` and the products of the terms of x and y, vectors of words."""
        if not self.instruction:
            return _with_pairs(b, sums, x, y)
        # As vectors of int32, which older LLVMs expect of VNNI and newer ones accept.
        words = [x, y]
        kind = sums.type
        if "neon" in self.instruction:
            kind = f"<{4 * b.lanes} x i8>"
            words = [b.let(f"bitcast {v.type} {v} to {kind}", "int8") for v in words]
        name = f"@llvm.{self.instruction}"
        b.declarations.add(f"declare {sums.type} {name}({sums.type}, {kind}, {kind})")
        operands = ", ".join(f"{kind} {v.text}" for v in words)
        text = f"call {sums.type} {name}({sums.type} {sums}, {operands})"
        return b.let(text, "int32", b.lanes)


def _with_pairs(b: Kernel, sums: Value, x: Value, y: Value) -> Value:
    lanes = b.lanes

    def widened(v: Value) -> Value:
        text = f"bitcast {v.type} {v} to <{2 * lanes} x i16>"
        return b.convert("sext", b.let(text, "int16", 2 * lanes), "int32")

    products = b.binary("mul nsw", widened(x), widened(y))
    even, odd = (
        b.shuffled(products, products, range(first, 2 * lanes, 2)) for first in (0, 1)
    )
    return b.binary("add", sums, b.binary("add", even, odd))


def words_of(processor: Processor) -> Words:
    """The best words of a processor."""
    lanes, has = processor.lanes, processor.has
    if processor.architecture == "x86_64":
        is_narrow = has("avxvnni") or (has("avx512vnni") and has("avx512vl"))
        if has("avx512vnni") if lanes == 16 else is_narrow:
            return Words(4, 128, f"x86.avx512.vpdpbusd.{32 * lanes}")
    if processor.is_arm64 and has("dotprod") and lanes == 4:
        return Words(4, 0, "aarch64.neon.sdot.v4i32.v16i8")
    return Words()
