"""Products of one row: the second factor is read once, in the order of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from toolkit.backends.base import ALIGNMENT, aligned
from toolkit.backends.numpy.jit.builder import Number, Pointer, Value
from toolkit.backends.numpy.jit.epilogue import Described, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.matmul.pack import LINES, Packer
from toolkit.backends.numpy.jit.kernels.matmul.writer import MatrixWriter
from toolkit.definitions.records import record
from toolkit.ir import Graph

# Terms whose addresses are formed from one pointer: x86 adds 0, 1, 2, 4 times a stride.
_TERMS_PER_POINTER = 5


@record
class RowPlan:
    """What the code depends on.

    Attributes:
        dtype, lanes: of its vectors.
        vectors: of columns that a row of the call computes.
        terms: that are multiplied together, each with its row of the second factor,
            unless that is packed.
        a, b: which inputs of the body the factors are.
        chained: whether sums of parts of the depth are added.
        packed: whether the second factor is not b, but panels that `emit_row_panels`
            has made of it.
    """

    dtype: str
    lanes: int
    vectors: int
    terms: int
    a: int = 0
    b: int = 1
    chained: bool = False
    packed: bool = False


class RowNumbers(NamedTuple):
    """What follows the addresses in the table; strides are in bytes.

    Attributes:
        depth, columns: extents of the product.
        a_term, b_term: strides of the factors, from term to term.
        step: terms of a part of the depth.
        panel: bytes of a panel, if there are any.
    """

    depth: Any
    columns: Any
    a_term: Any
    b_term: Any
    step: Any
    panel: Any


def panel_bytes(depth: int, width: int, itemsize: int) -> int:
    """The size of a panel of `emit_row_panels`, for whole numbers of vectors."""
    return aligned(depth * width * itemsize) + ALIGNMENT


def emit_row_panels(dtype: str, lanes: int, width: int) -> Kernel:
    """The function that packs the second factor; a row is a panel of `width` columns.

    The rows of a panel follow each other. Behind them is what its last reader notes.
    The table: addresses of the factor and of the panels; columns, terms, bytes between
    terms, bytes of a panel.
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


def emit_row(plan: RowPlan, body: Described) -> Kernel:
    """The function that computes products of one row.

    The table: the addresses of the body's inputs and outputs, of panels if there are
    any, and of memory for the sums, twice if the plan is chained; `RowNumbers`.
    """
    row = _Row(Kernel(plan.lanes), plan, body.body)
    row.write(Epilogue(body.body, row.b, row.bases))
    return row.b


def emit_row_parts(plan: RowPlan) -> Kernel:
    """The function that sums parts of the depth, each a row of the call.

    What a part reads of the second factor is in the order of memory. The table: the
    addresses of the factors, and of the sums of each part; `RowNumbers`.
    """
    row = _Row(Kernel(plan.lanes), plan, None)
    row.write_parts()
    return row.b


