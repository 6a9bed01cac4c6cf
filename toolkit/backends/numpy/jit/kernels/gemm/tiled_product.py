"""The kernel of products of blocks: two by two tiles, followed by the epilogue."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range
from toolkit.backends.numpy.jit.calls import partition
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
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


class Division(NamedTuple):
    """The rows of a call: groups of panels, each in parts of the rows.

    Attributes:
        group_columns, groups: the columns of a group, and the number of groups.
        part_rows: the rows of a part.
        rows: the number of all parts.
    """

    group_columns: int
    groups: int
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
    return Division(group * SPAN, groups, part * SPAN, groups * -(-tiles // part))


class RoundedNumbers(NamedTuple):
    """The numbers after the addresses in the table.

    Attributes:
        rows, columns: of the product.
        blocks: the blocks of a strip.
        group_columns: the columns of a group of panels.
        groups: the groups of panels.
        part_rows: the rows of a part. A row of the call is a group within a part.
    """

    rows: Any
    columns: Any
    blocks: Any
    group_columns: Any
    groups: Any
    part_rows: Any


def emit_rounded_product(body: BodyStructure) -> Kernel:
    """Emit the function that computes parts of rows of groups of panels.

    The table holds the addresses of the body's inputs and outputs, and of the strips of
    both operands, then `RoundedNumbers`.
    """
    b = Kernel(BLOCK_LINES)
    TiledProduct(b, body).write()
    return b


class TiledProduct:
    """Emits a function that computes parts of rows of groups of panels.

    Args:
        b: the builder, whose next entries are the entries of the table.
        body: the product and its epilogue.
        rows: the number of the body's input that is read in place as rows of the left
            operand. None: their address precedes the right operand's.
    """

    dtype = "float32"
    numbers: Any = RoundedNumbers

    def __init__(self, b: Kernel, body: BodyStructure, rows: int | None = None) -> None:
        self.b = b
        self.epilogue = Epilogue.of_table(body, b)
        self.rows = b.next_address() if rows is None else self.epilogue.addresses[rows]
        self.columns = b.next_address()
        self.n: Any = b.next_entries(self.numbers)
        self.sums = b.memory(PANELS * 2 * SPAN, b.filled(0, self.dtype))
        self.tiles: Tiles = create_tiles(b)

    def write(self) -> None:
        """Emit the loops. A group of panels stays in the cache during a part."""
        b, n = self.b, self.n
        self.tiles.configure()
        with b.loop(b.low, b.high) as unit:
            group, part_index = b.split(unit, b.ceil_div(n.rows, n.part_rows))
            columns = b.tile_range(group, n.group_columns, n.columns)
            with b.loop(*b.tile_range(part_index, n.part_rows, n.rows), SPAN) as row:
                with b.loop(*columns, SPAN) as column:
                    self.multiply(row, column, self.sums + (column - columns[0]) * 4)
                self._apply_epilogue(row, columns)
        self.tiles.release()

    def multiply(self, row: Number, column: Number, sums: Pointer) -> None:
        """Sum the products of two strips of rows and of columns."""
        n = self.n
        strip_bytes = n.blocks * BLOCK_BYTES
        rows = self.rows + row // BLOCK_LINES * strip_bytes
        columns = self.columns + column // BLOCK_LINES * strip_bytes
        self.tiles.clear(4)
        first, second = ([x, x + strip_bytes] for x in (rows, columns))
        run = Run(n.blocks, BLOCK_BYTES, BLOCK_BYTES)
        self.tiles.sum_up(run, first, TILE_ROW_BYTES, second, TILE_ROW_BYTES)
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
