"""Products of few rows with 4-bit numbers, by dot products of 8-bit integers.

An instruction multiplies four numbers by four digits of eight bits, and adds the
products: see `int4_digits`. At the end of a run, the kernel joins the sums of digits,
and applies scales and zeros as `few_int4` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Pointer, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.integer.interleave import (
    interleave_rows,
    order_columns,
)
from toolkit.backends.numpy.jit.kernels.matmul.int4_digits import (
    DIGIT_BITS,
    DIGITS,
    ENTRY_BYTES,
    TERMS,
    Int4DotsPlan,
    Runs,
)
from toolkit.backends.numpy.jit.kernels.matmul.unpack import (
    load_block_number,
    load_zeros,
)


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
                start = totals + (n.padded_columns * row + column) * ENTRY_BYTES
                step = n.padded_columns * (plan.rows * ENTRY_BYTES)
                with b.accumulate(0, n.sections, 1, [b.filled(0.0, "float32")]) as loop:
                    address = start + step * loop.index
                    total = b.load(address, 0, "float32", mask)
                    loop.next([b.binary("fadd", loop.values[0], total)])
                loaded = {**epilogue.columns(column, mask), **row_operands}
                element = column + row * n.columns
                epilogue.apply(loop.values[0], element, column, mask, loaded)
    return b


class _Int4Dots(Runs):
    """Emits the function."""

    distance: Number

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
        self.sum_bytes: Number = n.padded_columns * ENTRY_BYTES

    def write(self) -> None:
        """Emit the loops over panels, runs, positions of their segments, and chunks."""
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
                positions = loop.index_of(0)
                segment = self.segment(*run)
                with b.loop(0, segment) as position:
                    # The rows that the next position reads, maybe of the next run.
                    is_last = b.compare("eq", position, segment - 1)
                    step = b.choose(is_last, segment * (plan.segments - 1) + 1, 1)
                    self.distance = self.line * step
                    self._add(run[0] + position, segment, positions + position, columns)
                self._scale(loop.index, run[0], columns)
                loop.next([b.int64(positions + segment)])

    def _sum_address(self, row: int, digit: int, column: Number) -> Pointer:
        number = row * DIGITS + digit
        return self.sums + (self.sum_bytes * number + column * ENTRY_BYTES)

    def _total_address(self, row: int, column: Number) -> Pointer:
        return self.totals + (self.sum_bytes * row + column * ENTRY_BYTES)

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
        position: Number,
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
            [self._word(row, i, position) for i in range(plan.row_words)]
            for row in range(plan.rows)
        ]
        first, end = columns
        with b.of_lanes(TERMS * lanes):
            for byte, mask in b.run(first // 2, b.ceil_div(end, 2)):
                for line in lines:
                    b.prefetch(line + (self.distance + byte))
                loaded = [b.load(line, byte, "int8", mask) for line in lines]
                with b.of_lanes(lanes):
                    self._add_chunk(byte * 2, loaded, xs)

    def _word(self, row: int, number: int, position: Number) -> Value:
        b, n = self.b, self.n
        line = n.depth * (row * self.plan.row_words + number)
        return b.splat(b.scalar(self.digits + (line + position) * ENTRY_BYTES, "int32"))

    def _add_chunk(
        self, column: Number, loaded: Sequence[Value], xs: Sequence[Sequence[Value]]
    ) -> None:
        """Add the products of some bytes of each segment to the sums of a chunk."""
        b, plan = self.b, self.plan
        ys = [
            self._numbers(loaded[i : i + TERMS]) for i in range(0, plan.segments, TERMS)
        ]
        for row, words in enumerate(xs):
            for digit in range(DIGITS):
                factors = words[digit * len(ys) : (digit + 1) * len(ys)]
                address = self._sum_address(row, digit, column)
                for i in range(2 * TERMS):
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

    def _scale(self, run: Number, term: Number, columns: tuple[Number, Number]) -> None:
        """Add the scaled sums of a run to the totals. `term` is its first term."""
        b, n, plan = self.b, self.n, self.plan
        stored = b.scalar(b.at(self.block, term, "float32"), "float32")
        block = load_block_number(b, stored, n.blocks, self.error)
        facts = []
        for row in range(plan.rows):
            address = self.facts + (n.depth * row + run) * (2 * ENTRY_BYTES)
            entries = (b.scalar(address + i, "float32") for i in (0, ENTRY_BYTES))
            facts.append([b.splat(x) for x in entries])
        first, end = columns
        with b.loop(first, end, plan.chunk) as column:
            joined = [self._join(row, column) for row in range(plan.rows)]
            for i in range(2 * TERMS):
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
        base = b.filled(float(1 << DIGIT_BITS), "float32")
        sums = []
        for i in range(0, self.plan.chunk, b.lanes):
            joined: Value | None = None
            for digit in reversed(range(DIGITS)):
                address = self._sum_address(row, digit, column)
                loaded = b.load(address, i, "int32", None)
                value = b.convert("sitofp", loaded, "float32")
                joined = (
                    value if joined is None else b.intrinsic("fma", joined, base, value)
                )
                b.store(b.filled(0, "int32"), address, i, None)
            assert joined is not None
            sums.append(joined)
        even, odd = (order_columns(b, sums[i : i + TERMS]) for i in (0, TERMS))
        order = [lane // 2 + lane % 2 * b.lanes for lane in range(2 * b.lanes)]
        return [
            b.shuffled(x, y, lanes)
            for x, y in zip(even, odd, strict=True)
            for lanes in (order[: b.lanes], order[b.lanes :])
        ]


def as_int32(bits: int) -> int:
    """Return the signed integer with these bits."""
    return bits - (1 << 32) if bits >> 31 else bits
