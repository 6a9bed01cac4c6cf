"""Integer products of few rows, whose matrix is read once, in order, without packing.

Packing would take longer than the product: terms become words in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Mask, Number, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.integer.pack import WORD_BYTES, TermReader
from toolkit.backends.numpy.jit.kernels.integer.words import Words
from toolkit.definitions.records import record

# Words of a row per iteration.
_TOGETHER = 2


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


class FewRowsNumbers(NamedTuple):
    """The numbers after the addresses in the table.

    Attributes:
        columns, depth: extents of the matrix.
        row_bytes: the bytes of a row of words of the left operand.
        width: the columns of a panel.
    """

    columns: Any
    depth: Any
    row_bytes: Any
    width: Any


def emit_few_rows(plan: FewRowsPlan, body: BodyStructure) -> Kernel:
    """Emit the function that computes panels of columns.

    The table holds the addresses of the body's inputs and outputs, of the rows as words
    without an offset, and of the memory for sums, then `FewRowsNumbers`.
    """
    b = Kernel(plan.lanes)
    _FewRows(b, plan, body).write()
    return b


class _FewRows:
    """Emits the function."""

    def __init__(self, b: Kernel, plan: FewRowsPlan, body: BodyStructure) -> None:
        self.b, self.plan = b, plan
        self.epilogue = Epilogue.of_table(body, b)
        bases = self.epilogue.addresses
        self.a, self.matrix = bases[plan.a], bases[plan.b]
        self.words, self.sums = b.next_address(), b.next_address()
        n = self.n = b.next_entries(FewRowsNumbers)
        # The offset applies to the matrix: it is read only once, and the rows are
        # short.
        offset = plan.words.offset
        self.reader = TermReader(b, plan.words, n.columns, n.depth, offset)

    def write(self) -> None:
        """Emit the loop over panels: initial sums, words, and the epilogue."""
        b, n = self.b, self.n
        terms = self.plan.words.terms
        full, remainder = b.split(n.depth, terms)
        pairs = b.whole_vectors(0, full, _TOGETHER)
        with b.loop(b.low, b.high) as panel:
            first, end = b.tile_range(panel, n.width, n.columns)
            self._start(first, end)
            with b.loop(0, pairs, _TOGETHER) as word:
                self._add([word + i for i in range(_TOGETHER)], first, end)
            with b.loop(pairs, full) as word:
                self._add([word], first, end)
            with b.when(b.compare("ne", remainder, 0)):
                self._add([full], first, end, remainder)
            self._apply_epilogue(first, end)

    def _start(self, first: Number, end: Number) -> None:
        """Store the initial sums, which cancel the effect of the offset."""
        b, n = self.b, self.n
        for i in range(self.plan.rows):
            total = b.int64(0)
            if self.plan.words.offset:
                with b.accumulate(0, n.depth, 1, [total]) as loop:
                    x = b.integer_at(self.a + (loop.index + i * n.depth), "int8")
                    loop.next([loop.index_of(0) + x])
                scaled = loop.index_of(0) * -self.plan.words.offset
                total = b.int64(scaled)
            start = b.splat(b.convert("trunc", total, "int32"))
            for column, mask in b.run(first, end):
                b.store(start, self.sums, column + i * n.columns, mask)

    def _add(
        self,
        numbers: Sequence[Number],
        first: Number,
        end: Number,
        count: Number | None = None,
    ) -> None:
        """Add the products of some words of the rows to the sums of columns."""
        b, n, words = self.b, self.n, self.plan.words
        xs = [
            [self._word(row, number) for number in numbers]
            for row in range(self.plan.rows)
        ]
        for column, mask in b.run(first, end):
            ys = [self._column(number, column, mask, count) for number in numbers]
            for row, factors in enumerate(xs):
                index = column + row * n.columns
                total = b.load(self.sums, index, "int32", mask)
                for x, y in zip(factors, ys, strict=True):
                    # The first operand of the instruction is the one with an offset.
                    total = words.multiply_add(b, total, y, x)
                b.store(total, self.sums, index, mask)

    def _word(self, row: int, number: Number) -> Value:
        b = self.b
        address = self.words + (number * WORD_BYTES + row * self.n.row_bytes)
        return b.splat(b.scalar(address, "int32"))

    def _column(
        self, number: Number, column: Number, mask: Mask, count: Number | None
    ) -> Value:
        terms = self.reader.terms(self.matrix + column, number, mask, count)
        return self.plan.words.join_terms(self.b, terms)

    def _apply_epilogue(self, first: Number, end: Number) -> None:
        """Apply the epilogue to the sums."""
        b, n = self.b, self.n
        for row in range(self.plan.rows):
            row_operands = self.epilogue.of_row(row)
            for column, mask in b.run(first, end):
                element = column + row * n.columns
                value = b.load(self.sums, element, "int32", mask)
                loaded = {**self.epilogue.columns(column, mask), **row_operands}
                self.epilogue.apply(value, element, column, mask, loaded)