class _Row(MatrixWriter):
    """Writes the function."""

    def __init__(self, builder: Kernel, plan: RowPlan, graph: Graph | None) -> None:
        super().__init__(builder, plan.dtype)
        self.plan = plan
        self.width: int = plan.vectors * plan.lanes
        b, count = self.b, len((*graph.inputs, *graph.outputs)) if graph else 2
        self.bases: list[Pointer] = [b.next_address() for _ in range(count)]
        self.first, self.second = self.bases[plan.a], self.bases[plan.b]
        if plan.packed:
            self.second = b.next_address()
        self.sums: Pointer = b.next_address()
        self.n = n = RowNumbers(*(b.next_entry() for _ in RowNumbers._fields))
        self.third: Number = 3 * n.b_term

    def write_parts(self) -> None:
        """Some terms of all columns."""
        b, n, sums = self.b, self.n, self.sums
        self.low: Number = 0
        self.high: Number = n.columns
        with b.loop(b.low, b.high) as part:
            self.sums = sums + part * n.columns * self.itemsize
            self._sum_rows(self.second, *b.part(part, n.step, n.depth))

    def write(self, epilogue: Epilogue) -> None:
        """All columns at once, or a panel after the other."""
        self.epilogue = epilogue
        if not self.plan.packed:
            self._columns(self.b.low, self.b.high, self.second)
            return
        b, n = self.b, self.n
        is_odd = self._turn()
        with b.loop(0, b.high - b.low) as index:
            panel = b.choose(is_odd, b.high - 1 - index, b.low + index)
            self._columns(panel, panel + 1, self.second + panel * n.panel)

    def _turn(self) -> Value:
        """Whether this run of the task is the second, fourth, ... one.

        Every other run begins with the panel that the one before has read last: it is
        still in a cache that is too small for all of them. A task notes its runs behind
        the panel of its number.
        """
        b, n = self.b, self.n
        note = self.second + (b.slot + 1) * n.panel + -ALIGNMENT
        before = b.let(f"atomicrmw xor ptr {note}, i32 1 monotonic", "int32")
        return b.let(f"icmp ne i32 {before}, 0", "bool")

    def _columns(self, first: Number, end: Number, y: Pointer) -> None:
        """Sum all terms of some widths of columns, then apply the epilogue."""
        b, n, result = self.b, self.n, self.sums
        self.low = first * self.width
        self.high = b.least(end * self.width, n.columns)
        if self.plan.chained:
            result = self.sums + n.columns * self.itemsize
            with b.loop(0, b.ceil_div(n.depth, n.step)) as step:
                self._sum(y, *b.part(step, n.step, n.depth))
                self._add_to(result, b.least(step, 1))
        else:
            self._sum(y, 0, n.depth)
        for column, mask in b.run(self.low, self.high):
            loaded = self.epilogue.columns(column, mask)
            total = b.load(result, column, self.dtype, mask)
            self.epilogue.apply(total, column, column, mask, loaded)

    def _sum(self, y: Pointer, first: Number, end: Number) -> None:
        """Sum terms in their order."""
        if self.plan.packed:
            self._sum_panel(y, first, end)
        else:
            self._sum_rows(y, first, end)

    def _sum_panel(self, panel: Pointer, first: Number, end: Number) -> None:
        """Sum in registers: a panel is read in the order of memory."""
        b, size = self.b, self.vector_bytes
        sums = [self.zero] * self.plan.vectors
        with b.accumulate(first, end, 1, sums) as iteration:
            term = iteration.index
            x = b.splat(b.scalar(self.first + term * self.n.a_term, self.dtype))
            row = panel + term * (self.width * self.itemsize)
            ys = [self.vector(row + j * size) for j in range(self.plan.vectors)]
            pairs = zip(ys, iteration.values, strict=True)
            iteration.next([self.plus_product(total, x, y) for y, total in pairs])
        masks = b.first_of_vectors(self.high - self.low, self.plan.vectors)
        place = self.sums + self.low * self.itemsize
        for j, (value, mask) in enumerate(zip(iteration.values, masks, strict=True)):
            self.put(value, place + j * size, mask)

    def _sum_rows(self, y: Pointer, first: Number, end: Number) -> None:
        """Sum in memory, some rows at a time."""
        b = self.b
        for column, mask in b.run(self.low, self.high):
            b.store(self.zero, self.sums, column, mask)
        whole = b.whole_vectors(first, end, self.plan.terms)
        with b.loop(first, whole, self.plan.terms) as term:
            self._add(y, term, self.plan.terms)
        with b.loop(whole, end) as term:
            self._add(y, term, 1)

    def _add(self, y: Pointer, first: Number, terms: int) -> None:
        """Add some terms to the sums of all columns."""
        b, n = self.b, self.n
        start = self.first + first * n.a_term
        scalars = (b.scalar(start + i * n.a_term, self.dtype) for i in range(terms))
        xs = [b.splat(x) for x in scalars]
        y = y + first * n.b_term
        pointers = [y + i * n.b_term for i in range(0, terms, _TERMS_PER_POINTER)]
        for column, mask in b.run(self.low, self.high):
            total = b.load(self.sums, column, self.dtype, mask)
            offset = column * self.itemsize
            rows = self._rows([pointer + offset for pointer in pointers], terms)
            for x, row in zip(xs, rows, strict=True):
                total = self.plus_product(total, x, self.vector(row, mask))
            b.store(total, self.sums, column, mask)

    def _rows(self, pointers: list[Pointer], terms: int) -> Iterator[Pointer]:
        """Pointers to the terms of a column."""
        for i in range(terms):
            pointer, step = pointers[i // _TERMS_PER_POINTER], i % _TERMS_PER_POINTER
            yield pointer + (self.third if step == 3 else step * self.n.b_term)

    def _add_to(self, result: Pointer, earlier: Number) -> None:
        """Add the sums to those that are there already, unless they are the first."""
        b = self.b
        for column, mask in b.run(self.low, self.high):
            total = b.load(self.sums, column, self.dtype, mask)
            with b.accumulate(0, earlier, 1, [total]) as iteration:
                before = b.load(result, column, self.dtype, mask)
                iteration.next([self.sum(iteration.values[0], before)])
            b.store(iteration.values[0], result, column, mask)
