"""Rows that jump through what they read, while their neighbours lie beside them.

What is read so, a transposed array, say, is put in order tile by tile: square blocks
are turned in registers, and rows read the tile instead. A tile takes and fills whole
cache lines, which therefore need not stay in a cache, where lines that are a power of
two apart would displace one another.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MOVED, Number, Pointer, Value
from toolkit.backends.numpy.jit.fused.rows import Streamed
from toolkit.backends.numpy.jit.fused.values import Bases
from toolkit.backends.numpy.jit.processor import CACHE_LINE

# What a row of a tile fills, in cache lines.
_LINES = 4
# Bytes of the vectors that are turned, if those of the processor are shorter, or the
# elements are.
_SHORT = 16


class Turned:
    """Writes the loops of a plan with turned reads.

    Args:
        row: what is done with a part of a row.
    """

    def __init__(self, row: Streamed) -> None:
        self.row = row
        self.v = row.v
        self.b = row.b
        self.plan = row.plan
        self.turn: int = row.plan.turn
        reads = [k for k, read in enumerate(self.plan.reads) if read.turned]
        self.sizes = {k: dtypes.itemsize(self.plan.reads[k].dtype) for k in reads}
        # All tiles have as many rows and columns.
        self.rows: int = CACHE_LINE // min(self.sizes.values())
        self.columns: int = CACHE_LINE * _LINES // max(self.sizes.values())
        count = self.rows * self.columns
        self.tiles: dict[int, Pointer] = {
            k: self.b.memory(count, Value("", MOVED[size]))
            for k, size in self.sizes.items()
        }

    def write(self, low: Number, high: Number) -> None:
        """All loops, with these bounds of the outermost."""
        self.low, self.high = low, high
        others = [i for i in range(self.plan.row_loops) if i != self.turn]
        self._loops(others, self.v.bases)

    def _range(self, loop: int) -> tuple[Number, Number]:
        return (0, self.v.extents[loop]) if loop else (self.low, self.high)

    def _loops(self, loops: Sequence[int], bases: Bases) -> None:
        """The loops over rows, but for the turned one, and then those over tiles."""
        if loops:
            with self.b.loop(*self._range(loops[0])) as index:
                self._loops(loops[1:], self.v.moved(bases, loops[0], index))
            return
        extent = self.v.extents[-1]
        low, high = self._range(self.turn)
        with self.b.loop(0, extent, self.columns) as column:
            end = self.b.least(column + self.columns, extent)
            with self.b.loop(low, high, self.rows) as first:
                last = self.b.least(first + self.rows, high)
                self._tile(bases, (first, last), (column, end))

    def _tile(
        self, bases: Bases, rows: tuple[Number, Number], columns: tuple[Number, Number]
    ) -> None:
        """Parts of some rows, behind tiles of what is turned for them."""
        b, (first, last) = self.b, rows
        # Where an array ends, a tile starts before its rows, so that blocks are whole.
        start = b.most(b.least(first, self.v.extents[self.turn] - self.rows), 0)
        for k in self.tiles:
            self._fill(k, bases[k], (start, last), columns)
        with b.loop(first, last) as index:
            moved = self.v.moved(bases, self.turn, index)
            for k, tile in self.tiles.items():
                place = (index - start) * self.columns - columns[0]
                moved[k] = tile + place * self.sizes[k]
            self.v.begin_row(moved, self.row.phases.before)
            self.row.part(moved, *columns)

    def _fill(
        self,
        k: int,
        base: Pointer,
        rows: tuple[Number, Number],
        columns: tuple[Number, Number],
    ) -> None:
        """Turn a tile of what is read: blocks of as many rows as columns."""
        b, (start, last), (column, end) = self.b, rows, columns
        size, kind = self.sizes[k], MOVED[self.sizes[k]]
        side = self._side(size)
        stride = self.v.strides[k, self.v.numbers.rank - 1]
        with b.of_lanes(side), b.loop(column, end, side) as index:
            # A column that does not exist is another time the last.
            numbers = [b.least(index + i, end - 1) for i in range(side)]
            lines = [base + number * stride for number in numbers]
            with b.loop(start, last, side) as row:
                # What the last block shares with the one before is the same again.
                begin = b.least(row, self.v.extents[self.turn] - side)
                block = [b.load(line, begin, kind, None) for line in lines]
                place = (begin - start) * self.columns + (index - column)
                for i, found in enumerate(b.transposed(block)):
                    b.store(found, self.tiles[k], place + i * self.columns, None)

    def _side(self, itemsize: int) -> int:
        """Rows and columns of a block, of elements of so many bytes."""
        vector = 4 * self.b.lanes if itemsize >= 4 else _SHORT
        return max(vector, _SHORT) // itemsize
