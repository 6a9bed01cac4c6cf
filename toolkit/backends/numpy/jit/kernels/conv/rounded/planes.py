"""Operands of a kernel gradient as bfloat16, for sums over positions.

Inputs are planes: the cells of a channel are contiguous, so that a tap of 16 channels
is 16 rows of a tile from some cell on. Gradients are pairs of positions, 0 where there
is no output: the inputs there do not count.
"""

from __future__ import annotations

from dataclasses import replace

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.rounded.grid import Grid, Line, lines
from toolkit.backends.numpy.jit.kernels.conv.rounded.layout import (
    Layout,
    avoid_shared_sets,
    clear,
)
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BLOCK_LINES,
    BLOCK_TERMS,
    TILE_ROW_BYTES,
    pack_interleaved,
)
from toolkit.definitions.records import record

_ITEM = 2


@record
class Planes(Layout):
    """The layout of inputs: phases, channels, cells in lines of an even number."""

    is_cleared = True

    @property
    def pitch(self) -> int:
        """Return the bytes of a plane, with zeros for the last block of positions."""
        grid = self.grid
        inner = zip(grid.sides[1:], grid.steps[1:], strict=True)
        tap_cells = sum(side.span * step for side, step in inner)
        return avoid_shared_sets((grid.size + tap_cells + BLOCK_TERMS) * _ITEM)

    @property
    def nbytes(self) -> int:
        """Return the bytes of a part."""
        return self.grid.phases * self.channels * self.pitch + TILE_ROW_BYTES

    def pack(self, b: Kernel, image: Pointer, first: Number, target: Pointer) -> None:
        """Pack the inputs of a part of an image to cleared planes."""
        grid = self.grid
        for line in lines(b, grid, image, first):
            address = target + line.phase * (self.channels * self.pitch)
            address = address + line.index * (grid.cells[-1] * _ITEM)
            low, high = line.valid_cells
            is_long = b.compare("sge", high - low, BLOCK_LINES)
            with b.when(is_long), b.loop(low, high, BLOCK_LINES) as cell:
                # The last block may overlap the previous one, with the same values.
                start = b.min(cell, high - BLOCK_LINES)
                _pack_transposed(
                    b, self, line, (start, BLOCK_LINES), address + start * _ITEM
                )
            # Zeros overrun the end of a short line. Later lines overwrite them.
            is_short = b.binary("and", b.opposite(is_long), b.compare("slt", low, high))
            with b.when(is_short):
                _pack_transposed(
                    b, self, line, (low, high - low), address + low * _ITEM
                )


@record
class PositionPairs(Layout):
    """The layout of gradients, on a grid with lines as long as the inputs' lines."""

    @property
    def pitch(self) -> int:
        """Return the bytes from one pair to the next."""
        return avoid_shared_sets(self.channels * 2 * _ITEM)

    @property
    def blocks(self) -> int:
        """Return the number of blocks of positions."""
        return -(-self.grid.size // BLOCK_TERMS)

    @property
    def nbytes(self) -> int:
        """Return the bytes of a part."""
        return self.blocks * (BLOCK_TERMS // 2) * self.pitch

    def pack(self, b: Kernel, image: Pointer, first: Number, target: Pointer) -> None:
        """Pack the pairs of a part of an image of gradients."""
        grid, pitch = self.grid, self.pitch
        cells = grid.cells[-1]
        for line in lines(b, grid, image, first):
            address = target + line.index * (cells // 2 * pitch)
            low, high = line.valid_cells
            full = b.choose(b.compare("sgt", low, 0), 0, high) // 2
            for numbers, is_whole in (((0, full), True), ((full, cells // 2), False)):
                with (
                    b.loop(*numbers) as number,
                    b.loop(0, self.depth, b.lanes) as channel,
                ):
                    y = address + number * pitch + channel * (2 * _ITEM)
                    _pack_pair(b, self, line, (number * 2, channel, is_whole), y)
        clear(b, target, (grid.size // 2 * pitch, self.nbytes))


def positions_of(grid: Grid, steps: tuple[int, ...]) -> Grid:
    """Return the grid of gradients, with strides `steps`, for a grid of inputs."""
    sides = [
        replace(
            side,
            extent=side.count,
            pitch=step,
            stride=1,
            phase=0,
            phases=1,
            low=0,
            count=cells,
            span=0,
        )
        for side, step, cells in zip(grid.sides, steps, grid.cells, strict=True)
    ]
    return Grid(tuple(sides), grid.part_size, is_shared=True)


def _pack_transposed(
    b: Kernel, planes: Planes, line: Line, cells: tuple[Number, Number], target: Pointer
) -> None:
    """Convert some cells to bfloat16, and store them by channel.

    A 32-bit lane contains two neighbouring cells of a channel.
    """
    first, count = cells
    with b.loop(0, planes.depth, BLOCK_LINES) as channel:
        source = line.source + first * line.pitch + channel
        remaining = planes.depth - channel
        rows = []
        for i in range(BLOCK_LINES):
            mask: Mask = None
            if not isinstance(count, int):
                mask = b.first_lanes(b.choose(b.compare("sgt", count, i), remaining, 0))
            elif planes.depth % BLOCK_LINES:
                mask = b.first_lanes(remaining)
            rows.append(b.load(source, i * line.pitch, planes.dtype, mask))
        pairs = [
            pack_interleaved(b, *pair)
            for pair in zip(rows[::2], rows[1::2], strict=True)
        ]
        address, half = target + channel * planes.pitch, BLOCK_LINES // 2
        for i, two_channels in enumerate(b.transposed(pairs)):
            for k in (0, half):
                cell_pairs = b.shuffled(two_channels, two_channels, range(k, k + half))
                b.store(cell_pairs, address + (i + k) * planes.pitch, 0, None)


def _valid_channels(b: Kernel, line: Line, cell: Number, count: Number) -> Number:
    """Return `count` if a cell is inside the line, else 0."""
    low, high = line.valid_cells
    is_inside = b.binary(
        "and", b.compare("sge", cell, low), b.compare("slt", cell, high)
    )
    return b.choose(is_inside, count, 0)


def _pack_pair(
    b: Kernel,
    pairs: PositionPairs,
    line: Line,
    at: tuple[Number, Number, bool],
    target: Pointer,
) -> None:
    """Round the vectors of two positions, and store them interleaved."""
    cell, channel, is_whole = at
    remaining = pairs.depth - channel
    vectors = []
    for i in range(2):
        mask: Mask = None
        if not is_whole:
            mask = b.first_lanes(_valid_channels(b, line, cell + i, remaining))
        elif pairs.depth % b.lanes:
            mask = b.first_lanes(remaining)
        source = line.source + (cell + i) * line.pitch + channel
        vectors.append(b.load(source, 0, pairs.dtype, mask))
    b.store(pack_interleaved(b, *vectors), target, 0, None)
