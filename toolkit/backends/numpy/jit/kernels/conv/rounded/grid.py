"""Inputs on a grid with all the zeros around them, so that each tap is a shift of it.

Positions of the outputs are numbered along the whole grid, those between two of its
lines included: 16 positions that follow each other meet, at a tap, 16 cells that do.
Inputs that a strided convolution meets are apart by their remainder modulo the stride,
the phase.
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
        extent, pitch: inputs, and elements from one to the next.
        stride: between the inputs of two positions.
        phase, phases: the first one, and how many.
        low: the cell that the first position's first tap meets.
        count: positions.
        span: cells behind those that the last position's first tap meets.
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
    """A tap of a correlation: its number among the weights, and what it meets."""

    number: int
    phase: int
    shift: int


@record
class Grid:
    """The grid of a part of an image: of some positions along the first axis.

    Attributes:
        sides: the axes.
        part: positions along the first axis.
        is_shared: whether zeros behind a line are those in front of the next one. Lines
            have an even number of cells then.
    """

    sides: tuple[Side, ...]
    part: int
    is_shared: bool = False

    @property
    def cells(self) -> tuple[int, ...]:
        """The extents of a phase."""
        first, *others = self.sides
        found = [self.part + first.span, *(s.count + s.span for s in others)]
        if self.is_shared:
            last = self.sides[-1]
            behind = last.low + last.count + last.span - last.extent
            found[-1] -= max(0, min(-last.low, behind)) if others else 0
            found[-1] += found[-1] % 2
        return tuple(found)

    @property
    def steps(self) -> tuple[int, ...]:
        """Cells from one position to the next along each axis."""
        cells = self.cells
        return tuple(prod(cells[i + 1 :]) for i in range(len(cells)))

    @property
    def lines(self) -> int:
        """The lines of a phase."""
        return prod(self.cells[:-1])

    @property
    def parts(self) -> int:
        """How many there are of an image."""
        return -(-self.sides[0].count // self.part)

    @property
    def phases(self) -> int:
        """All of them."""
        return prod(side.phases for side in self.sides)

    @property
    def size(self) -> int:
        """The cells of a phase."""
        return prod(self.cells)

    def taps(self, axes: Axes, sizes: Sequence[int]) -> list[Tap]:
        """The taps of a correlation by weights of some extents."""
        found = []
        for chosen in product(*(range(axis.taps) for axis in axes)):
            number = phase = shift = 0
            for t, axis, side, step, size in zip(
                chosen, axes, self.sides, self.steps, sizes, strict=True
            ):
                cell, rest = divmod(axis.offset + axis.gap * t, side.stride)
                phase = phase * side.phases + rest - side.phase
                shift += (cell - side.low) * step
                number = number * size + axis.first + axis.every * t
            found.append(Tap(number, phase, shift))
        return found


def grid_of(sweeps: Sequence[Axes], part: int, is_shared: bool = False) -> Grid:
    """The grid that several correlations of the same inputs share."""
    sides = []
    for axes in zip(*sweeps, strict=True):
        stride = axes[0].stride
        met = {axis.offset + axis.gap * t for axis in axes for t in range(axis.taps)}
        cells, rests = zip(
            *(divmod(place, stride) for place in met or {0}), strict=True
        )
        sides.append(
            Side(
                extent=axes[0].extent,
                pitch=axes[0].pitch,
                stride=stride,
                phase=min(rests),
                phases=max(rests) - min(rests) + 1,
                low=min(cells),
                count=max(axis.count for axis in axes),
                span=max(cells) - min(cells),
            )
        )
    return Grid(tuple(sides), part, is_shared)


@record
class Line:
    """A line of the grid: cells along the last axis.

    Attributes:
        phase, index: of all, and among the lines of one.
        source: the input of the line's cell 0, if there were one.
        pitch: elements from the input of one cell to that of the next.
        inside: the cells that hold inputs.
    """

    phase: Index
    index: Index
    source: Pointer
    pitch: int
    inside: Range


def lines(b: Kernel, grid: Grid, image: Pointer, first: Number) -> Iterator[Line]:
    """A loop over the lines of a part; yields once.

    Args:
        b: writes the function.
        grid: of parts.
        image: a pointer to elements.
        first: the part's first position.
    """
    *outer, last = grid.sides
    cells = grid.cells
    with b.loop(0, grid.phases) as phase, b.loop(0, grid.lines) as line:
        starts = [first + outer[0].low, *(s.low for s in outer[1:])] if outer else []
        rest, number = phase, line
        residues: list[Number] = []
        for side in reversed(grid.sides):
            residues.insert(0, rest % side.phases + side.phase)
            rest = rest // side.phases
        exists: Value | None = None
        source = image
        for d in reversed(range(len(outer))):
            side = outer[d]
            cell = number % cells[d] + starts[d]
            number = number // cells[d]
            place = cell * side.stride + residues[d]
            inside = b.is_inside(place, side.extent)
            exists = inside if exists is None else b.binary("and", exists, inside)
            source = source + place * side.pitch
        begin = last.low if outer else first + last.low
        source = source + (begin * last.stride + residues[-1]) * last.pitch
        # The first cell whose input exists, and the first one behind those.
        low = b.least(b.most(0 - begin, 0), cells[-1])
        room = last.extent - residues[-1] + (last.stride - 1)
        high = b.most(b.least(room // last.stride - begin, cells[-1]), low)
        if exists is not None:
            low, high = (b.choose(exists, end, cells[-1]) for end in (low, high))
        yield Line(phase, line, source, last.stride * last.pitch, (low, high))


def place_of(grid: Grid, position: Number) -> list[Number]:
    """The positions along each axis, from that along the grid."""
    found = []
    for step in grid.steps:
        found.append(position // step)
        position = position % step
    return found
