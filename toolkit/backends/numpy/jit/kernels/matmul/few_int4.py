"""Products of few rows with 4-bit numbers, each of which is read only once.

Unpacked to memory they would take eight times the bytes, written and read for a few
products each. So they are unpacked in registers. A run is a sequence of terms of one
block. For each run the kernel sums x * number and x. At the end of the run it applies
the scale and the zero: scale * (sum of x * number - zero * sum of x).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value, literal
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.matmul.unpack import (
    load_block_number,
    load_zeros,
)
from toolkit.backends.numpy.jit.processor import CACHE_LINE, current
from toolkit.definitions.records import record

# The prefetch distance in rows of the matrix.
_PREFETCH_ROWS = 16
_ENTRY_BYTES = 8  # bytes of an entry in the list of runs


@record
class FewInt4Plan:
    """The properties that the code depends on.

    Attributes:
        lanes: of a vector.
        registers: the vector registers of the processor.
        rows: of the product.
        is_signed: whether numbers are from -8 to 7. Otherwise they are from 0 to 15.
        a: the input of the body that is the left operand.
        factors: packed numbers, scales and zeros, and the block of each term.
    """

    lanes: int
    registers: int
    rows: int
    is_signed: bool
    a: int
    factors: tuple[int, ...]

    @property
    def pairs(self) -> int:
        """Return the pairs of vectors of columns per register block."""
        return max(1, self.registers // (4 * self.rows))

    @property
    def columns(self) -> int:
        """Return the columns per register block."""
        return 2 * self.lanes * self.pairs


class FewInt4Numbers(NamedTuple):
    """The numbers after the addresses in the table.

    Attributes:
        columns, depth: extents of the matrix.
        blocks: the rows of scales.
        width: the columns of a row of the call.
    """

    columns: Any
    depth: Any
    blocks: Any
    width: Any


def max_rows() -> int:
    """Return the most rows: a pair of sums for each fills half the registers."""
    return current().registers // 4


def runs_bytes(depth: int) -> int:
    """Return the bytes of the list of runs: their number, their starts, and the end."""
    return _ENTRY_BYTES * (depth + 2)


def emit_runs() -> Kernel:
    """Emit a function that lists the runs of terms of one block, with one row.

    The table holds the addresses of the block of each term and of the list, and the
    number of terms.
    """
    b = Kernel(1)
    blocks, target, depth = b.next_address(), b.next_address(), b.next_entry()
    no_block = Value(literal(float("nan"), "float32"), "float32")
    with b.accumulate(0, depth, 1, [no_block, b.int64(0)]) as loop:
        stored = b.scalar(b.at(blocks, loop.index, "float32"), "float32")
        is_other = b.binary("fcmp une", stored, loop.values[0], "bool")
        count = loop.index_of(1)
        with b.when(is_other):
            _store_index(b, target, count + 1, loop.index)
        new_count = count + b.index(f"zext i1 {is_other} to i64")
        loop.next([stored, b.int64(new_count)])
    _store_index(b, target, 0, loop.index_of(1))
    _store_index(b, target, loop.index_of(1) + 1, depth)
    return b


def _store_index(b: Kernel, target: Pointer, index: Number, number: Number) -> None:
    b.put_scalar(b.int64(number), target + index * _ENTRY_BYTES)


def emit_few_int4(plan: FewInt4Plan, body: BodyStructure) -> Kernel:
    """Emit the function that computes parts of the columns.

    The table holds the addresses of the body's inputs and outputs, of the list of runs,
    and of the error block for bad blocks, then `FewInt4Numbers`.
    """
    b = Kernel(plan.lanes)
    _FewInt4(b, plan, body).write()
    return b


class _FewInt4:
    """Emits the function."""

    def __init__(self, b: Kernel, plan: FewInt4Plan, body: BodyStructure) -> None:
        self.b, self.plan = b, plan
        self.epilogue = Epilogue.of_table(body, b)
        bases = self.epilogue.addresses
        self.a = bases[plan.a]
        self.packed, self.scale, self.zero, self.block = (
            bases[i] for i in plan.factors
        )
        self.runs, self.error = b.next_address(), b.next_address()
        n = self.n = b.next_entries(FewInt4Numbers)
        self.line: Number = b.ceil_div(n.columns, 2)
        vectors = 2 * plan.pairs * plan.rows
        self.totals = b.memory(vectors, b.filled(0.0, "float32"))

    def write(self) -> None:
        """Emit the loops over parts, and over their register blocks of columns."""
        b, plan = self.b, self.plan
        with b.loop(b.low, b.high) as panel:
            first, end = b.tile_range(panel, self.n.width, self.n.columns)
            full = b.whole_vectors(first, end, plan.columns)
            with b.loop(first, full, plan.columns) as column:
                self._columns(column, plan.pairs, None)
            with b.loop(full, end, 2 * plan.lanes) as column:
                self._columns(column, 1, end - column)

    def _columns(self, column: Number, pairs: int, column_count: Number | None) -> None:
        """Compute some pairs of vectors of columns, `column_count` of them valid."""
        b, rows = self.b, self.plan.rows
        zero = b.filled(0.0, "float32")
        for i in range(2 * pairs * rows):
            b.store(zero, self.totals, i * b.lanes, None)
        with b.loop(0, self._run(0)) as run:
            first, end = self._run(run + 1), self._run(run + 2)
            initial = [zero] * (2 * pairs * rows) + [b.first_lane(zero)] * rows
            with b.accumulate(first, end, 1, initial) as loop:
                term = loop.index
                numbers = self._numbers(term, column, pairs, column_count)
                loop.next(self._add_term(term, numbers, loop.values))
            self._scale(first, column, pairs, column_count, loop.values)
        for row in range(rows):
            self._apply_epilogue(row, column, pairs, column_count)

    def _run(self, number: Number) -> Number:
        return self.b.integer_at(self.runs + number * _ENTRY_BYTES, "int64")

    def _masks(self, number: int, column_count: Number | None) -> Mask:
        """Return the mask of the number-th vector of columns."""
        b = self.b
        return (
            None
            if column_count is None
            else b.first_lanes(column_count - number * b.lanes)
        )

    def _numbers(
        self, term: Number, column: Number, pairs: int, column_count: Number | None
    ) -> list[Value]:
        """Return a term's numbers of even and odd columns, plus 8 if signed."""
        b, numbers = self.b, []
        source = self.packed + term * self.line + column // 2
        prefetch_address = source + self.line * _PREFETCH_ROWS
        for start in range(0, pairs * b.lanes, CACHE_LINE):
            b.prefetch(prefetch_address + start)
        mask: Mask = None
        if column_count is not None:
            mask = b.first_lanes((column_count + 1) // 2)
        for pair in range(pairs):
            pair_bytes = b.load(source, pair * b.lanes, "uint8", mask)
            words = b.convert("zext", pair_bytes, "int32")
            if self.plan.is_signed:
                words = b.binary("xor", words, b.filled(0x88, "int32"))
            low = b.binary("and", words, b.filled(15, "int32"))
            high = b.binary("lshr", words, b.filled(4, "int32"))
            numbers += [b.convert("sitofp", x, "float32") for x in (low, high)]
        return numbers

    def _add_term(
        self, term: Number, numbers: list[Value], values: list[Value]
    ) -> list[Value]:
        """Return the sums with the products of a term, then the sums of rows."""
        b, rows, count = self.b, self.plan.rows, len(numbers)
        products, row_sums = [], []
        for row in range(rows):
            address = b.at(self.a, term + row * self.n.depth, "float32")
            x = b.scalar(address, "float32")
            row_sums.append(b.binary("fadd", values[rows * count + row], x))
            x_vector = b.splat(x)
            sums = values[row * count : (row + 1) * count]
            products += [
                b.intrinsic("fma", x_vector, number, previous)
                for number, previous in zip(numbers, sums, strict=True)
            ]
        return [*products, *row_sums]

    def _scale(
        self,
        term: Number,
        column: Number,
        pairs: int,
        column_count: Number | None,
        values: list[Value],
    ) -> None:
        """Add the scaled sums of a run to the totals. `term` is its first term."""
        b, rows = self.b, self.plan.rows
        stored = b.scalar(b.at(self.block, term, "float32"), "float32")
        block = load_block_number(b, stored, self.n.blocks, self.error)
        order = [lane // 2 + lane % 2 * b.lanes for lane in range(2 * b.lanes)]
        halves = order[: b.lanes], order[b.lanes :]
        for pair in range(pairs):
            for half, lane_order in enumerate(halves):
                number = 2 * pair + half
                mask = self._masks(number, column_count)
                index = block * self.n.columns + column + number * b.lanes
                scale = b.load(self.scale, index, "float32", mask)
                origin = self._origin(index, mask)
                for row in range(rows):
                    first = 2 * (row * pairs + pair)
                    even, odd = values[first : first + 2]
                    total = b.shuffled(even, odd, lane_order)
                    row_sum = b.splat(values[2 * pairs * rows + row])
                    offset_term = b.binary("fmul", origin, row_sum)
                    shifted = b.binary("fsub", total, offset_term)
                    total_index = (2 * row * pairs + number) * b.lanes
                    old_total = b.load(self.totals, total_index, "float32", None)
                    new_total = b.intrinsic("fma", scale, shifted, old_total)
                    b.store(new_total, self.totals, total_index, None)

    def _origin(self, index: Number, mask: Mask) -> Value:
        """Return zeros with the same bias as the numbers: 8 if they are signed."""
        b, is_signed = self.b, self.plan.is_signed
        zeros = load_zeros(b, self.zero, index, mask, is_signed)
        return b.binary("fadd", zeros, b.filled(8.0, "float32")) if is_signed else zeros

    def _apply_epilogue(
        self, row: int, column: Number, pairs: int, column_count: Number | None
    ) -> None:
        """Apply the epilogue to the totals of a row."""
        b = self.b
        row_operands = self.epilogue.of_row(row)
        for number in range(2 * pairs):
            mask = self._masks(number, column_count)
            at = column + number * b.lanes
            total_index = (2 * row * pairs + number) * b.lanes
            value = b.load(self.totals, total_index, "float32", None)
            loaded = {**self.epilogue.columns(at, mask), **row_operands}
            element = at + row * self.n.columns
            self.epilogue.apply(value, element, at, mask, loaded)
