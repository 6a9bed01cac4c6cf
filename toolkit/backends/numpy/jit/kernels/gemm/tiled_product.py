"""The kernel of products of blocks: two by two tiles, followed by the epilogue."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range
from toolkit.backends.numpy.jit.calls import partition
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BFLOAT16,
    BLOCK_BYTES,
    BLOCK_LINES,
    PANELS,
    SPAN,
    SUMS_BYTES,
    TILE_ROW_BYTES,
    Run,
    Tiles,
    sum_tile_addresses,
)
from toolkit.backends.numpy.jit.kernels.gemm.dot_product_tiles import create_tiles
from toolkit.backends.numpy.jit.processor import current
from toolkit.plans.loops.planner import TASKS

# The least FLOPs of a task.
_TASK_FLOPS = 1 << 26
# The bytes of a word of each column of a panel.
_LINE_BYTES = 4 * SPAN


class Division(NamedTuple):
    """The rows of a call: groups of panels, each in parts of the rows.

    Attributes:
        group_columns: the columns of a group.
        part_rows: the rows of a part.
        rows: the number of all parts.
    """

    group_columns: int
    part_rows: int
    rows: int

    def grain(self, flops: int) -> int:
        """Return the rows of a task, for the FLOPs of the product."""
        return partition(self.rows, flops // _TASK_FLOPS)


def divide_into_parts(rows: int, columns: int, panel_bytes: int) -> Division:
    """Divide a product. A group of panels stays in the cache for all rows of a part."""
    tiles, panels = (-(-extent // SPAN) for extent in (rows, columns))
    group = max(1, min(current().cache_bytes // 2 // panel_bytes, PANELS))
    groups = -(-panels // group)
    part = -(-tiles // min(-(-TASKS // groups), tiles))
    return Division(group * SPAN, part * SPAN, groups * -(-tiles // part))


class TiledNumbers(NamedTuple):
    """The numbers after the addresses in the table. Strides are in bytes.

    Attributes:
        rows, columns: extents of the product.
        blocks: the blocks that hold the terms of a row.
        row_bytes, panel_bytes: strides of rows, and of panels.
        group_columns: the columns of a group of panels.
        part_rows: the rows of a part. A row of the call is a group within a part.
    """

    rows: Any
    columns: Any
    blocks: Any
    row_bytes: Any
    panel_bytes: Any
    group_columns: Any
    part_rows: Any


def emit_tiled_product(
    instruction: str, body: BodyStructure, rows: int | None = None
) -> Kernel:
    """Emit the function that computes parts of rows of groups of panels.

    The table holds the addresses of the body's inputs and outputs, of the rows if
    `rows` is None, and of the panels, then `TiledNumbers`.

    Args:
        instruction: BFLOAT16: both operands are packed into strips of blocks. INT8:
            rows of terms, and panels of lines of words.
        body: the product and its epilogue.
        rows: the number of the body's input that is read in place as rows, or None.
    """
    b = Kernel(BLOCK_LINES)
    _TiledProduct(b, instruction, body, rows).write()
    return b


class _TiledProduct:
    """Emits the function."""

    def __init__(
        self, b: Kernel, instruction: str, body: BodyStructure, rows: int | None
    ) -> None:
        self.b = b
        self.epilogue = Epilogue.of_table(body, b)
        self.rows = b.next_address() if rows is None else self.epilogue.addresses[rows]
        self.columns = b.next_address()
        self.n = b.next_entries(TiledNumbers)
        self.is_strips: bool = instruction == BFLOAT16
        self.dtype: str = "float32" if self.is_strips else "int32"
        self.sums = b.memory(PANELS * 2 * SPAN, b.filled(0, self.dtype))
        self.tiles: Tiles = create_tiles(b, instruction)

    def write(self) -> None:
        """Emit the loops. A group of panels stays in the cache during a part."""
        b, n = self.b, self.n
        self.tiles.configure()
        with b.loop(b.low, b.high) as unit:
            group, part_index = b.split(unit, b.ceil_div(n.rows, n.part_rows))
            columns = b.tile_range(group, n.group_columns, n.columns)
            with b.loop(*b.tile_range(part_index, n.part_rows, n.rows), SPAN) as row:
                with b.loop(*columns, SPAN) as column:
                    self._multiply(row, column, self.sums + (column - columns[0]) * 4)
                self._apply_epilogue(row, columns)
        self.tiles.release()

    def _multiply(self, row: Number, column: Number, sums: Pointer) -> None:
        """Sum the products of two tiles of rows and a panel."""
        n = self.n
        strip_bytes = n.row_bytes * BLOCK_LINES
        rows = self.rows + row * n.row_bytes
        panel = self.columns + column // SPAN * n.panel_bytes
        if self.is_strips:
            panels = [panel, panel + strip_bytes]
            run = Run(n.blocks, BLOCK_BYTES, BLOCK_BYTES)
            row_line: Number = TILE_ROW_BYTES
            column_line = TILE_ROW_BYTES
        else:
            # The first line of a panel holds initial sums, which are 0.
            panel = panel + _LINE_BYTES
            panels = [panel, panel + TILE_ROW_BYTES]
            run = Run(n.blocks, TILE_ROW_BYTES, BLOCK_LINES * _LINE_BYTES)
            row_line, column_line = n.row_bytes, _LINE_BYTES
        self.tiles.clear(4)
        row_tiles = [rows, rows + strip_bytes]
        self.tiles.sum_up(run, row_tiles, row_line, panels, column_line)
        self.tiles.store_sums(sum_tile_addresses(sums, SUMS_BYTES), SUMS_BYTES)

    def _apply_epilogue(self, row: Number, columns: Range) -> None:
        """Apply the epilogue to the valid sums, row by row."""
        b, n = self.b, self.n
        first, end = columns
        with b.loop(0, b.min(n.rows - row, SPAN)) as i:
            row_operands = self.epilogue.of_row(row + i)
            for j, mask in b.run(first, end):
                address = self.sums + i * SUMS_BYTES + (j - first) * 4
                value = b.load(address, 0, self.dtype, mask)
                loaded = {**self.epilogue.columns(j, mask), **row_operands}
                self.epilogue.apply(value, (row + i) * n.columns + j, j, mask, loaded)
