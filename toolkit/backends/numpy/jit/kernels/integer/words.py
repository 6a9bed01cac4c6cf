"""Words: several terms of a product in 32 bits, for one instruction.

Dot-product instructions (VNNI, NEON's `sdot`) multiply four 8-bit terms by four others
and add the products to a 32-bit sum. Without such an instruction, a word is two 16-bit
terms: most processors multiply and add such pairs, and LLVM recognizes the pattern.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.numpy.jit.builder import TYPES, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.definitions.records import record

# Words that take two instructions: their names by number of lanes, and their features.
_IN_STEPS = "in steps"
_STEPS = {
    4: ("x86.ssse3.pmadd.ub.sw.128", "x86.sse2.pmadd.wd"),
    8: ("x86.avx2.pmadd.ub.sw", "x86.avx2.pmadd.wd"),
    16: ("x86.avx512.pmaddubs.w.512", "x86.avx512.pmaddw.d.512"),
}
_STEPS_NEED = {4: "ssse3", 8: "avx2", 16: "avx512bw"}


@record
class Words:
    """The format of words and their multiplication.

    Attributes:
        terms: the terms of a word.
        offset: the number added to each term of the left operand, where the signedness
        of the instruction differs from that operand.
        instruction: LLVM's name of it, or "" for pairs in plain operations.
    """

    terms: int = 2
    offset: int = 0
    instruction: str = ""

    @property
    def is_two_step(self) -> bool:
        """Return whether a word's four terms take two x86 instructions.

        They add pairs in 16 bits, which is exact if one operand is unsigned with 7
        bits.
        """
        return self.instruction == _IN_STEPS

    @property
    def bits(self) -> int:
        """Return the bits of a term."""
        return 32 // self.terms

    def shift_bytes(self, b: Kernel, x: Value) -> Value:
        """Return bytes with the signedness that the instruction expects."""
        return b.binary("xor", x, b.constant(-128, x)) if self.offset else x

    def join_terms(self, b: Kernel, terms: Sequence[Value]) -> Value:
        """Return a vector of words from vectors of their terms, as int32."""
        word = b.filled(0, "int32")
        low = b.filled((1 << self.bits) - 1, "int32")
        for i, x in enumerate(terms):
            shift = b.filled(i * self.bits, "int32")
            word = b.binary("or", word, b.binary("shl", b.binary("and", x, low), shift))
        return word

    def multiply_add(self, b: Kernel, sums: Value, x: Value, y: Value) -> Value:
        """Return `sums` plus the products of the terms of x and y, vectors of words."""
        if not self.instruction:
            return _multiply_add_pairs(b, sums, x, y)
        if self.is_two_step:
            return _multiply_add_steps(b, sums, x, y)
        # int32 vectors: older LLVMs expect them for VNNI, newer ones accept them.
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


def _multiply_add_pairs(b: Kernel, sums: Value, x: Value, y: Value) -> Value:
    lanes = b.lanes

    def widened(v: Value) -> Value:
        text = f"bitcast {v.type} {v} to <{2 * lanes} x i16>"
        return b.convert("sext", b.let(text, "int16", 2 * lanes), "int32")

    products = b.binary("mul nsw", widened(x), widened(y))
    even, odd = (
        b.shuffled(products, products, range(first, 2 * lanes, 2)) for first in (0, 1)
    )
    return b.binary("add", sums, b.binary("add", even, odd))


def _multiply_add_steps(b: Kernel, sums: Value, x: Value, y: Value) -> Value:
    lanes = b.lanes
    bytes_of, pairs_of = _STEPS[lanes]

    def call(name: str, kind: str, dtype: str, *values: Value) -> Value:
        """Call an instruction with operands cast to a type. dtype is of its result."""
        casts = [b.let(f"bitcast {v.type} {v} to {kind}", dtype) for v in values]
        count = lanes if dtype == "int32" else 2 * lanes
        result = f"<{count} x {TYPES[dtype]}>"
        b.declarations.add(f"declare {result} @llvm.{name}({kind}, {kind})")
        operands = ", ".join(f"{kind} {v.text}" for v in casts)
        return b.let(f"call {result} @llvm.{name}({operands})", dtype, count)

    pairs = call(bytes_of, f"<{4 * lanes} x i8>", "int16", x, y)
    ones = b.constant(1, pairs)
    total = call(pairs_of, f"<{2 * lanes} x i16>", "int32", pairs, ones)
    return b.binary("add", sums, total)


def as_int8(number: int) -> int:
    """Return the signed 8-bit integer with the same low 8 bits."""
    return (number + 128) % 256 - 128


def words_of(processor: Processor, dtype: str = "int8", bits: int = 8) -> Words:
    """Return the best words of a processor.

    Args:
        processor: the target processor.
        dtype: of the left operand: int8 or uint8.
        bits: the significant bits of its elements.
    """
    lanes, has, is_signed = processor.lanes, processor.has, dtype == "int8"
    if processor.architecture == "x86_64":
        is_narrow = has("avxvnni") or (has("avx512vnni") and has("avx512vl"))
        if has("avx512vnni") if lanes == 16 else is_narrow:
            offset = 128 if is_signed else 0
            return Words(4, offset, f"x86.avx512.vpdpbusd.{32 * lanes}")
        if bits < 8 and not is_signed and has(_STEPS_NEED[lanes]):
            return Words(4, 0, _IN_STEPS)
    if processor.is_arm64 and has("dotprod") and lanes == 4:
        return Words(4, 0 if is_signed else -128, "aarch64.neon.sdot.v4i32.v16i8")
    return Words()
