"""The kernel of integer products: tiles of words, followed by the epilogue."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.tiling import Tiling
from toolkit.backends.numpy.jit.kernels.integer.pack import WORD_BYTES
from toolkit.backends.numpy.jit.kernels.integer.patches import PatchPlan, call_packer
from toolkit.backends.numpy.jit.kernels.integer.words import Words
from toolkit.definitions.records import record

# Bytes of the sums of some rows and a panel, which fit the L1 cache.
_SUMS_BYTES = 1 << 13


@record
class IntegerPlan:
    """The properties that the code depends on.

    Attributes:
        words: the format of the terms.
        tiling: the register blocking.
        has_partial_vector: whether the last vector is partial.
        a: the input of the body that holds the words of rows. None: they are packed,
        with their address before the panels'.
        by_rows: whether a row of the call is a block of rows, for all panels.
        patches: the packing of the rows of such a block into memory of the task. None:
        they are words already.
        images: the input of the body that is packed.
    """

    words: Words
    tiling: Tiling
    has_partial_vector: bool = True
    a: int | None = None
    by_rows: bool = False
    patches: PatchPlan | None = None
    images: int = 0

    @property
    def max_rows(self) -> int:
        """Return the number of rows that fit the memory for sums."""
        line, rows = self.tiling.width * WORD_BYTES, self.tiling.rows
        return max(1, _SUMS_BYTES // line // rows) * rows


class IntegerNumbers(NamedTuple):
    """The numbers after the addresses in the table. Strides are in bytes.

    Attributes:
        rows, columns, words: extents of the product.
        row_bytes, panel_bytes: strides of rows of words, and of panels.
        block_rows, row_blocks: the rows of a block, and the number of blocks.
    """

    rows: Any
    columns: Any
    words: Any
    row_bytes: Any
    panel_bytes: Any
    block_rows: Any
    row_blocks: Any


def emit_integer_product(plan: IntegerPlan, body: BodyStructure) -> Kernel:
    """Emit the function that computes blocks of rows for one panel or all panels.

    A block is a row of the call. The table holds the addresses of the body's inputs and
    outputs, of the rows as words or the tasks' memory for them, and of the panels. Then
    follow `IntegerNumbers` and `patch_numbers`.
    """
    builder = Kernel(plan.tiling.lanes)
    _Product(builder, plan, body).write()
    return builder


@record
class _RowBlock:
    """Rows of a panel that are computed together, their first column and vectors."""

    row: Number
    rows: Number
    column: Number
    vectors: int
    is_tail: bool


class _Product:
    """Emits the function."""

    def __init__(self, b: Kernel, plan: IntegerPlan, body: BodyStructure) -> None:
        self.b = b
        self.plan = plan
        self.tiling = plan.tiling
        self.epilogue = Epilogue.of_table(body, b)
        bases = self.epilogue.addresses
        self.images = bases[plan.images]
        self.words = bases[plan.a] if plan.a is not None else b.next_address()
        self.panels = b.next_address()
        self.n = b.next_entries(IntegerNumbers)
        # The numbers of the packing follow in the table.
        entry = len(bases) + (plan.a is None) + 1 + len(self.n)
        self.numbers = b.table.element(entry, "i64")
        self.sums = b.memory(plan.max_rows * self.tiling.vectors, b.filled(0, "int32"))
        self.vector_bytes: int = self.tiling.lanes * WORD_BYTES

    def write(self) -> None:
        """Emit the loops over blocks, and over the tiles of each."""
        b, n, plan = self.b, self.n, self.plan
        full = n.columns // self.tiling.width
        with b.loop(b.low, b.high) as unit:
            if plan.by_rows:
                self._row_block(unit, full)
            else:
                self._panel_block(unit, full)

    def _panel_block(self, unit: Number, full: Number) -> None:
        """Multiply a block of rows by a panel."""
        b, n = self.b, self.n
        panel, block = b.split(unit, n.row_blocks)
        rows = b.tile_range(block, n.block_rows, n.rows)
        is_full = b.compare("slt", panel, full)
        if self.tiling.full:
            with b.when(is_full):
                self._rows(rows, panel, self.tiling.vectors, False)
        if self.tiling.tail:
            with b.when(b.opposite(is_full)):
                self._rows(rows, panel, self.tiling.tail, True)

    def _row_block(self, block: Number, full: Number) -> None:
        """Multiply a block of rows by all panels, after packing it if necessary."""
        b, n, plan = self.b, self.n, self.plan
        rows, words = b.tile_range(block, n.block_rows, n.rows), self.words
        if plan.patches is not None:
            memory = self.words + b.slot * n.block_rows * n.row_bytes
            call_packer(b, plan.patches, self.images, memory, rows, self.numbers)
            # Row numbers are relative to the first row of all blocks.
            words = memory + rows[0] * n.row_bytes * -1
        if self.tiling.full:
            with b.loop(0, full) as panel:
                self._rows(rows, panel, self.tiling.vectors, False, words)
        if self.tiling.tail:
            self._rows(rows, full, self.tiling.tail, True, words)

    def _rows(
        self,
        rows: Range,
        panel: Number,
        vectors: int,
        is_tail: bool,
        words: Pointer | None = None,
    ) -> None:
        """Multiply a block by a panel, in chunks whose sums fit the memory."""
        b, n, (first, end) = self.b, self.n, rows
        name = "sum_tail" if is_tail else "sum_panel"
        b.declarations |= _sum_function(name, self.plan, vectors)
        with b.loop(first, end, self.plan.max_rows) as row:
            count = b.min(self.plan.max_rows, end - row)
            lines = (words or self.words) + row * n.row_bytes
            factor = self.panels + panel * n.panel_bytes
            b.call(name, lines, factor, self.sums, count, n.words, n.row_bytes)
            column = panel * self.tiling.width
            self._apply_epilogue(_RowBlock(row, count, column, vectors, is_tail))

    def _apply_epilogue(self, block: _RowBlock) -> None:
        """Apply the epilogue to the sums of some rows, two vectors at a time.

        Processors pack two vectors into bytes as quickly as one.
        """
        b, n, lanes = self.b, self.n, self.b.lanes
        starts = range(0, block.vectors, 2)
        for first in starts:
            count = min(2, block.vectors - first)
            with b.of_lanes(count * lanes):
                column = block.column + first * lanes
                is_last = block.is_tail and first == starts[-1]
                has_mask = is_last and self.plan.has_partial_vector
                mask = b.first_lanes(n.columns - column) if has_mask else None
                self._apply_epilogue_to_vectors(block, first, column, mask)

    def _apply_epilogue_to_vectors(
        self, block: _RowBlock, first: int, column: Number, mask: Mask
    ) -> None:
        """Apply the epilogue to some columns of all rows, as one vector of each row."""
        b, n = self.b, self.n
        column_operands = self.epilogue.columns(column, mask)
        with b.loop(0, block.rows) as i:
            row = i + block.row
            row_operands = self.epilogue.of_row(row)
            address = self.sums + i * (block.vectors * self.vector_bytes)
            value = b.load(address + first * self.vector_bytes, 0, "int32", None)
            element = row * n.columns + column
            loaded = {**column_operands, **row_operands}
            self.epilogue.apply(value, element, column, mask, loaded)


_PARAMETERS = (
    "ptr noalias %a",
    "ptr noalias %b",
    "ptr noalias %sums",
    "i64 %rows",
    "i64 %words",
    "i64 %a_row",
)


def _sum_function(name: str, plan: IntegerPlan, vectors: int) -> set[str]:
    """Return a function that sums rows. A separate function frees the registers."""
    b, tiling = Kernel(plan.tiling.lanes), plan.tiling
    full, remainder = b.split(b.parameter("rows"), tiling.rows)
    with b.loop(0, full) as tile:
        _sum_tile(b, plan, tile * tiling.rows, tiling.rows, vectors)
    for height in tiling.heights[1:]:
        with b.when(b.compare("ne", remainder & height, 0)):
            row = full * tiling.rows + (remainder & -2 * height)
            _sum_tile(b, plan, row, height, vectors)
    return b.internal_function(name, _PARAMETERS)


def _sum_tile(
    b: Kernel, plan: IntegerPlan, first: Number, rows: int, vectors: int
) -> None:
    """Sum the products of all words of some rows, and store the sums."""
    vector_bytes = b.lanes * WORD_BYTES
    panel, line = b.pointer_parameter("b"), plan.tiling.vectors * vector_bytes
    sums = b.pointer_parameter("sums") + first * (vectors * vector_bytes)
    stride = b.parameter("a_row")
    lines = [b.pointer_parameter("a") + (first + i) * stride for i in range(rows)]

    def line_of(address: Pointer) -> list[Value]:
        steps = [j * vector_bytes for j in range(vectors)]
        return [b.load(address + step, 0, "int32", None) for step in steps]

    initial = line_of(panel) * rows
    with b.accumulate(0, b.parameter("words"), 1, initial) as iteration:
        word, totals = iteration.index, iteration.values
        ys = line_of(panel + (word + 1) * line)
        for i, address in enumerate(lines):
            x = b.splat(b.scalar(address + word * WORD_BYTES, "int32"))
            for j, y in enumerate(ys):
                k = i * vectors + j
                totals[k] = plan.words.multiply_add(b, totals[k], x, y)
        iteration.next(totals)
    for k, value in enumerate(iteration.values):
        b.store(value, sums + k * vector_bytes, 0, None)
