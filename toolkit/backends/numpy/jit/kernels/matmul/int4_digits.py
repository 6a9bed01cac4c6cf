"""Terms of products with 4-bit numbers as digits of 8 bits, for `few_int4_dots`.

The terms of a run, which share their scales, become integers of 24 bits: three digits.
They are exact to 2 ** -23 of the largest term of the run.

The terms of a run are divided into segments. A word has terms of four segments, so that
each segment is read from its start to its end, which the hardware can prefetch.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value, literal
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.integer.words import Words, words_of
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.definitions.records import record

# Digits of a term, their bits, and the largest integer whose digits are in range.
DIGITS, DIGIT_BITS, _LARGEST = 3, 8, 127 << 16
# If all terms of a run are smaller, the unit of its digits is the least normal float.
_SMALLEST = 1e-31
# The terms of a word, the bytes of a word, and those of an index in the list of runs.
TERMS, ENTRY_BYTES, _INDEX_BYTES = 4, 4, 8


@record
class Int4DotsPlan:
    """The properties that the code depends on.

    Attributes:
        words: the format of the terms.
        lanes: of a vector of words.
        segments: of a run.
        rows: of the product.
        is_signed: whether numbers are from -8 to 7. Otherwise they are from 0 to 15.
    """

    words: Words
    lanes: int
    segments: int
    rows: int
    is_signed: bool

    @property
    def chunk(self) -> int:
        """Return the columns that are multiplied together: two in each byte."""
        return 2 * TERMS * self.lanes

    @property
    def row_words(self) -> int:
        """Return the words of a row at a position of the segments: digits outermost."""
        return DIGITS * self.segments // TERMS


def int4_words(processor: Processor) -> Words | None:
    """Return the words of numbers and digits, or None without such an instruction."""
    dtype = "int8" if processor.is_arm64 else "uint8"
    words = words_of(processor, dtype, 4)
    return words if words.terms == TERMS else None


def segments_of(processor: Processor) -> int:
    """Return the segments whose numbers fill half of the registers."""
    return processor.registers // 4


def digit_bytes(plan: Int4DotsPlan, depth: int) -> int:
    """Return the bytes of the digits of all rows. A run has a position or more."""
    return plan.rows * plan.row_words * depth * ENTRY_BYTES


def run_bytes(plan: Int4DotsPlan, depth: int) -> int:
    """Return the bytes of the unit of the digits and the sum of terms of all runs."""
    return 2 * plan.rows * depth * ENTRY_BYTES


class Runs:
    """Emits the loop over runs, with the positions of the segments of earlier runs."""

    def __init__(self, b: Kernel, plan: Int4DotsPlan, runs: Pointer) -> None:
        self.b, self.plan, self.runs = b, plan, runs

    def at(self, number: Number) -> Number:
        """Return an entry of the list."""
        return self.b.integer_at(self.runs + number * _INDEX_BYTES, "int64")

    def segment(self, first: Number, end: Number) -> Number:
        """Return the terms of a segment."""
        return self.b.ceil_div(end - first, self.plan.segments)


def emit_digits(plan: Int4DotsPlan) -> Kernel:
    """Emit the function that divides the terms of rows into digits.

    The table holds the addresses of the rows, of the list of runs, of the digits, and
    of the units and sums of runs, then the number of terms.
    """
    b = Kernel(plan.lanes)
    _Digits(b, plan).write()
    return b


class _Digits(Runs):
    """Emits the function."""

    def __init__(self, b: Kernel, plan: Int4DotsPlan) -> None:
        x = b.next_address()
        super().__init__(b, plan, b.next_address())
        self.x, self.digits, self.facts = x, b.next_address(), b.next_address()
        self.depth: Number = b.next_entry()

    def write(self) -> None:
        """Emit the loops over rows and runs."""
        b, plan = self.b, self.plan
        with b.loop(b.low, b.high) as row:
            x = self.x + row * self.depth * ENTRY_BYTES
            digits = self.digits + row * self.depth * (plan.row_words * ENTRY_BYTES)
            facts = self.facts + row * self.depth * (2 * ENTRY_BYTES)
            with b.accumulate(0, self.at(0), 1, [b.int64(0)]) as loop:
                first, end = self.at(loop.index + 1), self.at(loop.index + 2)
                inverse = self._measure(
                    x, first, end, facts + loop.index * (2 * ENTRY_BYTES)
                )
                positions = loop.index_of(0)
                self._divide(x, (first, end), inverse, digits + positions * ENTRY_BYTES)
                loop.next([b.int64(positions + self.segment(first, end))])

    def _measure(self, x: Pointer, first: Number, end: Number, facts: Pointer) -> Value:
        """Store the unit and the sum of a run, and return the inverse of the unit."""
        b = self.b
        zero = b.filled(0.0, "float32")
        full = b.whole_vectors(first, end, b.lanes)

        def add(at: Number, mask: Mask, values: Sequence[Value]) -> list[Value]:
            value = b.load(x, at, "float32", mask)
            size = b.intrinsic("maxnum", values[0], b.intrinsic("fabs", value))
            return [size, b.binary("fadd", values[1], value)]

        with b.accumulate(first, full, b.lanes, [zero, zero]) as loop:
            loop.next(add(loop.index, None, loop.values))
        sizes, sums = add(full, b.first_lanes(end - full), loop.values)
        size = self._reduce("fmax", sizes)
        start = Value(literal(-0.0, "float32"), "float32")
        total = self._reduce("fadd reassoc", sums, start)
        smallest = Value(literal(_SMALLEST, "float32"), "float32")
        size = b.intrinsic("maxnum", size, smallest)
        largest = Value(literal(float(_LARGEST), "float32"), "float32")
        b.put_scalar(b.binary("fdiv", size, largest), facts)
        b.put_scalar(total, facts + ENTRY_BYTES)
        return b.splat(b.binary("fdiv", largest, size))

    def _reduce(self, name: str, x: Value, *start: Value) -> Value:
        b = self.b
        operation, _, flag = name.partition(" ")
        function = f"@llvm.vector.reduce.{operation}.v{b.lanes}f32"
        kinds = ", ".join(v.type for v in (*start, x))
        b.declarations.add(f"declare float {function}({kinds})")
        operands = ", ".join(f"{v.type} {v.text}" for v in (*start, x))
        return b.let(f"call {flag} float {function}({operands})", "float32")

    def _divide(
        self, x: Pointer, run: tuple[Number, Number], inverse: Value, target: Pointer
    ) -> None:
        """Store the digits of a run: a vector has the words of several positions."""
        b, plan = self.b, self.plan
        first, end = run
        positions = self.segment(first, end)
        with b.loop(0, positions, b.lanes) as position:
            digits: list[list[Value]] = [[] for _ in range(DIGITS)]
            for segment in range(plan.segments):
                start = positions * segment + first + position
                count = b.min(positions - position, end - start)
                value = b.load(x, start, "float32", b.first_lanes(count))
                scaled = b.binary("fmul", value, inverse)
                for terms, digit in zip(digits, self._digits(scaled), strict=True):
                    terms.append(digit)
            mask = b.first_lanes(positions - position)
            for i in range(plan.row_words):
                number, word = divmod(i, plan.segments // TERMS)
                terms = digits[number][word * TERMS : (word + 1) * TERMS]
                joined = plan.words.join_terms(b, terms)
                b.store(joined, target + self.depth * (i * ENTRY_BYTES), position, mask)

    def _digits(self, scaled: Value) -> list[Value]:
        """Return the digits of vectors of numbers, the lowest first."""
        b = self.b
        rounded = b.intrinsic("rint", scaled)
        name = f"@llvm.fptosi.sat.v{b.lanes}i32.v{b.lanes}f32"
        kind = f"<{b.lanes} x i32>"
        b.declarations.add(f"declare {kind} {name}({rounded.type})")
        text = f"call {kind} {name}({rounded.type} {rounded})"
        remaining, digits = b.let(text, "int32", b.lanes), []
        unused, bits = b.filled(32 - DIGIT_BITS, "int32"), b.filled(DIGIT_BITS, "int32")
        for _ in range(DIGITS - 1):
            digit = b.binary("ashr", b.binary("shl", remaining, unused), unused)
            digits.append(digit)
            remaining = b.binary("ashr", b.binary("sub", remaining, digit), bits)
        return [*digits, remaining]
