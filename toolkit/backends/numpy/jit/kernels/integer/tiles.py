"""The kernel of integer products with AMX tiles: 64 terms of 16 rows and columns."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Pointer
from toolkit.backends.numpy.jit.epilogue import BodyStructure
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BLOCK_LINES,
    INT8,
    SPAN,
    SUMS_BYTES,
    TILE_ROW_BYTES,
    sum_tile_addresses,
)
from toolkit.backends.numpy.jit.kernels.gemm.tiled_product import TiledProduct
from toolkit.backends.numpy.jit.kernels.integer.pack import WORD_BYTES

# Words in a row of a tile.
BLOCK_WORDS = TILE_ROW_BYTES // WORD_BYTES
_LINE_BYTES = SPAN * WORD_BYTES


class TileNumbers(NamedTuple):
    """The numbers after the addresses in the table. Strides are in bytes.

    Attributes:
        rows, columns: extents of the product.
        blocks: the number of tiles that hold the terms of a row.
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


def emit_integer_tiles(a: int | None, body: BodyStructure) -> Kernel:
    """Emit the function that computes parts of rows of groups of panels.

    The table holds the addresses of the body's inputs and outputs, of the rows if `a`
    is None, and of the panels, then `TileNumbers`.

    Args:
        a: the number of the body's input with whole tiles of rows, or None.
        body: the product and its epilogue.
    """
    b = Kernel(BLOCK_LINES)
    _IntegerProduct(b, body, a).write()
    return b


class _IntegerProduct(TiledProduct):
    """Emits the function."""

    dtype = "int32"
    numbers = TileNumbers

    def multiply(self, row: Number, column: Number, sums: Pointer) -> None:
        """Sum the products of two tiles of rows and a panel."""
        b, n = self.b, self.n
        rows = self.rows + row * n.row_bytes
        # The first line of a panel holds initial sums, which are 0.
        panel = self.columns + column // SPAN * n.panel_bytes + _LINE_BYTES
        self.tiles.clear(4)
        with b.loop(0, n.blocks) as block:
            first = rows + block * TILE_ROW_BYTES
            second = panel + block * (BLOCK_WORDS * _LINE_BYTES)
            self.tiles.multiply(
                [first, first + n.row_bytes * BLOCK_LINES],
                n.row_bytes,
                [second, second + TILE_ROW_BYTES],
                _LINE_BYTES,
                INT8,
            )
        self.tiles.store_sums(sum_tile_addresses(sums, SUMS_BYTES), SUMS_BYTES)
