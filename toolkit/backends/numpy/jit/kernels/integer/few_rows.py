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


@record
class FewRowsPlan:
    """The properties that the code depends on.

    Attributes:
        words: the format of the terms.
        lanes: of a vector of sums.
        rows: of the product.
        a, b: the inputs of the body that are the operands.
    """

    words: Words
    lanes: int
    rows: int
    a: int
    b: int

    @property
    def chunk(self) -> int:
        """Return the columns that are multiplied together."""
        return self.lanes * self.words.terms

    @property
    def segments(self) -> int:
        """Return the number of segments: their terms fill half of the registers."""
        return current().registers // 2

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
    """

    columns: Any
    depth: Any
    segment: Any
    width: Any
    padded_columns: Any


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

        def put(value: Value, place: Number, y: Pointer = y) -> None:
            b.put_scalar(value, y + place * (plan.segments * plan.term_bytes))

        with b.loop(0, count) as place:
            term = b.scalar(x + place, "int8")
            put(term if kind == "int8" else b.convert("sext", term, kind), place)
        with b.loop(count, n.segment) as place:
            put(Value("0", kind), place)
    return b


def emit_few_rows(plan: FewRowsPlan, body: BodyStructure) -> Kernel:
    """Emit the function that computes panels of columns.

    The table holds the addresses of the body's inputs and outputs, of the result of
    `emit_spread_rows`, and of the memory for sums, then `FewRowsNumbers`.
    """
    b = Kernel(plan.lanes)
    _FewRows(b, plan, body).write()
    return b


class _FewRows:
    """Emits the function.

    A chunk of columns is as wide as a vector of bytes.
    """

    def __init__(self, b: Kernel, plan: FewRowsPlan, body: BodyStructure) -> None:
        self.b, self.plan = b, plan
        self.epilogue = Epilogue.of_table(body, b)
        bases = self.epilogue.addresses
        self.a, self.matrix = bases[plan.a], bases[plan.b]
        self.words, self.sums = b.next_address(), b.next_address()
        n = self.n = b.next_entries(FewRowsNumbers)
        self.chunk: int = plan.chunk
        self.line: Number = n.padded_columns * WORD_BYTES

    def write(self) -> None:
        """Emit the loop over panels: initial sums, products, and the epilogue."""
        b, n = self.b, self.n
        with b.loop(b.low, b.high) as panel:
            first, end = b.tile_range(panel, n.width, n.columns)
            self._start(first, end)
            with b.loop(0, n.segment) as place:
                self._add(place, first, end)
            self._apply_epilogue(first, end)

    def _start(self, first: Number, end: Number) -> None:
        """Store the initial sums, which cancel the effect of the offset."""
        b, n = self.b, self.n
        for row in range(self.plan.rows):
            start = b.filled(0, "int32")
            if self.plan.words.offset:
                start = self._row_offset(self.a + n.depth * row)
            with b.loop(first, end, self.chunk) as column:
                for i in range(0, self.chunk, b.lanes):
                    b.store(start, self._sums_of(row, column), i, None)

    def _row_offset(self, row: Pointer) -> Value:
        """Return minus the offset times the sum of a row of terms."""
        b, n = self.b, self.n

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

    def _sums_of(self, row: int, column: Number) -> Pointer:
        return self.sums + (self.line * row + column * WORD_BYTES)

    def _add(self, place: Number, first: Number, end: Number) -> None:
        """Add the products of a term of each segment to the sums of columns."""
        b, plan = self.b, self.plan
        terms, lanes = plan.words.terms, b.lanes
        lines = [self._line(place, segment) for segment in range(plan.segments)]
        xs = [
            [self._word(row, place, word) for word in range(plan.segments // terms)]
            for row in range(plan.rows)
        ]
        with b.of_lanes(plan.chunk):
            for column, mask in b.run(first, end):
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

    def _line(self, place: Number, segment: int) -> Pointer:
        """Return the address of a row of the matrix. Terms after the end are 0."""
        n = self.n
        term = self.b.min(place + n.segment * segment, n.depth - 1)
        return self.matrix + term * n.columns

    def _word(self, row: int, place: Number, word: int) -> Value:
        b, n = self.b, self.n
        count = self.plan.segments // self.plan.words.terms
        number = (place + n.segment * row) * count + word
        return b.splat(b.scalar(self.words + number * WORD_BYTES, "int32"))

    def _terms(self, line: Pointer, column: Number, mask: Mask) -> Value:
        """Return a term of each column plus the offset."""
        b, words = self.b, self.plan.words
        x = words.shift_bytes(b, b.load(line, column, "int8", mask))
        return x if words.terms == 4 else b.convert("sext", x, "int16")

    def _apply_epilogue(self, first: Number, end: Number) -> None:
        """Apply the epilogue to the sums."""
        b, n, lanes = self.b, self.n, self.b.lanes
        for row in range(self.plan.rows):
            row_operands = self.epilogue.of_row(row)
            with b.loop(first, end, self.chunk) as start:
                address = self._sums_of(row, start)
                mixed = [
                    b.load(address, i, "int32", None)
                    for i in range(0, self.chunk, lanes)
                ]
                for i, value in enumerate(order_columns(b, mixed)):
                    column = start + i * lanes
                    mask = b.first_lanes(end - column)
                    loaded = {**self.epilogue.columns(column, mask), **row_operands}
                    element = column + row * n.columns
                    self.epilogue.apply(value, element, column, mask, loaded)
