"""Products of few rows with 4-bit numbers, by dot products of 8-bit integers.

An instruction multiplies four numbers by four digits of eight bits, and adds the
products. The terms of a run, which share their scales, become integers of 24 bits:
three digits. They are exact to 2 ** -23 of the largest term of the run. At the end of a
run the kernel joins the sums of digits, and applies scales and zeros as `few_int4` does.

The terms of a run are divided into segments. A word has terms of four segments, so that
each segment is read from its start to its end, which the hardware can prefetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value, literal
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.integer.interleave import (
    interleave_rows,
    order_columns,
)
from toolkit.backends.numpy.jit.kernels.integer.words import Words, words_of
from toolkit.backends.numpy.jit.kernels.matmul.unpack import (
    load_block_number,
    load_zeros,
)
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.definitions.records import record

# Digits of a term, their bits, and the largest integer whose digits are in range.
DIGITS, _BITS, _LARGEST = 3, 8, 127 << 16
# A run whose terms are smaller is rounded to multiples of this number / _LARGEST.
_SMALLEST = 1e-30
_TERMS = 4  # of a word
_WORD_BYTES = _ENTRY_BYTES = 4
_INDEX_BYTES = 8


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
        return 2 * _TERMS * self.lanes

    @property
    def row_words(self) -> int:
        """Return the words of a row at a place of the segments: digits outermost."""
        return DIGITS * self.segments // _TERMS


class Int4DotsNumbers(NamedTuple):
    """The numbers after the addresses in the table.

    Attributes:
        columns, depth: extents of the matrix.
        blocks: the rows of scales.
        width: the columns of a row of the call, which are whole chunks.
        padded_columns: the columns as whole chunks.
        sections: the number of sections of the runs, each with totals of its own.
    """

    columns: Any
    depth: Any
    blocks: Any
    width: Any
    padded_columns: Any
    sections: Any


def int4_words(processor: Processor) -> Words | None:
    """Return the words of numbers and digits, or None without such an instruction."""
    dtype = "int8" if processor.is_arm64 else "uint8"
    words = words_of(processor, dtype, 4)
    return words if words.terms == _TERMS else None


def segments_of(processor: Processor) -> int:
    """Return the segments whose numbers fill half of the registers."""
    return processor.registers // 4


def digit_bytes(plan: Int4DotsPlan, depth: int) -> int:
    """Return the bytes of the digits of all rows. A run has a place or more."""
    return plan.rows * plan.row_words * depth * _WORD_BYTES


def run_bytes(plan: Int4DotsPlan, depth: int) -> int:
    """Return the bytes of the unit of the digits and the sum of terms of all runs."""
    return 2 * plan.rows * depth * _ENTRY_BYTES


class _Runs:
    """Emits the loop over runs, with the places of the segments of earlier runs."""

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


class _Digits(_Runs):
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
            x = self.x + row * self.depth * _ENTRY_BYTES
            digits = self.digits + row * self.depth * (plan.row_words * _WORD_BYTES)
            facts = self.facts + row * self.depth * (2 * _ENTRY_BYTES)
            with b.accumulate(0, self.at(0), 1, [b.int64(0)]) as loop:
                first, end = self.at(loop.index + 1), self.at(loop.index + 2)
                inverse = self._measure(
                    x, first, end, facts + loop.index * (2 * _ENTRY_BYTES)
                )
                places = loop.index_of(0)
                self._divide(x, (first, end), inverse, digits + places * _WORD_BYTES)
                loop.next([b.int64(places + self.segment(first, end))])

    def _measure(
        self, x: Pointer, first: Number, end: Number, facts: Pointer
    ) -> Value:
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
        b.put_scalar(total, facts + _ENTRY_BYTES)
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
        """Store the digits of a run: a vector has the words of several places."""
        b, plan = self.b, self.plan
        first, end = run
        places = self.segment(first, end)
        with b.loop(0, places, b.lanes) as place:
            digits: list[list[Value]] = [[] for _ in range(DIGITS)]
            for segment in range(plan.segments):
                start = places * segment + first + place
                count = b.min(places - place, end - start)
                value = b.load(x, start, "float32", b.first_lanes(count))
                scaled = b.binary("fmul", value, inverse)
                for terms, digit in zip(digits, self._digits(scaled), strict=True):
                    terms.append(digit)
            mask = b.first_lanes(places - place)
            for i in range(plan.row_words):
                digit, word = divmod(i, plan.segments // _TERMS)
                terms = digits[digit][word * _TERMS : (word + 1) * _TERMS]
                joined = plan.words.join_terms(b, terms)
                b.store(joined, target + self.depth * (i * _WORD_BYTES), place, mask)

    def _digits(self, scaled: Value) -> list[Value]:
        """Return the digits of vectors of numbers, the lowest first."""
        b = self.b
        rounded = b.intrinsic("rint", scaled)
        name = f"@llvm.fptosi.sat.v{b.lanes}i32.v{b.lanes}f32"
        kind = f"<{b.lanes} x i32>"
        b.declarations.add(f"declare {kind} {name}({rounded.type})")
        text = f"call {kind} {name}({rounded.type} {rounded})"
        remaining, digits = b.let(text, "int32", b.lanes), []
        unused, bits = b.filled(32 - _BITS, "int32"), b.filled(_BITS, "int32")
        for _ in range(DIGITS - 1):
            digit = b.binary("ashr", b.binary("shl", remaining, unused), unused)
            digits.append(digit)
            remaining = b.binary("ashr", b.binary("sub", remaining, digit), bits)
        return [*digits, remaining]


def emit_int4_dots(plan: Int4DotsPlan) -> Kernel:
    """Emit the function that computes totals: a row is some runs of a panel.

    The table holds the addresses of packed numbers, scales, zeros, the block of each
    term, the list of runs, the digits, the units and sums of runs, the memory for sums
    of digits and for totals, and the error block for bad blocks, then
    `Int4DotsNumbers`.
    """
    b = Kernel(plan.lanes)
    _Int4Dots(b, plan).write()
    return b


def emit_int4_results(plan: Int4DotsPlan, body: BodyStructure) -> Kernel:
    """Emit the function that adds the totals of sections, and applies the epilogue.

    A row of the call is a panel. The table holds the addresses of the body's inputs and
    outputs, and of the totals, then `Int4DotsNumbers`.
    """
    b = Kernel(plan.lanes)
    epilogue = Epilogue.of_table(body, b)
    totals, n = b.next_address(), b.next_entries(Int4DotsNumbers)
    with b.loop(b.low, b.high) as panel:
        columns = b.tile_range(panel, n.width, n.columns)
        for row in range(plan.rows):
            row_operands = epilogue.of_row(row)
            for column, mask in b.run(*columns):
                start = totals + (n.padded_columns * row + column) * _WORD_BYTES
                step = n.padded_columns * (plan.rows * _WORD_BYTES)
                with b.accumulate(
                    0, n.sections, 1, [b.filled(0.0, "float32")]
                ) as loop:
                    address = start + step * loop.index
                    total = b.load(address, 0, "float32", mask)
                    loop.next([b.binary("fadd", loop.values[0], total)])
                loaded = {**epilogue.columns(column, mask), **row_operands}
                element = column + row * n.columns
                epilogue.apply(loop.values[0], element, column, mask, loaded)
    return b


class _Int4Dots(_Runs):
    """Emits the function."""

    def __init__(self, b: Kernel, plan: Int4DotsPlan) -> None:
        factors = [b.next_address() for _ in range(4)]
        self.packed, self.scale, self.zero, self.block = factors
        super().__init__(b, plan, b.next_address())
        self.digits, self.facts = b.next_address(), b.next_address()
        self.sums, self.totals = b.next_address(), b.next_address()
        self.first_sums, self.first_totals = self.sums, self.totals
        self.error = b.next_address()
        n = self.n = b.next_entries(Int4DotsNumbers)
        self.line: Number = b.ceil_div(n.columns, 2)
        self.sum_bytes: Number = n.padded_columns * _WORD_BYTES

    def write(self) -> None:
        """Emit the loops over panels, runs, places of their segments, and chunks."""
        b, n, plan = self.b, self.n, self.plan
        total_bytes = self.sum_bytes * plan.rows
        with b.loop(b.low, b.high) as unit:
            panel, section = b.split(unit, n.sections)
            self.sums = self.first_sums + total_bytes * section * DIGITS
            self.totals = self.first_totals + total_bytes * section
            columns = first, end = b.tile_range(panel, n.width, n.columns)
            with b.loop(first, end, plan.chunk) as column:
                self._clear(column)
            count = self.at(0)
            size = b.ceil_div(count, n.sections)
            start, stop = b.tile_range(section, size, count)
            with b.accumulate(0, b.min(start, count), 1, [b.int64(0)]) as earlier:
                run = self.at(earlier.index + 1), self.at(earlier.index + 2)
                skipped = earlier.index_of(0) + self.segment(*run)
                earlier.next([b.int64(skipped)])
            with b.accumulate(start, stop, 1, earlier.values) as loop:
                run = self.at(loop.index + 1), self.at(loop.index + 2)
                places = loop.index_of(0)
                segment = self.segment(*run)
                with b.loop(0, segment) as place:
                    self._add(run[0] + place, segment, places + place, columns)
                self._scale(loop.index, run[0], columns)
                loop.next([b.int64(places + segment)])

    def _sum_address(self, row: int, digit: int, column: Number) -> Pointer:
        number = row * DIGITS + digit
        return self.sums + (self.sum_bytes * number + column * _WORD_BYTES)

    def _total_address(self, row: int, column: Number) -> Pointer:
        return self.totals + (self.sum_bytes * row + column * _WORD_BYTES)

    def _clear(self, column: Number) -> None:
        """Set the sums and totals of a chunk to 0."""
        b, plan = self.b, self.plan
        for row in range(plan.rows):
            addresses = [self._sum_address(row, d, column) for d in range(DIGITS)]
            for address in (*addresses, self._total_address(row, column)):
                for i in range(0, plan.chunk, b.lanes):
                    b.store(b.filled(0, "int32"), address, i, None)

    def _add(
        self,
        term: Number,
        segment: Number,
        place: Number,
        columns: tuple[Number, Number],
    ) -> None:
        """Add the products of a term of each segment to the sums of columns."""
        b, n, plan, lanes = self.b, self.n, self.plan, self.b.lanes
        # The digits of terms after the end are 0.
        lines = [
            self.packed + b.min(term + segment * i, n.depth - 1) * self.line
            for i in range(plan.segments)
        ]
        xs = [
            [self._word(row, i, place) for i in range(plan.row_words)]
            for row in range(plan.rows)
        ]
        first, end = columns
        with b.of_lanes(_TERMS * lanes):
            for byte, mask in b.run(first // 2, b.ceil_div(end, 2)):
                for line in lines:
                    b.prefetch(line + (self.line + byte))
                loaded = [b.load(line, byte, "int8", mask) for line in lines]
                with b.of_lanes(lanes):
                    self._add_chunk(byte * 2, loaded, xs)

    def _word(self, row: int, number: int, place: Number) -> Value:
        b, n = self.b, self.n
        line = n.depth * (row * self.plan.row_words + number)
        return b.splat(b.scalar(self.digits + (line + place) * _WORD_BYTES, "int32"))

    def _add_chunk(
        self, column: Number, loaded: Sequence[Value], xs: Sequence[Sequence[Value]]
    ) -> None:
        """Add the products of some bytes of each segment to the sums of a chunk."""
        b, plan = self.b, self.plan
        ys = [
            self._numbers(loaded[i : i + _TERMS])
            for i in range(0, plan.segments, _TERMS)
        ]
        for row, words in enumerate(xs):
            for digit in range(DIGITS):
                factors = words[digit * len(ys) : (digit + 1) * len(ys)]
                address = self._sum_address(row, digit, column)
                for i in range(2 * _TERMS):
                    total = b.load(address, i * b.lanes, "int32", None)
                    for x, y in zip(factors, ys, strict=True):
                        total = plan.words.multiply_add(b, total, y[i], x)
                    b.store(total, address, i * b.lanes, None)

    def _numbers(self, rows: Sequence[Value]) -> list[Value]:
        """Return words of the even columns, then of the odd ones; plus 8 if signed."""
        b = self.b
        words = interleave_rows(b, rows)
        if self.plan.is_signed:
            eights = b.filled(as_int32(0x88888888), "int32")
            words = [b.binary("xor", x, eights) for x in words]
        low, four = b.filled(0x0F0F0F0F, "int32"), b.filled(4, "int32")
        high_words = [b.binary("lshr", x, four) for x in words]
        return [b.binary("and", x, low) for x in (*words, *high_words)]

    def _scale(
        self, run: Number, term: Number, columns: tuple[Number, Number]
    ) -> None:
        """Add the scaled sums of a run to the totals. `term` is its first term."""
        b, n, plan = self.b, self.n, self.plan
        stored = b.scalar(b.at(self.block, term, "float32"), "float32")
        block = load_block_number(b, stored, n.blocks, self.error)
        facts = []
        for row in range(plan.rows):
            address = self.facts + (n.depth * row + run) * (2 * _ENTRY_BYTES)
            entries = (b.scalar(address + i, "float32") for i in (0, _ENTRY_BYTES))
            facts.append([b.splat(x) for x in entries])
        first, end = columns
        with b.loop(first, end, plan.chunk) as column:
            joined = [self._join(row, column) for row in range(plan.rows)]
            for i in range(2 * _TERMS):
                at = column + i * b.lanes
                mask = b.first_lanes(end - at)
                index = block * n.columns + at
                scale = b.load(self.scale, index, "float32", mask)
                origin = load_zeros(b, self.zero, index, mask, plan.is_signed)
                if plan.is_signed:
                    origin = b.binary("fadd", origin, b.filled(8.0, "float32"))
                for row, (unit, total_of_terms) in enumerate(facts):
                    offset = b.binary("fmul", origin, total_of_terms)
                    value = b.binary("fmul", joined[row][i], unit)
                    shifted = b.binary("fsub", value, offset)
                    address = self._total_address(row, at)
                    total = b.load(address, 0, "float32", None)
                    total = b.intrinsic("fma", scale, shifted, total)
                    b.store(total, address, 0, None)

    def _join(self, row: int, column: Number) -> list[Value]:
        """Return the sums of a chunk of columns in order, and clear them."""
        b = self.b
        base = b.filled(float(1 << _BITS), "float32")
        sums = []
        for i in range(0, self.plan.chunk, b.lanes):
            joined: Value | None = None
            for digit in reversed(range(DIGITS)):
                address = self._sum_address(row, digit, column)
                loaded = b.load(address, i, "int32", None)
                value = b.convert("sitofp", loaded, "float32")
                joined = (
                    value
                    if joined is None
                    else b.intrinsic("fma", joined, base, value)
                )
                b.store(b.filled(0, "int32"), address, i, None)
            assert joined is not None
            sums.append(joined)
        even, odd = (order_columns(b, sums[i : i + _TERMS]) for i in (0, _TERMS))
        order = [lane // 2 + lane % 2 * b.lanes for lane in range(2 * b.lanes)]
        return [
            b.shuffled(x, y, lanes)
            for x, y in zip(even, odd, strict=True)
            for lanes in (order[: b.lanes], order[b.lanes :])
        ]


def as_int32(bits: int) -> int:
    """Return the signed integer with these bits."""
    return bits - (1 << 32) if bits >> 31 else bits
