"""Integer products of few rows, whose matrix is read once, in order, without packing.

Packing would take longer than the product: terms become words in registers. The sums of
all columns of a panel are in memory, in the cache.
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


class FewRowsNumbers(NamedTuple):
    """The numbers after the addresses in the table.

    Attributes:
        columns, depth: extents of the matrix.
        row_bytes: the bytes of a row of words of the left operand.
        width: the columns of a panel, which are whole chunks.
        padded_columns: the columns as whole chunks.
    """

    columns: Any
    depth: Any
    row_bytes: Any
    width: Any
    padded_columns: Any


def emit_few_rows(plan: FewRowsPlan, body: BodyStructure) -> Kernel:
    """Emit the function that computes panels of columns.

    The table holds the addresses of the body's inputs and outputs, of the rows as words
    without an offset, and of the memory for sums, then `FewRowsNumbers`.
    """
    b = Kernel(plan.lanes)
    _FewRows(b, plan, body).write()
    return b


class _FewRows:
    """Emits the function.

    A chunk of columns is as wide as a vector of bytes. The words of a chunk that are
    multiplied together fill half of the registers.
    """

    def __init__(self, b: Kernel, plan: FewRowsPlan, body: BodyStructure) -> None:
        self.b, self.plan = b, plan
        self.epilogue = Epilogue.of_table(body, b)
        bases = self.epilogue.addresses
        self.a, self.matrix = bases[plan.a], bases[plan.b]
        self.words, self.sums = b.next_address(), b.next_address()
        n = self.n = b.next_entries(FewRowsNumbers)
        self.chunk: int = plan.chunk
        self.together: int = current().registers // 2 // plan.words.terms
        self.line: Number = n.padded_columns * WORD_BYTES

    def write(self) -> None:
        """Emit the loop over panels: initial sums, words, and the epilogue."""
        b, n = self.b, self.n
        terms = self.plan.words.terms
        full, remainder = b.split(n.depth, terms)
        together = b.whole_vectors(0, full, self.together)
        with b.loop(b.low, b.high) as panel:
            first, end = b.tile_range(panel, n.width, n.columns)
            self._start(first, end)
            with b.loop(0, together, self.together) as word:
                self._add([word + i for i in range(self.together)], first, end)
            with b.loop(together, full) as word:
                self._add([word], first, end)
            with b.when(b.compare("ne", remainder, 0)):
                self._add([full], first, end, remainder)
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

    def _add(
        self,
        numbers: Sequence[Number],
        first: Number,
        end: Number,
        count: Number | None = None,
    ) -> None:
        """Add the products of some words of the rows to the sums of columns."""
        b, words = self.b, self.plan.words
        xs = [
            [self._word(row, number) for number in numbers]
            for row in range(self.plan.rows)
        ]
        lanes = b.lanes
        with b.of_lanes(self.chunk):
            for column, mask in b.run(first, end):
                rows = [self._terms(number, column, mask, count) for number in numbers]
                with b.of_lanes(lanes):
                    ys = [interleave_rows(b, terms) for terms in rows]
                    for row, factors in enumerate(xs):
                        address = self._sums_of(row, column)
                        for j in range(len(ys[0])):
                            total = b.load(address, j * lanes, "int32", None)
                            for x, y in zip(factors, ys, strict=True):
                                # The matrix is the operand with an offset.
                                total = words.multiply_add(b, total, y[j], x)
                            b.store(total, address, j * lanes, None)

    def _word(self, row: int, number: Number) -> Value:
        b = self.b
        address = self.words + (number * WORD_BYTES + row * self.n.row_bytes)
        return b.splat(b.scalar(address, "int32"))

    def _terms(
        self, number: Number, column: Number, mask: Mask, count: Number | None
    ) -> list[Value]:
        """Return the terms of a word plus the offset, and 0 from term `count` on."""
        b, n, words = self.b, self.n, self.plan.words
        terms = []
        for i in range(words.terms):
            row: Number = number * words.terms + i
            if count is not None:
                row = b.min(row, n.depth - 1)
            x = b.load(self.matrix + row * n.columns, column, "int8", mask)
            x = words.shift_bytes(b, x)
            if words.terms == 2:
                x = b.convert("sext", x, "int16")
            if count is not None:
                exists = b.compare("sgt", count, i)
                text = f"select i1 {exists}, {x.type} {x}, {x.type} zeroinitializer"
                x = b.let(text, x.dtype, b.lanes)
            terms.append(x)
        return terms

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
