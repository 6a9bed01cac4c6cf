"""The kernel of products of blocks: two by two tiles, followed by the epilogue."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range
from toolkit.backends.numpy.jit.epilogue import Described, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel, integers
from toolkit.backends.numpy.jit.kernels.matmul.amx.pack import BLOCK_BYTES, BLOCK_LINES

# Rows and columns of the sums that are in tiles at a time; panels, of so many columns,
# of a group, whose sums go through the epilogue row by row: what it reads and writes is
# then long enough for the processor to fetch it ahead.
SPAN = 2 * BLOCK_LINES
PANELS = 8
_SUM_BYTES = 4 * SPAN * PANELS
_TILE_ROW_BYTES = 64
# What the tiles are, as 32-bit numbers: one palette, 64 bytes a row and 16 rows in all.
_SHAPES = (1, 0, 0, 0, *[64 << 16 | 64] * 4, 0, 0, 0, 0, *[0x10101010] * 2, 0, 0)
_SUMS, _ROWS, _COLUMNS = (0, 1, 2, 3), (4, 5), (6, 7)


class RoundedNumbers(NamedTuple):
    """What follows the addresses in the table.

    Attributes:
        rows, columns: of the product.
        blocks: of a strip.
        group_columns: of a group of panels.
        groups: of panels.
        part_rows: rows of a part; a row of the call is a group within a part.
    """

    rows: Any
    columns: Any
    blocks: Any
    group_columns: Any
    groups: Any
    part_rows: Any


def emit_rounded_product(body: Described) -> Kernel:
    """The function that computes parts of rows of groups of panels.

    The table: the addresses of the body's inputs and outputs, and of the strips of both
    factors; `RoundedNumbers`.
    """
    b = Kernel(BLOCK_LINES)
    _Product(b, body).write()
    return b


class _Product:
    """Writes the function."""

    def __init__(self, b: Kernel, body: Described) -> None:
        self.b = b
        graph = body.body
        bases = [b.next_address() for _ in (*graph.inputs, *graph.outputs)]
        self.rows, self.columns = b.next_address(), b.next_address()
        self.n = RoundedNumbers(*(b.next_entry() for _ in RoundedNumbers._fields))
        self.epilogue = Epilogue(graph, b, bases)
        self.sums = b.memory(PANELS * 2 * SPAN, b.filled(0.0, "float32"))
        self.shapes = b.memory(1, b.filled(0, "int32"))

    def write(self) -> None:
        """A group of panels stays in the cache for all rows of a part."""
        b, n = self.b, self.n
        b.store(integers(_SHAPES, "int32"), self.shapes, 0, None)
        _tile_call(b, "ldtilecfg", f"ptr {self.shapes}")
        with b.loop(b.low, b.high) as unit:
            group, part = b.split(unit, b.ceil_div(n.rows, n.part_rows))
            columns = b.part(group, n.group_columns, n.columns)
            with b.loop(*b.part(part, n.part_rows, n.rows), SPAN) as row:
                with b.loop(*columns, SPAN) as column:
                    self._multiply(row, column, self.sums + (column - columns[0]) * 4)
                self._finish(row, columns)
        _tile_call(b, "tilerelease")

    def _multiply(self, row: Number, column: Number, sums: Pointer) -> None:
        """Sum the products of two strips of rows and of columns."""
        b, n = self.b, self.n
        strip_bytes = n.blocks * BLOCK_BYTES
        rows = self.rows + row // BLOCK_LINES * strip_bytes
        columns = self.columns + column // BLOCK_LINES * strip_bytes
        for tile in _SUMS:
            _tile_call(b, "tilezero", f"i8 {tile}")
        with b.loop(0, n.blocks) as block:
            for tiles, strips in ((_ROWS, rows), (_COLUMNS, columns)):
                for i, tile in enumerate(tiles):
                    place = strips + i * strip_bytes + block * BLOCK_BYTES
                    where = f"ptr {place}, i64 {_TILE_ROW_BYTES}"
                    _tile_call(b, "tileloadd64", f"i8 {tile}, {where}")
            for tile in _SUMS:
                factors = f"i8 {_ROWS[tile // 2]}, i8 {_COLUMNS[tile % 2]}"
                _tile_call(b, "tdpbf16ps", f"i8 {tile}, {factors}")
        for tile in _SUMS:
            first = tile // 2 * BLOCK_LINES * _SUM_BYTES + tile % 2 * _TILE_ROW_BYTES
            where = f"ptr {sums + first}, i64 {_SUM_BYTES}"
            _tile_call(b, "tilestored64", f"i8 {tile}, {where}")

    def _finish(self, row: Number, columns: Range) -> None:
        """Apply the epilogue to the sums that exist, row by row."""
        b, n = self.b, self.n
        first, end = columns
        with b.loop(0, b.least(n.rows - row, SPAN)) as i:
            for j, mask in b.run(first, end):
                place = self.sums + i * _SUM_BYTES + (j - first) * 4
                value = b.load(place, 0, "float32", mask)
                self.epilogue.apply(value, (row + i) * n.columns + j, j, mask)


def _tile_call(b: Kernel, name: str, arguments: str = "") -> None:
    """Call an instruction on tiles; numbers of tiles are part of it."""
    kinds = ", ".join(
        "i8 immarg" if x.startswith("i8") else x.split()[0]
        for x in arguments.split(", ")
        if x
    )
    b.declarations.add(f"declare void @llvm.x86.{name}({kinds})")
    b.emit(f"call void @llvm.x86.{name}({arguments})")
