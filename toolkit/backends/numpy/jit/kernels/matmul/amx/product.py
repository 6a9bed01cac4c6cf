"""The kernel of products of blocks: two by two tiles, followed by the epilogue."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit.backends.numpy.jit.builder import Number, Range
from toolkit.backends.numpy.jit.epilogue import Described, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel, integers
from toolkit.backends.numpy.jit.kernels.matmul.amx.pack import BLOCK_BYTES, BLOCK_LINES

# Rows and columns of the sums that are in tiles at a time, and bytes of a row of them.
SPAN = 2 * BLOCK_LINES
_SUM_BYTES = 4 * SPAN
_TILE_ROW_BYTES = 64
# What the tiles are, as 32-bit numbers: one palette, 64 bytes a row and 16 rows in all.
_SHAPES = (1, 0, 0, 0, *[64 << 16 | 64] * 4, 0, 0, 0, 0, *[0x10101010] * 2, 0, 0)
_SUMS, _ROWS, _COLUMNS = (0, 1, 2, 3), (4, 5), (6, 7)


class RoundedNumbers(NamedTuple):
    """What follows the addresses in the table.

    Attributes:
        rows, columns: of the product.
        blocks: of a strip.
        panels: pairs of strips of columns.
        part_rows: rows of a part of the product that is a row of the call.
    """

    rows: Any
    columns: Any
    blocks: Any
    panels: Any
    part_rows: Any


def emit_rounded_product(body: Described) -> Kernel:
    """The function that computes parts of rows of panels, each a row of the call.

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
        self.sums = b.memory(2 * SPAN, b.filled(0.0, "float32"))
        self.shapes = b.memory(1, b.filled(0, "int32"))

    def write(self) -> None:
        """Panels within parts of rows: a part stays in the cache for all of them."""
        b, n = self.b, self.n
        b.store(integers(_SHAPES, "int32"), self.shapes, 0, None)
        _tile_call(b, "ldtilecfg", f"ptr {self.shapes}")
        with b.loop(b.low, b.high) as unit:
            part, panel = b.split(unit, n.panels)
            self._part(b.part(part, n.part_rows, n.rows), panel)
        _tile_call(b, "tilerelease")

    def _part(self, rows: Range, panel: Number) -> None:
        """The product of some rows and a panel."""
        b, n = self.b, self.n
        column = panel * SPAN
        left = n.columns - column
        is_whole = b.compare("sge", left, SPAN)
        with b.loop(*rows, SPAN) as row:
            self._multiply(row, panel)
            count = b.least(n.rows - row, SPAN)
            with b.when(is_whole):
                self._finish(row, count, column, [None, None])
            with b.when(b.opposite(is_whole)):
                self._finish(row, count, column, b.first_of_vectors(left, 2))

    def _multiply(self, row: Number, panel: Number) -> None:
        """Sum the products of two strips of rows and of columns."""
        b, n = self.b, self.n
        strip_bytes = n.blocks * BLOCK_BYTES
        rows = self.rows + row // BLOCK_LINES * strip_bytes
        columns = self.columns + panel * 2 * strip_bytes
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
            where = f"ptr {self.sums + first}, i64 {_SUM_BYTES}"
            _tile_call(b, "tilestored64", f"i8 {tile}, {where}")

    def _finish(
        self, row: Number, count: Number, column: Number, masks: list[Any]
    ) -> None:
        """Apply the epilogue to the sums that exist."""
        b, n = self.b, self.n
        columns = [column + j * b.lanes for j in range(len(masks))]
        pairs = list(zip(columns, masks, strict=True))
        of_columns = [self.epilogue.columns(*pair) for pair in pairs]
        with b.loop(0, count) as i:
            place = self.sums + i * _SUM_BYTES
            for j, (first, mask) in enumerate(pairs):
                value = b.load(place, j * b.lanes, "float32", None)
                element = (row + i) * n.columns + first
                self.epilogue.apply(value, element, first, mask, of_columns[j])


def _tile_call(b: Kernel, name: str, arguments: str = "") -> None:
    """Call an instruction on tiles; numbers of tiles are part of it."""
    kinds = ", ".join(
        "i8 immarg" if x.startswith("i8") else x.split()[0]
        for x in arguments.split(", ")
        if x
    )
    b.declarations.add(f"declare void @llvm.x86.{name}({kinds})")
    b.emit(f"call void @llvm.x86.{name}({arguments})")
