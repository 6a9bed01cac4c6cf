"""Kernel gradients with rounded operands, in blocks of tiles.

A row of a tile is an input channel, a column an output channel. Tiles sum over
positions, tap by tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axes
from toolkit.backends.numpy.jit.kernels.conv.rounded.grid import Tap
from toolkit.backends.numpy.jit.kernels.conv.rounded.layout import clear
from toolkit.backends.numpy.jit.kernels.conv.rounded.planes import (
    Planes,
    PositionPairs,
)
from toolkit.backends.numpy.jit.kernels.gemm.amx import (
    BLOCK_LINES,
    BLOCK_TERMS,
    SPAN,
    TILE_ROW_BYTES,
    Run,
    Tiles,
)
from toolkit.backends.numpy.jit.kernels.gemm.dot_product_tiles import create_tiles
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record

_ITEM = 4
# Taps that share tiles: neighbours, most of whose inputs are the same.
_TAPS = 3


@record
class RoundedGradPlan:
    """The properties that a kernel depends on.

    Attributes:
        planes, pairs: the layouts of inputs and gradients.
        axes: the map from gradients to inputs.
    """

    planes: Planes
    pairs: PositionPairs
    axes: Axes

    @property
    def taps(self) -> int:
        """Return the number of taps."""
        return prod(axis.taps for axis in self.axes)

    @property
    def blocks(self) -> tuple[int, int]:
        """Return the pairs of tiles of input channels, and of output channels."""
        return self.planes.channels // SPAN, self.pairs.channels // SPAN

    @property
    def row(self) -> int:
        """Return the bytes from the sums of one input channel to the next."""
        return self.pairs.channels * _ITEM

    @property
    def tap(self) -> int:
        """Return the bytes from the sums of one tap to the next."""
        return self.planes.channels * self.row

    @property
    def nbytes(self) -> int:
        """Return the bytes of all sums."""
        return self.taps * self.tap

    @property
    def is_whole(self) -> bool:
        """Return whether the sums have the layout of the gradient."""
        return (self.planes.depth, self.pairs.depth) == (
            self.planes.channels,
            self.pairs.channels,
        )


def emit_rounded_grad(plan: RoundedGradPlan) -> Kernel:
    """Emit the function of parts of images, which it packs to memory of the task.

    The table holds the addresses of the images, the gradients, the tasks' sums and
    their memory, the elements from one image and one gradient to the next, and the rows
    of a task.
    """
    b = Kernel(BLOCK_LINES)
    images = b.next_address(plan.planes.dtype)
    gradients = b.next_address(plan.pairs.dtype)
    sums, memory = b.next_address(), b.next_address()
    image_pitch, gradient_pitch, grain = (b.next_entry() for _ in range(3))
    at = _KernelGrad(b, plan)
    planes = memory + b.slot * (plan.planes.nbytes + plan.pairs.nbytes)
    pairs = planes + plan.planes.nbytes
    sums = sums + b.slot * plan.nbytes
    grid = plan.planes.grid
    with b.when(b.compare("eq", b.slot * grain, b.low)):
        clear(b, sums, (0, plan.nbytes))
        # The padding of whole images has the same position in all images.
        clear(b, planes, (0, plan.planes.nbytes))
    at.tiles.configure()
    with b.loop(b.low, b.high) as unit:
        image, part_index = b.split(unit, grid.part_count)
        first = part_index * grid.part_size
        if grid.part_count > 1:
            clear(b, planes, (0, plan.planes.nbytes))
        plan.planes.pack(b, images + image * image_pitch, first, planes)
        source = gradients + image * gradient_pitch
        plan.pairs.pack(b, source, first, pairs)
        input_blocks, output_blocks = plan.blocks
        with b.loop(0, output_blocks) as column, b.loop(0, input_blocks) as row:
            at.block(row, column, planes, pairs, sums)
    at.tiles.release()
    return b


def emit_rounded_blocks(plan: RoundedGradPlan, by_rows: bool) -> Kernel:
    """Emit the function of blocks of the result, each a row, for packed images.

    The table holds the addresses of the planes, the pairs and the sums, and the number
    of images.

    Args:
        plan: of whole images.
        by_rows: whether the outer loop is over blocks of inputs.
    """
    b = Kernel(BLOCK_LINES)
    planes, pairs, sums = (b.next_address() for _ in range(3))
    count = b.next_entry()
    at = _KernelGrad(b, plan)
    input_blocks, output_blocks = plan.blocks
    at.tiles.configure()
    with b.loop(b.low, b.high) as unit:
        column, row = b.split(unit, input_blocks)
        if by_rows:
            row, column = b.split(unit, output_blocks)
        at.block(row, column, planes, pairs, sums, count)
    at.tiles.release()
    return b


def emit_rounded_total(plan: RoundedGradPlan) -> Kernel:
    """Emit a function that adds the sums of tasks. A row is an input channel of a tap.

    The table holds the addresses of the sums and of the gradient, and the number of
    tasks.
    """
    b = Kernel(BLOCK_LINES)
    sums, target = b.next_address(), b.next_address("float32")
    count = b.next_entry()
    depth, width = plan.planes.depth, plan.pairs.depth
    with b.loop(b.low, b.high) as row:
        tap, channel = b.split(row, depth)
        source = sums + tap * plan.tap + channel * plan.row
        with b.loop(0, width, b.lanes) as column:
            mask: Mask = b.first_lanes(width - column) if width % b.lanes else None
            with b.accumulate(0, count, 1, [b.filled(0.0, "float32")]) as iteration:
                partial = source + iteration.index * plan.nbytes
                value = b.load(partial, column, "float32", None)
                iteration.next([b.binary("fadd", iteration.values[0], value)])
            b.store(iteration.values[0], target + row * width, column, mask)
    return b


class _KernelGrad:
    """Emits the code that both functions share."""

    def __init__(self, b: Kernel, plan: RoundedGradPlan) -> None:
        self.b, self.plan = b, plan
        self.tiles: Tiles = create_tiles(b)
        sizes = [axis.taps for axis in plan.axes]
        self.taps = plan.planes.grid.taps(plan.axes, sizes)

    def block(
        self,
        row: Number,
        column: Number,
        planes: Pointer,
        pairs: Pointer,
        sums: Pointer,
        count: Number | None = None,
    ) -> None:
        """Compute a block of the result.

        Args:
            row, column: the block's position, in pairs of tiles.
            planes, pairs: the addresses of all channels of the first part.
            sums: the address of all blocks.
            count: the number of parts. None: one part, which is added to the sums.
        """
        b, plan = self.b, self.plan
        x = planes + row * (SPAN * plan.planes.pitch)
        g = pairs + column * (SPAN * _ITEM)
        start = sums + (row * (SPAN * plan.row) + column * (SPAN * _ITEM))
        taps_per_tile = _TAPS if current().has_tiles else 1
        for first in range(0, len(self.taps), taps_per_tile):
            taps = self.taps[first : first + taps_per_tile]
            # Several taps share a tile of gradients. A single tap uses two tiles.
            tiles = 2 if len(taps) == 1 else 1
            with b.loop(0, 2, tiles) as half:
                step = half * TILE_ROW_BYTES
                addresses = [
                    start + (tap.number * plan.tap + line * plan.row + step) + n
                    for tap in taps
                    for line in (0, BLOCK_LINES)
                    for n in range(0, tiles * TILE_ROW_BYTES, TILE_ROW_BYTES)
                ]
                if count is None:
                    self.tiles.load_sums(addresses, plan.row)
                    self._add(taps, x, g + step, tiles)
                else:
                    self.tiles.clear(len(addresses))
                    with b.loop(0, count) as part_index:
                        at = (
                            x + part_index * plan.planes.nbytes,
                            g + part_index * plan.pairs.nbytes,
                        )
                        self._add(taps, at[0], at[1] + step, tiles)
                self.tiles.store_sums(addresses, plan.row)

    def _add(self, taps: Sequence[Tap], x: Pointer, g: Pointer, tiles: int) -> None:
        """Add the products at all positions of a part.

        Args:
            taps: the taps.
            x: the address of the first cell of the first channel.
            g: the address of the first pair of positions.
            tiles: the number of tiles of gradients.
        """
        at, column = self.plan.planes, self.plan.pairs.pitch
        rows = [
            x + ((tap.phase * at.channels + line) * at.pitch + tap.shift * 2)
            for tap in taps
            for line in (0, BLOCK_LINES)
        ]
        columns = [g + n * TILE_ROW_BYTES for n in range(tiles)]
        run = Run(self.plan.pairs.blocks, TILE_ROW_BYTES, BLOCK_TERMS // 2 * column)
        self.tiles.sum_up(run, rows, at.pitch, columns, column)
