"""Integer products of few rows, whose matrix is read once, in order, without packing.

Packing would take longer than the product: terms become words in registers. The sums of
all columns of a panel are in memory, in the cache. The terms are divided into segments,
and the terms of a word are from several segments. So each segment is read from its
start to its end, which the hardware can prefetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.integer.interleave import (
    interleave_rows,
    order_columns,
)
from toolkit.backends.numpy.jit.kernels.integer.pack import WORD_BYTES
from toolkit.backends.numpy.jit.kernels.integer.words import Words
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record
from toolkit.plans.loops.planner import TASKS

# The least bytes of a line of a panel, which are two pages of memory, and of a section.
_LINE_BYTES, _SECTION_BYTES = 1 << 13, 1 << 19


@record
class FewRowsPlan:
    """The properties that the code depends on.

    Attributes:
        words: the format of the terms.
        lanes: of a vector of sums.
        rows: of the product.
        a: the input of the body that is the left operand.
    """

    words: Words
    lanes: int
    rows: int
    a: int

    @property
    def chunk(self) -> int:
        """Return the columns that are multiplied together."""
        return self.lanes * self.words.terms

    @property
    def segments(self) -> int:
        """Return the number of segments: their terms fill a quarter of the registers.

        The hardware does not prefetch many more.
        """
        return current().registers // 4

    @property
    def term_bytes(self) -> int:
        """Return the bytes of a term in a word."""
        return WORD_BYTES // self.words.terms


class FewRowsNumbers(NamedTuple):
    """The numbers after the addresses in the table.

    Attributes:
        columns, depth: extents of the matrix.
        segment: the terms of a segment.
        width: the columns of a panel, which are whole chunks.
        padded_columns: the columns as whole chunks.
        sections: the number of sections of all segments, each with sums of its own.
    """

    columns: Any
    depth: Any
    segment: Any
    width: Any
    padded_columns: Any
    sections: Any


def divide_matrix(line_bytes: int, nbytes: int) -> tuple[int, int]:
    """Return the panels of a matrix, and the sections of each, for tasks.

    Long lines let the hardware prefetch, and read few pages more than once.
    """
    panels = max(1, min(TASKS, line_bytes // _LINE_BYTES))
    return panels, max(1, min(TASKS // panels, nbytes // panels // _SECTION_BYTES))


class SpreadNumbers(NamedTuple):
    """The numbers after the addresses in the table: terms of a row and of a segment."""

    depth: Any
    segment: Any


def emit_spread_rows(plan: FewRowsPlan) -> Kernel:
    """Emit the function that packs rows: the first term of each segment, and so on.

    The table holds the addresses of the rows and of the words, and `SpreadNumbers`.
    """
    b = Kernel(1)
    source, target = b.next_address(), b.next_address()
    n = b.next_entries(SpreadNumbers)
    kind = "int8" if plan.term_bytes == 1 else "int16"
    with b.loop(b.low, b.high) as row, b.loop(0, plan.segments) as segment:
        first = b.min(segment * n.segment, n.depth)
        count = b.min(n.segment, n.depth - first)
        x = source + row * n.depth + first
        y = target + (row * n.segment * plan.segments + segment) * plan.term_bytes

        def put(value: Value, position: Number, y: Pointer = y) -> None:
            b.put_scalar(value, y + position * (plan.segments * plan.term_bytes))

        with b.loop(0, count) as position:
            term = b.scalar(x + position, "int8")
            put(term if kind == "int8" else b.convert("sext", term, kind), position)
        with b.loop(count, n.segment) as position:
            put(Value("0", kind), position)
    return b


def emit_few_sums(plan: FewRowsPlan) -> Kernel:
    """Emit the function that sums products: a row of the call is a section of a panel.

    The table holds the addresses of the matrix, of the result of `emit_spread_rows`,
    and of the sums of each section, then `FewRowsNumbers`.
    """
    b = Kernel(plan.lanes)
    matrix, words, sums = (b.next_address() for _ in range(3))
    at = _FewRows(b, plan, sums)
    at.matrix, at.words = matrix, words
    at.sum_up()
    return b


def emit_few_rows(plan: FewRowsPlan, body: BodyStructure) -> Kernel:
    """Emit the function that adds the sums of all sections, and applies the epilogue.

    A row of the call is a panel. The table holds the addresses of the body's inputs and
    outputs, and of the sums, then `FewRowsNumbers`.
    """
    b = Kernel(plan.lanes)
    epilogue = Epilogue.of_table(body, b)
    at = _FewRows(b, plan, b.next_address())
    at.finish(epilogue)
    return b


class _FewRows:
    """Emits both functions.

    A chunk of columns is as wide as a vector of bytes.
    """

    matrix: Pointer
    words: Pointer

    def __init__(self, b: Kernel, plan: FewRowsPlan, sums: Pointer) -> None:
        self.b, self.plan = b, plan
        n = self.n = b.next_entries(FewRowsNumbers)
        self.line: Number = n.padded_columns * WORD_BYTES
        self.section_bytes: Number = self.line * plan.rows
        self.sums = self.first_sums = sums

    def sum_up(self) -> None:
        """Emit the loop over sections of panels."""
        b, n = self.b, self.n
        with b.loop(b.low, b.high) as unit:
            panel, section = b.split(unit, n.sections)
            self.sums = self.first_sums + self.section_bytes * section
            first, end = b.tile_range(panel, n.width, n.columns)
            for row in range(self.plan.rows):
                with b.loop(first, end, self.plan.chunk) as column:
                    for i in range(0, self.plan.chunk, b.lanes):
                        zeros = b.filled(0, "int32")
                        b.store(zeros, self._sums_of(row, column), i, None)
            size = b.ceil_div(n.segment, n.sections)
            with b.loop(*b.tile_range(section, size, n.segment)) as position:
                self._add(position, first, end)

    def _sums_of(self, row: int, column: Number) -> Pointer:
        return self.sums + (self.line * row + column * WORD_BYTES)

    def _add(self, position: Number, first: Number, end: Number) -> None:
        """Add the products of a term of each segment to the sums of columns."""
        b, plan = self.b, self.plan
        terms, lanes = plan.words.terms, b.lanes
        lines = [self._line(position, segment) for segment in range(plan.segments)]
        xs = [
            [self._word(row, position, word) for word in range(plan.segments // terms)]
            for row in range(plan.rows)
        ]
        with b.of_lanes(plan.chunk):
            for column, mask in b.run(first, end):
                for line in lines:
                    b.prefetch(line + (self.n.columns + column))
                loaded = [self._terms(line, column, mask) for line in lines]
                with b.of_lanes(lanes):
                    ys = [
                        interleave_rows(b, loaded[i : i + terms])
                        for i in range(0, plan.segments, terms)
                    ]
                    for row, factors in enumerate(xs):
                        self._add_words(self._sums_of(row, column), factors, ys)

    def _add_words(
        self, sums: Pointer, xs: Sequence[Value], ys: Sequence[Sequence[Value]]
    ) -> None:
        """Add the products of words of a row to the sums of a chunk."""
        b = self.b
        for i in range(len(ys[0])):
            total = b.load(sums, i * b.lanes, "int32", None)
            for x, y in zip(xs, ys, strict=True):
                # The matrix is the operand with an offset.
                total = self.plan.words.multiply_add(b, total, y[i], x)
            b.store(total, sums, i * b.lanes, None)

    def _line(self, position: Number, segment: int) -> Pointer:
        """Return the address of a row of the matrix. Terms after the end are 0."""
        n = self.n
        term = self.b.min(position + n.segment * segment, n.depth - 1)
        line: Pointer = self.matrix + term * n.columns
        return line

    def _word(self, row: int, position: Number, word: int) -> Value:
        b, n = self.b, self.n
        count = self.plan.segments // self.plan.words.terms
        number = (position + n.segment * row) * count + word
        return b.splat(b.scalar(self.words + number * WORD_BYTES, "int32"))

    def _terms(self, line: Pointer, column: Number, mask: Mask) -> Value:
        """Return a term of each column plus the offset."""
        b, words = self.b, self.plan.words
        x = words.shift_bytes(b, b.load(line, column, "int8", mask))
        return x if words.terms == 4 else b.convert("sext", x, "int16")

    def finish(self, epilogue: Epilogue) -> None:
        """Emit the loops over panels, rows, and chunks of columns."""
        b, n, lanes = self.b, self.n, self.b.lanes
        starts = [
            self._row_offset(epilogue.addresses[self.plan.a] + n.depth * row)
            for row in range(self.plan.rows)
        ]
        with b.loop(b.low, b.high) as panel:
            first, end = b.tile_range(panel, n.width, n.columns)
            for row, initial in enumerate(starts):
                row_operands = epilogue.of_row(row)
                with b.loop(first, end, self.plan.chunk) as start:
                    sums = self._section_sums(row, start, initial)
                    for i, value in enumerate(order_columns(b, sums)):
                        column = start + i * lanes
                        mask = b.first_lanes(end - column)
                        loaded = {**epilogue.columns(column, mask), **row_operands}
                        element = column + row * n.columns
                        epilogue.apply(value, element, column, mask, loaded)

    def _section_sums(self, row: int, column: Number, initial: Value) -> list[Value]:
        """Return the sums of a chunk over all sections."""
        b, first = self.b, self._sums_of(row, column)
        starts = range(0, self.plan.chunk, b.lanes)
        with b.accumulate(0, self.n.sections, 1, [initial] * len(starts)) as loop:
            address = first + self.section_bytes * loop.index
            sums = [b.load(address, i, "int32", None) for i in starts]
            loop.next(
                [b.binary("add", *x) for x in zip(loop.values, sums, strict=True)]
            )
        return loop.values

    def _row_offset(self, row: Pointer) -> Value:
        """Return minus the offset times the sum of a row of terms."""
        b, n = self.b, self.n
        if not self.plan.words.offset:
            return b.filled(0, "int32")

        def term(at: Number, mask: Mask) -> Value:
            return b.convert("sext", b.load(row, at, "int8", mask), "int32")

        full = b.whole_vectors(0, n.depth, b.lanes)
        with b.accumulate(0, full, b.lanes, [b.filled(0, "int32")]) as loop:
            loop.next([b.binary("add", loop.values[0], term(loop.index, None))])
        last = term(full, b.first_lanes(n.depth - full))
        lanes = b.binary("add", loop.values[0], last)
        name = f"@llvm.vector.reduce.add.v{b.lanes}i32"
        b.declarations.add(f"declare i32 {name}({lanes.type})")
        total = b.let(f"call i32 {name}({lanes.type} {lanes})", "int32")
        offset = b.filled(-self.plan.words.offset, "int32")
        return b.binary("mul", b.splat(total), offset)
