"""Convolutions and input gradients with rounded operands, in tiles.

A row of a tile is a position on the grid, a column an output channel. Tiles sum over
taps and blocks of input channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import prod

from toolkit.backends.numpy.jit.builder import Mask, Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axes
from toolkit.backends.numpy.jit.kernels.conv.rounded.grid import Tap, coordinates_of
from toolkit.backends.numpy.jit.kernels.conv.rounded.pixels import Pixels
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
from toolkit.definitions.records import record

_ITEM = 4
# The most columns with unrolled vectors, if there is one group.
_MAX_UNROLLED_COLUMNS = 2 * SPAN


@record
class RoundedPlan:
    """The properties that a kernel depends on, except for its epilogue.

    Attributes:
        pixels: the layout of the inputs.
        sweeps: the axes of each correlation. Together they cover all outputs.
        sizes: the extents of the weights' axes.
        is_input_grad: whether the taps of the weights are reversed.
        width: the output channels.
        group: the panels whose outputs are stored together.
    """

    pixels: Pixels
    sweeps: tuple[Axes, ...]
    sizes: tuple[int, ...]
    is_input_grad: bool
    width: int
    group: int

    @property
    def groups(self) -> int:
        """Return the number of groups of panels."""
        return -(-self.panels // self.group)

    @property
    def panels(self) -> int:
        """Return the number of panels of output channels, which are pairs of strips."""
        return -(-self.width // SPAN)

    @property
    def strip_bytes(self) -> int:
        """Return the bytes of the weights of a strip of output channels."""
        taps = prod(self.sizes)
        return self.pixels.initial_bytes + taps * self.pixels.blocks * BLOCK_BYTES

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of all weights."""
        return 2 * self.panels * self.strip_bytes

    def runs(self, axes: Axes) -> list[tuple[tuple[int, int], Run]]:
        """Return the runs of blocks of a sweep's taps, with their offsets."""
        steps = [
            (n * TILE_ROW_BYTES, n * BLOCK_BYTES) for n in range(self.pixels.blocks)
        ]
        return _runs([(x + i, w + j) for w, x in self.taps(axes) for i, j in steps])

    def taps(self, axes: Axes) -> list[tuple[int, int]]:
        """Return the byte offsets of weights and cells for each tap of a sweep."""
        pixels, last = self.pixels, prod(self.sizes) - 1

        def weights(tap: Tap) -> int:
            number = last - tap.number if self.is_input_grad else tap.number
            return pixels.initial_bytes + number * pixels.blocks * BLOCK_BYTES

        return [
            (weights(t), (t.phase * pixels.grid.size + t.shift) * pixels.pitch)
            for t in pixels.grid.taps(axes, self.sizes)
        ]


def _runs(offsets: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], Run]]:
    """Group offsets greedily into runs of constant stride."""
    runs = []
    while offsets:
        (x, w), (next_x, next_w) = offsets[0], offsets[min(1, len(offsets) - 1)]
        step_x, step_w = next_x - x, next_w - w
        even = ((x + n * step_x, w + n * step_w) for n in range(len(offsets)))
        pairs = zip(even, offsets, strict=True)
        count = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        runs.append(((x, w), Run(count, step_x, step_w)))
        offsets = offsets[count:]
    return runs


def emit_rounded_correlation(body: BodyStructure, plan: RoundedPlan) -> Kernel:
    """Emit the function of parts of images, which it packs to memory of the task.

    The table holds the addresses of the body's inputs and outputs, of the weights'
    strips, of the images and of the tasks' memory, and the elements from one image to
    the next.
    """
    b = Kernel(BLOCK_LINES)
    at = _Correlation(b, body, plan)
    images, memory = b.next_address(plan.pixels.dtype), b.next_address()
    pitch = b.next_entry()
    memory = memory + b.slot * plan.pixels.nbytes
    grid = plan.pixels.grid
    at.tiles.configure()
    with b.loop(b.low, b.high) as unit:
        image, part_index = b.split(unit, grid.part_count)
        first = part_index * grid.part_size
        plan.pixels.pack(b, images + image * pitch, first, memory)
        with b.loop(0, plan.groups) as group:
            at.group(group, memory, image, first)
    at.tiles.release()
    return b


def emit_rounded_panels(body: BodyStructure, plan: RoundedPlan) -> Kernel:
    """Emit the function of groups of panels, for some packed images.

    The table holds the addresses of the body's inputs and outputs, of the weights'
    strips and of the pixels. Then follow the number of images, the images of a row of
    the call, and the rows of a group.
    """
    b = Kernel(BLOCK_LINES)
    at = _Correlation(b, body, plan)
    pixels = b.next_address()
    count, images, part_count = (b.next_entry() for _ in range(3))
    at.tiles.configure()
    with b.loop(b.low, b.high) as unit:
        group, part_index = b.split(unit, part_count)
        with b.loop(*b.tile_range(part_index, images, count)) as image:
            at.group(group, pixels + image * plan.pixels.nbytes, image, 0)
    at.tiles.release()
    return b


