"""Products with few columns: sums along rows with contiguous terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.writer import MatrixWriter
from toolkit.backends.numpy.jit.math.narrow import convert
from toolkit.definitions.records import record

# The most rows that are summed together.
MAX_ROWS = 4


@record
class DotPlan:
    """The properties that the code depends on.

    Attributes:
        dtype, lanes: of its vectors.
        a_dtype, b_dtype: of the operands in memory: `dtype`, or a 16-bit float.
        rows: the rows that are summed together.
        columns: of the right operand.
        axes: the number of batch axes.
        a, b: the inputs of the body that are the operands.
        is_gathered: whether the terms of a column of the right operand are strided.
    """

    dtype: str
    a_dtype: str
    b_dtype: str
    lanes: int
    rows: int
    columns: int
    axes: int
    a: int
    b: int
    is_gathered: bool


class DotNumbers(NamedTuple):
    """The numbers after the addresses in the table. Strides are in bytes."""

    rows: Any
    depth: Any
    a_row: Any
    b_term: Any
    b_line: Any
    scratch: Any


def emit_dot(plan: DotPlan, body: BodyStructure) -> Kernel:
    """Emit the function that computes products with few columns.

    A row of the call is a row of the product, or a product of a batch if there are
    axes. The table holds the addresses of the body's inputs and outputs, and of scratch
    memory if columns are gathered, then `DotNumbers` and the axes of the batch.
    """
    dot = _Dot(Kernel(plan.lanes), plan, body)
    dot.write()
    return dot.b


class _Dot(MatrixWriter):
    """Emits the function."""

    def __init__(self, builder: Kernel, plan: DotPlan, body: BodyStructure) -> None:
        super().__init__(builder, plan.dtype)
        self.plan = plan
        self.a_itemsize: int = dtypes.itemsize(plan.a_dtype)
        # Gathered columns are converted.
        self.column_dtype: str = plan.dtype if plan.is_gathered else plan.b_dtype
        self.column_itemsize: int = dtypes.itemsize(self.column_dtype)
        self.epilogue = Epilogue.of_table(body, builder)
        bases = self.epilogue.addresses
        self.left_address, self.right_address = bases[plan.a], bases[plan.b]
        if plan.is_gathered:
            scratch = self.b.next_address()
        self.n = self.b.next_entries(DotNumbers)
        self.batch = [self.batch_entry() for _ in range(plan.axes)]
        if plan.is_gathered:
            self.scratch = scratch + builder.slot * self.n.scratch
        # Vectors of the sums of all lanes, or of the rows and columns.
        self.sums = builder.memory(MAX_ROWS, self.zero)

    def write(self) -> None:
        """Emit the loop over rows, or over products and their rows."""
        b, n = self.b, self.n
        if not self.plan.axes:
            self._product(self.left_address, self.right_address, b.low, b.high, 0)
            return
        with b.loop(b.low, b.high) as unit:
            element = unit * (n.rows * self.plan.columns)
            x = self.batch_address(self.left_address, unit, self.batch, "a")
            y = self.batch_address(self.right_address, unit, self.batch, "b")
            self._product(x, y, 0, n.rows, element)

    def _product(
        self, x: Pointer, y: Pointer, low: Number, high: Number, element: Number
    ) -> None:
        """Compute rows [low, high) of a product."""
        b, line = self.b, self.n.b_line
        if self.plan.is_gathered:
            line = self.n.depth * self.itemsize
            self._gather(y, line)
            y = self.scratch
        columns = [y + c * line for c in range(self.plan.columns)]
        if self.plan.columns == 1:
            self._compute_single_column(x, columns, low, high, element)
            return
        with b.loop(low, high, self.plan.rows) as row:
            self._rows(x, columns, row, high, self.sums)
            rows = b.min(high - row, self.plan.rows)
            self._apply_epilogue(rows, row, element)

    def _compute_single_column(
        self,
        x: Pointer,
        columns: Sequence[Pointer],
        low: Number,
        high: Number,
        element: Number,
    ) -> None:
        """Compute rows of a single column, one per lane of a vector at a time."""
        b = self.b
        with b.loop(low, high, b.lanes) as row:
            remaining = high - row
            with b.loop(0, b.min(remaining, b.lanes), self.plan.rows) as group:
                address = self.sums + group * self.itemsize
                self._rows(x, columns, row + group, high, address)
            at = element + row
            self.epilogue.apply(
                self.load_vector(self.sums), at, row, self.b.first_lanes(remaining)
            )

    def _apply_epilogue(self, rows: Number, first: Number, element: Number) -> None:
        """Apply the epilogue to rows of several columns."""
        b, count = self.b, self.plan.columns
        mask = self.b.first_lanes(count)
        with b.loop(0, rows) as i:
            address = self.sums + i * (count * self.itemsize)
            at = (first + i) * count + element
            self.epilogue.apply(self.load_vector(address, mask), at, 0, mask)

    def _gather(self, y: Pointer, line: Number) -> None:
        """Copy the columns, so that the terms of each are contiguous."""
        b, n = self.b, self.n
        for c in range(self.plan.columns):
            source, target = y + c * n.b_line, self.scratch + c * line
            with b.loop(0, n.depth, b.lanes) as term:
                mask = self.b.first_lanes(n.depth - term)
                value = self.b.gather(source, n.b_term, term, self.plan.b_dtype, mask)
                if self.plan.b_dtype != self.dtype:
                    value = convert(b, value, self.dtype)
                self.b.store(value, target, term, mask)

    # --- sums -------------------------------------------------------------------------

    def _rows(
        self,
        x: Pointer,
        columns: Sequence[Pointer],
        first: Number,
        high: Number,
        address: Pointer,
    ) -> None:
        """Store the sums of some rows with each column."""
        b = self.b
        last = high - 1
        # A row past the end is a copy of the last row.
        rows = [b.min(first + i, last) for i in range(self.plan.rows)]
        pointers = [x + row * self.n.a_row for row in rows]
        for i, value in enumerate(self._sums(pointers, columns)):
            total = self._total(value)
            b.put_scalar(total, address + i * self.itemsize)

    def _sums(self, rows: Sequence[Pointer], columns: Sequence[Pointer]) -> list[Value]:
        """Return a vector of partial sums for each row and column."""
        b, count = self.b, len(rows) * len(columns)
        # Several dependency chains hide the latency if there are few sums.
        chains = 2 if len(columns) == 1 else 1
        step = chains * b.lanes
        full = self.n.depth & -step
        with b.accumulate(0, full, step, [self.zero] * (count * chains)) as iteration:
            results = []
            for c in range(chains):
                term = iteration.index + c * b.lanes
                sums = iteration.values[c * count : (c + 1) * count]
                results += self._add(rows, columns, term, sums, None)
            iteration.next(results)
        sums = iteration.values[:count]
        for c in range(1, chains):
            chain_sums = iteration.values[c * count : (c + 1) * count]
            sums = [self.add(s, t) for s, t in zip(sums, chain_sums, strict=True)]
        with b.accumulate(full, self.n.depth, b.lanes, sums) as iteration:
            mask = self.b.first_lanes(self.n.depth - iteration.index)
            iteration.next(
                self._add(rows, columns, iteration.index, iteration.values, mask)
            )
        return iteration.values

    def _add(
        self,
        rows: Sequence[Pointer],
        columns: Sequence[Pointer],
        term: Number,
        sums: Sequence[Value],
        mask: Mask,
    ) -> list[Value]:
        """Add the products of a vector of terms."""
        offset = term * self.column_itemsize
        ys = [
            self.load_converted(column + offset, self.column_dtype, mask)
            for column in columns
        ]
        results, remaining_sums = [], iter(sums)
        for row in rows:
            address = row + term * self.a_itemsize
            x = self.load_converted(address, self.plan.a_dtype, mask)
            results += [self.multiply_add(next(remaining_sums), x, y) for y in ys]
        return results

    def _total(self, value: Value) -> Value:
        """Return the sum of the lanes by a tree of shuffles."""
        b, step = self.b, self.b.lanes // 2
        while step:
            order = [(i + step) % b.lanes for i in range(b.lanes)]
            value = self.add(value, b.shuffled(value, value, order))
            step //= 2
        return b.first_lane(value)
