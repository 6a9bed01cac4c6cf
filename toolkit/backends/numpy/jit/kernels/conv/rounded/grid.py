"""Inputs on a grid with their padding, so that each tap is a shift of it.

Positions of the outputs are numbered along the whole grid, including positions between
two of its lines. So 16 consecutive positions meet 16 consecutive cells at each tap. The
inputs of a strided convolution are separated by phase, the remainder modulo the stride.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from toolkit.backends.numpy.jit.builder import Index, Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axes
from toolkit.definitions.records import record


@record
class Side:
    """One axis of the grid: cell c of phase r holds the input at `stride * c + r`.

    Attributes:
        extent, pitch: the number of inputs, and their stride in elements.
        stride: between the inputs of two positions.
        phase, phases: the first phase, and the number of phases.
        low: the cell of the first position's first tap.
        count: the number of positions.
        span: the cells after the cell of the last position's first tap.
    """

    extent: int
    pitch: int
    stride: int
    phase: int
    phases: int
    low: int
    count: int
    span: int


@record
class Tap:
    """A tap of a correlation: its number among the weights, its phase and its shift."""

    number: int
    phase: int
    shift: int


@record
class Grid:
    """The grid of a part of an image: a range of positions along the first axis.

    Attributes:
        sides: the axes.
        part_size: the positions along the first axis.
        is_shared: whether consecutive lines share the zeros between them. Lines have an
        even number of cells then.
    """

    sides: tuple[Side, ...]
    part_size: int
    is_shared: bool = False

    @property
    def cells(self) -> tuple[int, ...]:
        """Return the extents of a phase."""
        first, *inner_sides = self.sides
        extents = [
            self.part_size + first.span,
            *(s.count + s.span for s in inner_sides),
        ]
        if self.is_shared:
            last = self.sides[-1]
            padding_after = last.low + last.count + last.span - last.extent
            extents[-1] -= max(0, min(-last.low, padding_after)) if inner_sides else 0
            extents[-1] += extents[-1] % 2
        return tuple(extents)

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the cells from one position to the next along each axis."""
        cells = self.cells
        return tuple(prod(cells[i + 1 :]) for i in range(len(cells)))

    @property
    def lines(self) -> int:
        """Return the lines of a phase."""
        return prod(self.cells[:-1])

    @property
    def part_count(self) -> int:
        """Return the parts of an image."""
        return -(-self.sides[0].count // self.part_size)

    @property
    def phases(self) -> int:
        """Return the number of all phases."""
        return prod(side.phases for side in self.sides)

    @property
    def size(self) -> int:
        """Return the cells of a phase."""
        return prod(self.cells)

    def taps(self, axes: Axes, sizes: Sequence[int]) -> list[Tap]:
        """Return the taps of a correlation by weights of extents `sizes`."""
        taps = []
        for tap_indices in product(*(range(axis.taps) for axis in axes)):
            number = phase = shift = 0
            for t, axis, side, step, size in zip(
                tap_indices, axes, self.sides, self.steps, sizes, strict=True
            ):
                cell, residue = divmod(axis.offset + axis.gap * t, side.stride)
                phase = phase * side.phases + residue - side.phase
                shift += (cell - side.low) * step
                number = number * size + axis.first + axis.every * t
            taps.append(Tap(number, phase, shift))
        return taps


def grid_of(sweeps: Sequence[Axes], part_size: int, is_shared: bool = False) -> Grid:
    """Return the grid that several correlations of the same inputs share."""
    sides = []
    for axes in zip(*sweeps, strict=True):
        stride = axes[0].stride
        input_offsets = {
            axis.offset + axis.gap * t for axis in axes for t in range(axis.taps)
        }
        cells, residues = zip(
            *(divmod(offset, stride) for offset in input_offsets or {0}), strict=True
        )
        sides.append(
            Side(
                extent=axes[0].extent,
                pitch=axes[0].pitch,
                stride=stride,
                phase=min(residues),
                phases=max(residues) - min(residues) + 1,
                low=min(cells),
                count=max(axis.count for axis in axes),
                span=max(cells) - min(cells),
            )
        )
    return Grid(tuple(sides), part_size, is_shared)


@record
class Line:
    """A line of the grid: cells along the last axis.

    Attributes:
        phase, index: the phase, and the number of the line in it.
        source: the address of the input of cell 0, which may be outside.
        pitch: the elements from the input of one cell to the next.
        valid_cells: the cells that hold inputs.
    """

    phase: Index
    index: Index
    source: Pointer
    pitch: int
    valid_cells: Range


def lines(b: Kernel, grid: Grid, image: Pointer, first: Number) -> Iterator[Line]:
    """Loop over the lines of a part. Yield once, in the loop.

    Args:
        b: the builder.
        grid: of parts.
        image: the address of the elements.
        first: the part's first position.
    """
    *outer, last = grid.sides
    cells = grid.cells
    with b.loop(0, grid.phases) as phase, b.loop(0, grid.lines) as line:
        starts = [first + outer[0].low, *(s.low for s in outer[1:])] if outer else []
        phase_index, number = phase, line
        residues: list[Number] = []
        for side in reversed(grid.sides):
            residues.insert(0, phase_index % side.phases + side.phase)
            phase_index = phase_index // side.phases
        exists: Value | None = None
        source = image
        for d in reversed(range(len(outer))):
            side = outer[d]
            cell = number % cells[d] + starts[d]
            number = number // cells[d]
            coordinate = cell * side.stride + residues[d]
            is_inside = b.is_inside(coordinate, side.extent)
            exists = is_inside if exists is None else b.binary("and", exists, is_inside)
            source = source + coordinate * side.pitch
        first_cell = last.low if outer else first + last.low
        source = source + (first_cell * last.stride + residues[-1]) * last.pitch
        # The range of cells whose input exists.
        low = b.min(b.max(0 - first_cell, 0), cells[-1])
        inputs_in_phase = last.extent - residues[-1] + (last.stride - 1)
        high = b.max(b.min(inputs_in_phase // last.stride - first_cell, cells[-1]), low)
        if exists is not None:
            low, high = (b.choose(exists, end, cells[-1]) for end in (low, high))
        yield Line(phase, line, source, last.stride * last.pitch, (low, high))


def coordinates_of(grid: Grid, position: Number) -> list[Number]:
    """Return the position along each axis, from the position along the grid."""
    coordinates = []
    for step in grid.steps:
        coordinates.append(position // step)
        position = position % step
    return coordinates
