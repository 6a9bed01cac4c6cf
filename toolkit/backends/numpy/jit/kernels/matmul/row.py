"""Products of one row: the right operand is read once, in memory order."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.problem import LINES
from toolkit.backends.numpy.jit.kernels.gemm.writer import (
    LINES_PER_POINTER,
    MatrixWriter,
    line_addresses,
)
from toolkit.backends.numpy.jit.kernels.matmul.pack import Packer
from toolkit.definitions.records import record
from toolkit.ir import Graph
from toolkit.plans.operands import ALIGNMENT, align_up


@record
class RowPlan:
    """The properties that the code depends on.

    Attributes:
        dtype, lanes: of its vectors.
        a_dtype, b_dtype: of the operands in memory: `dtype`, or a 16-bit float.
        vectors: the vectors of columns in a row of the call.
        terms: the terms per iteration, each with a row of an unpacked right operand.
        a, b: the inputs of the body that are the operands.
        is_chained: whether sums of parts of the depth are added.
        is_packed: whether the right operand is packed to panels by `emit_row_panels`.
        prefetches: whether to prefetch the rows of the next iteration, because rows are
            too short for the prefetchers of the processor.
    """

    dtype: str
    a_dtype: str
    b_dtype: str
    lanes: int
    vectors: int
    terms: int
    a: int = 0
    b: int = 1
    is_chained: bool = False
    is_packed: bool = False
    prefetches: bool = False


class RowNumbers(NamedTuple):
    """The numbers after the addresses in the table. Strides are in bytes.

    Attributes:
        depth, columns: extents of the product.
        a_term, b_term: strides of the operands' terms.
        step: the terms of a part of the depth.
        panel: the bytes of a panel, if there are any.
    """

    depth: Any
    columns: Any
    a_term: Any
    b_term: Any
    step: Any
    panel: Any


def panel_bytes(depth: int, width: int, itemsize: int) -> int:
    """Return the bytes of a panel of `emit_row_panels`, for whole vectors."""
    return align_up(depth * width * itemsize) + ALIGNMENT


def emit_row_panels(dtype: str, lanes: int, width: int) -> Kernel:
    """Emit the function that packs the right operand. A row is a panel.

    The rows of a panel of `width` columns are contiguous. A counter for its last reader
    follows them. The table holds the addresses of the operand and of the panels, then
    columns, terms, byte stride of terms, bytes of a panel.
    """
    w = MatrixWriter(Kernel(lanes), dtype)
    b = w.b
    source, target = b.next_address(), b.next_address()
    columns, depth, term, size = (b.next_entry() for _ in range(4))
    packer = Packer(w, LINES, width)
    with b.loop(b.low, b.high) as panel:
        column = panel * width
        x, y = source + column * w.itemsize, target + panel * size
        packer.write(x, y, w.itemsize, term, columns - column, depth)
        b.emit(f"store i32 0, ptr {y + (size - ALIGNMENT)}")
    return b


def emit_row(plan: RowPlan, body: BodyStructure) -> Kernel:
    """Emit the function that computes products of one row.

    The table holds the addresses of the body's inputs and outputs, of panels if there
    are any, and of memory for the sums, twice if the plan is chained. `RowNumbers`
    follow.
    """
    row = _Row(Kernel(plan.lanes), plan, body.body)
    row.write(Epilogue(body.body, row.b, row.bases))
    return row.b


def emit_row_parts(plan: RowPlan) -> Kernel:
    """Emit the function that sums parts of the depth, each a row of the call.

    A part reads the right operand in memory order. The table holds the addresses of the
    operands, and of the sums of each part, then `RowNumbers`.
    """
    row = _Row(Kernel(plan.lanes), plan, None)
    row.write_parts()
    return row.b


class _Row(MatrixWriter):
    """Emits the function."""

    def __init__(self, builder: Kernel, plan: RowPlan, graph: Graph | None) -> None:
        super().__init__(builder, plan.dtype)
        self.plan = plan
        self.b_itemsize: int = dtypes.itemsize(plan.b_dtype)
        self.width: int = plan.vectors * plan.lanes
        b, count = self.b, len((*graph.inputs, *graph.outputs)) if graph else 2
        self.bases: list[Pointer] = [b.next_address() for _ in range(count)]
        self.left_address, self.right_address = self.bases[plan.a], self.bases[plan.b]
        if plan.is_packed:
            self.right_address = b.next_address()
        self.sums: Pointer = b.next_address()
        self.n = n = b.next_entries(RowNumbers)
        self.triple_stride: Number = 3 * n.b_term

    def write_parts(self) -> None:
        """Sum some terms of all columns."""
        b, n, sums = self.b, self.n, self.sums
        self.low: Number = 0
        self.high: Number = n.columns
        with b.loop(b.low, b.high) as part_index:
            self.sums = sums + part_index * n.columns * self.itemsize
            self._sum_rows(
                self.right_address, *b.tile_range(part_index, n.step, n.depth)
            )

    def write(self, epilogue: Epilogue) -> None:
        """Compute all columns at once, or panel by panel."""
        self.epilogue = epilogue
        if not self.plan.is_packed:
            self._columns(self.b.low, self.b.high, self.right_address)
            return
        b, n = self.b, self.n
        is_odd = self._toggle_parity()
        with b.loop(0, b.high - b.low) as index:
            panel = b.choose(is_odd, b.high - 1 - index, b.low + index)
            self._columns(panel, panel + 1, self.right_address + panel * n.panel)

    def _toggle_parity(self) -> Value:
        """Return whether the number of earlier runs of the task is odd.

        Every other run starts with the panel that the previous one read last, because
        it is still in a cache that is too small for all panels. A task stores the
        parity of its runs after the panel of its number.
        """
        b, n = self.b, self.n
        note = self.right_address + (b.slot + 1) * n.panel + -ALIGNMENT
        parity = b.let(f"atomicrmw xor ptr {note}, i32 1 monotonic", "int32")
        return b.let(f"icmp ne i32 {parity}, 0", "bool")

    def _columns(self, first: Number, end: Number, y: Pointer) -> None:
        """Sum all terms of some widths of columns, then apply the epilogue."""
        b, n, result = self.b, self.n, self.sums
        self.low = first * self.width
        self.high = b.min(end * self.width, n.columns)
        if self.plan.is_chained:
            result = self.sums + n.columns * self.itemsize
            with b.loop(0, b.ceil_div(n.depth, n.step)) as step:
                self._sum(y, *b.tile_range(step, n.step, n.depth))
                self._add_to(result, b.min(step, 1))
        else:
            self._sum(y, 0, n.depth)
        for column, mask in b.run(self.low, self.high):
            loaded = self.epilogue.columns(column, mask)
            total = b.load(result, column, self.dtype, mask)
            self.epilogue.apply(total, column, column, mask, loaded)

    def _sum(self, y: Pointer, first: Number, end: Number) -> None:
        """Sum terms in order."""
        if self.plan.is_packed:
            self._sum_panel(y, first, end)
        else:
            self._sum_rows(y, first, end)

    def _sum_panel(self, panel: Pointer, first: Number, end: Number) -> None:
        """Sum in registers. A panel is read in memory order."""
        b, size = self.b, self.b.lanes * self.b_itemsize
        sums = [self.zero] * self.plan.vectors
        with b.accumulate(first, end, 1, sums) as iteration:
            term = iteration.index
            x = b.splat(self._left(self.left_address + term * self.n.a_term))
            row = panel + term * (self.width * self.b_itemsize)
            ys = [self._right(row + j * size) for j in range(self.plan.vectors)]
            pairs = zip(ys, iteration.values, strict=True)
            iteration.next([self.multiply_add(total, x, y) for y, total in pairs])
        masks = b.first_of_vectors(self.high - self.low, self.plan.vectors)
        address = self.sums + self.low * self.itemsize
        for j, (value, mask) in enumerate(zip(iteration.values, masks, strict=True)):
            self.store_vector(value, address + j * self.vector_bytes, mask)

    def _sum_rows(self, y: Pointer, first: Number, end: Number) -> None:
        """Sum in memory, some rows at a time."""
        b = self.b
        for column, mask in b.run(self.low, self.high):
            b.store(self.zero, self.sums, column, mask)
        full = b.whole_vectors(first, end, self.plan.terms)
        with b.loop(first, full, self.plan.terms) as term:
            self._add(y, term, self.plan.terms)
        with b.loop(full, end) as term:
            self._add(y, term, 1)

    def _add(self, y: Pointer, first: Number, terms: int) -> None:
        """Add some terms to the sums of all columns."""
        b, n = self.b, self.n
        start = self.left_address + first * n.a_term
        scalars = (self._left(start + i * n.a_term) for i in range(terms))
        xs = [b.splat(x) for x in scalars]
        y = y + first * n.b_term
        pointers = [y + i * n.b_term for i in range(0, terms, LINES_PER_POINTER)]
        for column, mask in b.run(self.low, self.high):
            total = b.load(self.sums, column, self.dtype, mask)
            offset = column * self.b_itemsize
            starts = [pointer + offset for pointer in pointers]
            rows = line_addresses(starts, terms, n.b_term, self.triple_stride)
            for x, row in zip(xs, rows, strict=True):
                if terms > 1 and self.plan.prefetches:
                    b.prefetch(row + terms * n.b_term)
                total = self.multiply_add(total, x, self._right(row, mask))
            b.store(total, self.sums, column, mask)

    def _left(self, address: Pointer) -> Value:
        """Load an element of the left operand."""
        return self.scalar_converted(address, self.plan.a_dtype)

    def _right(self, address: Pointer, mask: Mask = None) -> Value:
        """Load a vector of the right operand."""
        return self.load_converted(address, self.plan.b_dtype, mask)

    def _add_to(self, result: Pointer, earlier: Number) -> None:
        """Add the sums to the earlier ones, if there are any."""
        b = self.b
        for column, mask in b.run(self.low, self.high):
            total = b.load(self.sums, column, self.dtype, mask)
            with b.accumulate(0, earlier, 1, [total]) as iteration:
                previous = b.load(result, column, self.dtype, mask)
                iteration.next([self.add(iteration.values[0], previous)])
            b.store(iteration.values[0], result, column, mask)