class _Correlation:
    """Emits the code that both functions share."""

    def __init__(self, b: Kernel, body: BodyStructure, plan: RoundedPlan) -> None:
        self.b, self.plan = b, plan
        self.epilogue = Epilogue.of_table(body, b)
        self.weights = b.next_address()
        self.sums = b.memory(PANELS * 2 * SPAN, b.filled(0, plan.pixels.sum_dtype))
        self.tiles: Tiles = create_tiles(b, plan.pixels.instruction)

    def group(
        self, group: Number, pixels: Pointer, image: Number, first: Number
    ) -> None:
        """Compute the outputs of a part of an image in a group of panels.

        Args:
            group: its number.
            pixels: the address of the part.
            image: its number.
            first: the part's first position.
        """
        b, plan = self.b, self.plan
        panels = b.tile_range(group, plan.group, plan.panels)
        columns = b.tile_range(group, plan.group * SPAN, plan.width)
        for axes in plan.sweeps:
            runs = plan.runs(axes)
            count = self._positions(axes, first)
            with b.loop(0, count, SPAN) as position:
                x = pixels + position * plan.pixels.pitch
                with b.loop(*panels) as panel:
                    weights = self.weights + panel * (2 * plan.strip_bytes)
                    column = (panel - panels[0]) * (SPAN * _ITEM)
                    self._multiply(runs, x, weights, self.sums + column)
                with b.loop(0, b.min(count - position, SPAN)) as row:
                    address = self.sums + row * SUMS_BYTES
                    self._apply_epilogue(
                        axes, address, (position + row, first, image), columns
                    )

    def _positions(self, axes: Axes, first: Number) -> Number:
        """Return the number of positions of a sweep's part along the grid."""
        b, grid = self.b, self.plan.pixels.grid
        outer, *inner = axes
        count = b.min(outer.count - first, grid.part_size)
        step, *steps = grid.steps
        inner_positions = 1 + sum(
            (axis.count - 1) * n for axis, n in zip(inner, steps, strict=True)
        )
        return (count - 1) * step + inner_positions

    def _multiply(
        self,
        runs: Sequence[tuple[tuple[int, int], Run]],
        x: Pointer,
        weights: Pointer,
        sums: Pointer,
    ) -> None:
        """Sum all taps and channels at some positions."""
        plan = self.plan
        pitch = plan.pixels.pitch
        if plan.pixels.initial_bytes:
            # Every row of a tile starts with the same sums.
            self.tiles.load_sums([weights, weights + plan.strip_bytes] * 2, 0)
        else:
            self.tiles.clear(4)
        for (pixel_offset, weight_offset), run in runs:
            row, column = x + pixel_offset, weights + weight_offset
            self.tiles.sum_up(
                run,
                [row, row + BLOCK_LINES * pitch],
                pitch,
                [column, column + plan.strip_bytes],
                TILE_ROW_BYTES,
            )
        self.tiles.store_sums(sum_tile_addresses(sums, SUMS_BYTES), SUMS_BYTES)

    def _apply_epilogue(
        self,
        axes: Axes,
        sums: Pointer,
        at: tuple[Number, Number, Number],
        columns: Range,
    ) -> None:
        """Apply the epilogue to the sums of a position, if it is an output.

        Args:
            axes: of the sweep.
            sums: the address of the position's sums.
            at: the position in the part, the part's first position, and the image.
            columns: of the group.
        """
        b, width, (position, first, row) = self.b, self.plan.width, at
        exists: Value | None = None
        coordinates = coordinates_of(self.plan.pixels.grid, position)
        coordinates[0] = coordinates[0] + first
        for i, (axis, coordinate) in enumerate(zip(axes, coordinates, strict=True)):
            row = row * axis.out + (coordinate * axis.step + axis.start)
            if i:
                is_inside = b.compare("slt", coordinate, axis.count)
                exists = (
                    is_inside if exists is None else b.binary("and", exists, is_inside)
                )
        pixels = self.plan.pixels
        with b.when(exists or Value("true", "bool")), b.of_lanes(pixels.lanes):
            for column, mask in self._vectors(columns):
                start = sums + (column - columns[0]) * _ITEM
                value = b.load(start, 0, pixels.sum_dtype, mask)
                self.epilogue.apply(value, row * width + column, column, mask)

    def _vectors(self, columns: Range) -> Iterator[tuple[Number, Mask]]:
        """Yield the vectors of a group's columns, without a loop if they are few."""
        width, lanes = self.plan.width, self.b.lanes
        if width > _MAX_UNROLLED_COLUMNS or self.plan.groups > 1:
            yield from self.b.run(*columns)
            return
        for column in range(0, width, lanes):
            yield column, self.b.existing(min(lanes, width - column))
