"""Transposed reads: rows are strided, but columns are contiguous.

A transposed operand, for example, is read this way. It is transposed tile by tile:
square blocks are transposed in registers, and rows then read the tile. A tile reads and
fills whole cache lines, so the lines need not stay in a cache. Lines at a distance of a
power of two would evict one another.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MOVED, Number, Pointer, Value
from toolkit.backends.numpy.jit.fused.rows import StreamedRow
from toolkit.backends.numpy.jit.fused.values import Bases
from toolkit.backends.numpy.jit.processor import CACHE_LINE

# The length of a row of a tile, in cache lines.
_TILE_ROW_LINES = 4
# Bytes of the transposed vectors, if the processor's vectors or the elements are
# shorter.
_MIN_VECTOR_BYTES = 16


class TransposedTiles:
    """Emitter of the loops of a plan with transposed reads.

    Args:
        row: emits the computation of a part of a row.
    """

    def __init__(self, row: StreamedRow) -> None:
        self.row = row
        self.v = row.v
        self.b = row.b
        self.plan = row.plan
        self.transposed_loop: int = row.plan.transposed_loop
        reads = [k for k, read in enumerate(self.plan.reads) if read.is_transposed]
        self.sizes = {k: dtypes.itemsize(self.plan.reads[k].dtype) for k in reads}
        # All tiles have the same number of rows and of columns.
        self.rows: int = CACHE_LINE // min(self.sizes.values())
        self.columns: int = CACHE_LINE * _TILE_ROW_LINES // max(self.sizes.values())
        count = self.rows * self.columns
        self.tiles: dict[int, Pointer] = {
            k: self.b.memory(count, Value("", MOVED[size]))
            for k, size in self.sizes.items()
        }

    def write(self, low: Number, high: Number) -> None:
        """Emit all loops, with these bounds of the outermost loop."""
        self.low, self.high = low, high
        row_loops = [i for i in range(self.plan.row_loops) if i != self.transposed_loop]
        self._loops(row_loops, self.v.bases)

    def _range(self, loop: int) -> tuple[Number, Number]:
        return (0, self.v.extents[loop]) if loop else (self.low, self.high)

    def _loops(self, loops: Sequence[int], bases: Bases) -> None:
        """Emit the row loops except the transposed loop, then loops over tiles."""
        if loops:
            with self.b.loop(*self._range(loops[0])) as index:
                self._loops(loops[1:], self.v.bases_at(bases, loops[0], index))
            return
        extent = self.v.extents[-1]
        low, high = self._range(self.transposed_loop)
        with self.b.loop(0, extent, self.columns) as column:
            end = self.b.min(column + self.columns, extent)
            with self.b.loop(low, high, self.rows) as first:
                last = self.b.min(first + self.rows, high)
                self._tile(bases, (first, last), (column, end))

    def _tile(
        self, bases: Bases, rows: tuple[Number, Number], columns: tuple[Number, Number]
    ) -> None:
        """Emit parts of several rows, after their transposed tiles."""
        b, (first, last) = self.b, rows
        # At the end of an array, a tile starts before its rows, so blocks are whole.
        start = b.max(b.min(first, self.v.extents[self.transposed_loop] - self.rows), 0)
        for k in self.tiles:
            self._fill_tile(k, bases[k], (start, last), columns)
        with b.loop(first, last) as index:
            moved = self.v.bases_at(bases, self.transposed_loop, index)
            for k, tile in self.tiles.items():
                offset = (index - start) * self.columns - columns[0]
                moved[k] = tile + offset * self.sizes[k]
            self.v.begin_row(moved, self.row.phases.row_steps_before)
            self.row.emit_range(moved, *columns)

    def _fill_tile(
        self,
        k: int,
        base: Pointer,
        rows: tuple[Number, Number],
        columns: tuple[Number, Number],
    ) -> None:
        """Transpose a tile of an operand in square blocks."""
        b, (start, last), (column, end) = self.b, rows, columns
        size, kind = self.sizes[k], MOVED[self.sizes[k]]
        side = self._block_side(size)
        stride = self.v.strides[k, self.v.numbers.rank - 1]
        with b.of_lanes(side), b.loop(column, end, side) as index:
            # Columns after the end repeat the last column.
            numbers = [b.min(index + i, end - 1) for i in range(side)]
            lines = [base + number * stride for number in numbers]
            with b.loop(start, last, side) as row:
                # The last block can overlap the previous block, with equal results.
                begin = b.min(row, self.v.extents[self.transposed_loop] - side)
                block = [b.load(line, begin, kind, None) for line in lines]
                offset = (begin - start) * self.columns + (index - column)
                for i, vector in enumerate(b.transposed(block)):
                    b.store(vector, self.tiles[k], offset + i * self.columns, None)

    def _block_side(self, itemsize: int) -> int:
        """Return the number of rows and columns of a block, for an item size."""
        vector = 4 * self.b.lanes if itemsize >= 4 else _MIN_VECTOR_BYTES
        return max(vector, _MIN_VECTOR_BYTES) // itemsize
