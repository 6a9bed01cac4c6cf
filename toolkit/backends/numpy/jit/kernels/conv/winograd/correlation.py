"""Correlations by Winograd's transforms: inputs, products, outputs.

A block of tiles at a time: their inputs are transformed, a matrix product for each of
the points adds up the channels, and the products are transformed back and handed to
the epilogue. What is computed in between stays in the second cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from toolkit.backends.numpy.jit.builder import Number, Pointer
from toolkit.backends.numpy.jit.epilogue import Described, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.feed import Channels
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axis
from toolkit.backends.numpy.jit.kernels.conv.plan import CorrelationPlan
from toolkit.backends.numpy.jit.kernels.conv.sums import Sums
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    Panel,
    Segment,
    best_vectors,
    cycles,
    most_rows,
    panels,
    split,
)
from toolkit.backends.numpy.jit.kernels.conv.winograd.exactness import is_allowed
from toolkit.backends.numpy.jit.kernels.conv.winograd.patches import (
    Grid,
    Patches,
    PatchWriter,
    Side,
    can_be_tiled,
)
from toolkit.backends.numpy.jit.kernels.conv.winograd.transforms import (
    OUTPUTS,
    TAPS,
)
from toolkit.definitions.records import record

# Tiles of a block, times registers: 8 where there are 32. Fewer registers hold 4 tiles
# beside two vectors of outputs, and 16 tiles then read each weight half as often. Where
# weights are too many elements for the second cache, about so many tiles of an image.
_BLOCK_REGISTERS, _FAR_BLOCK, _NEAR = 256, 64, 1 << 18
# Tiles of a part of an image, of which small batches have several.
_STRIP_TILES = 8
# Cycles that the transforms of a vector of a tile's inputs and outputs take, by the
# outputs along an axis.
_CYCLES = {OUTPUTS: (200, 125), 2: (70, 45)}
_LEAST_GAIN = 1.25
_LINE = 16  # elements
# Elements between neighbouring pixels; the zeros outside the image span a patch's.
MOST_PITCH = 1 << 12


@record
class WinogradPlan(Grid):
    """What a kernel depends on, besides its epilogue and the tiles.

    Attributes:
        dtype: of weights, and of what is computed.
        stored: the dtype of the images.
        channels: all in one block; whole vectors of inputs and outputs.
        vectors: of a panel of output channels.
        rows: tiles that a product adds up together; a block is some of those.
    """

    dtype: str
    stored: str
    channels: Channels
    vectors: int
    rows: int

    @property
    def vector(self) -> int:
        """Elements from one vector of channels to the next, no power of 2."""
        return (self.block + 1) * self.lanes

    @property
    def point(self) -> int:
        """Elements from one point of all channels to the next.

        An odd number of lines: the points of a tile are in different sets of a cache.
        """
        vectors = max(self.channels.depth, self.channels.width) // self.lanes
        return (-(-vectors * self.vector // _LINE) | 1) * _LINE

    @property
    def zeros(self) -> int:
        """The zeros that stand for a row of a patch outside the image."""
        return self.points * self.axes[1].pitch + self.channels.depth

    @property
    def scratch(self) -> int:
        """The elements of a task's own memory."""
        return self.points**2 * (2 * self.point + self.lanes) + self.zeros

    @property
    def weights(self) -> int:
        """The elements of the transformed weights."""
        return self.points**2 * self.channels.depth * self.channels.width

    @property
    def is_far(self) -> bool:
        """Whether no near cache holds the transformed weights."""
        return self.weights > _NEAR

    @property
    def gain(self) -> float:
        """How many times quicker than a direct correlation it is."""
        at, (y, x) = self.channels, self.axes
        inputs, outputs = at.depth // self.lanes, at.width // self.lanes
        steps = at.depth * outputs / 2
        in_cycles, out_cycles = _CYCLES[self.outputs]
        tile = self.points**2 * steps + in_cycles * inputs + out_cycles * outputs
        return y.count * x.count * TAPS**2 * steps / (prod(self.tiles) * tile)

    @property
    def strip(self) -> int:
        """The fewest tiles of a part of an image: each part reads all weights."""
        return self.block if self.is_far else _STRIP_TILES


def winograd_plan(plan: CorrelationPlan, stored: str) -> WinogradPlan | None:
    """How to compute a correlation with fewer multiplications; None if it is slower.

    By F(2, 3) where it is the quicker one, or F(4, 3) would not be exact enough.

    Args:
        plan: the correlation.
        stored: the dtype of the images.
    """
    at, lanes = plan.channels, plan.lanes
    if plan.dtype != "float32" or len(plan.sweeps) > 1:
        return None
    if at.blocks > 1 or at.spread or at.pitch != 1 or at.depth % lanes or at.dots:
        return None
    if at.width % lanes or not can_be_tiled(plan.sweeps[0]):
        return None
    y, x = plan.sweeps[0]
    if not 0 <= x.pitch <= MOST_PITCH:
        return None
    allowed = [n for n in (OUTPUTS, 2) if is_allowed(at.depth, n)]
    plans = (_plan(plan, stored, (y, x), outputs) for outputs in allowed)
    found = max(plans, key=lambda plan: plan.gain, default=None)
    return found if found and found.gain >= _LEAST_GAIN else None


def _plan(
    plan: CorrelationPlan, stored: str, axes: tuple[Axis, Axis], outputs: int
) -> WinogradPlan:
    """How to compute it with tiles of so many outputs along each axis."""
    at, lanes = plan.channels, plan.lanes
    block = _BLOCK_REGISTERS // plan.registers
    vectors = best_vectors(at.width, lanes, [block], plan.registers)
    found = WinogradPlan(
        lanes=lanes,
        axes=axes,
        block=block,
        outputs=outputs,
        dtype=plan.dtype,
        stored=stored,
        channels=at,
        vectors=vectors,
        rows=block,
    )
    if found.is_far:
        block, _ = split(max(prod(found.tiles), _FAR_BLOCK // 2), _FAR_BLOCK)[0]
    rows = _rows(block, vectors, plan.registers)
    return replace(found, block=-(-block // rows) * rows, rows=rows)


def _rows(tiles: int, vectors: int, available: int) -> int:
    """Tiles that are added up together, where there are so many."""

    def cost(rows: int) -> tuple[float, int]:
        return -(-tiles // rows) * cycles(rows, vectors), -rows

    return min(range(1, most_rows(vectors, available) + 1), key=cost)


def emit_winograd(body: Described, plan: WinogradPlan) -> Kernel:
    """The function of a convolution or input gradient and its epilogue.

    The table holds the operands of the body, the images, the transformed weights, the
    tasks' memory, and two numbers: in how many strips an image is computed, and the
    elements between images.
    """
    builder = Kernel(plan.lanes)
    _Winograd(builder, body, plan).write()
    return builder


class _Winograd(PatchWriter):
    """Writes the function."""

    def __init__(self, builder: Kernel, body: Described, plan: WinogradPlan) -> None:
        super().__init__(builder, plan.dtype, plan)
        self.plan = plan
        count = len(body.body.inputs) + len(body.body.outputs)
        *bases, _, self.w, scratch = (self.address(i) for i in range(count + 3))
        self.epilogue = Epilogue(body.body, builder, bases)
        self.strips = self.b.entry(count + 3)
        image = self.b.entry(count + 4)
        at, lanes = plan.channels, plan.lanes
        self.points = scratch + builder.slot * plan.scratch
        self.products = self.points + plan.points**2 * plan.point
        self.lines = self.products + plan.points**2 * plan.point
        self.zeros = self.lines + plan.points**2 * lanes
        vertical, horizontal = (
            Side(axis.extent, axis.pitch, axis.offset) for axis in plan.axes
        )
        self.patches = Patches(
            images=self.b.address(count, plan.stored),
            dtype=plan.stored,
            image=image,
            sides=(vertical, horizontal),
            size=plan.points,
            channels=at.depth,
            line=self.transforms.inputs,
            points=self.points,
        )

    def write(self) -> None:
        """Loops over blocks of the tiles of all rows."""
        b, block = self.b, self.plan.block
        self.clear(self.zeros, self.plan.zeros)
        total = prod(self.plan.tiles)
        low, high = (end * total // self.strips for end in (b.low, b.high))
        with b.loop(low, high, block) as first:
            count = b.least(block, high - first)
            with b.loop(0, count) as place:
                self.transform(self.patches, first + place, place)
            self._products(count)
            with b.loop(0, count) as place:
                self._outputs(first + place, place)

    # --- products ---------------------------------------------------------------------

    def _products(self, count: Number) -> None:
        """For each point, the inputs of `count` tiles times the weights."""
        b, plan, at = self.b, self.plan, self.plan.channels
        points = plan.points**2
        with b.loop(0, points) as point:
            x = self.points + point * plan.point
            y = self.products + point * plan.point
            for panel in panels(at.width, plan.vectors, b.lanes):
                with self.b.each(panel.count) as index:
                    column = index * (panel.vectors * b.lanes) + panel.first
                    w = self.w + column * (points * at.depth)
                    w = w + point * (at.depth * panel.vectors * b.lanes)
                    target = y + column * (plan.vector // b.lanes)
                    with b.loop(0, count, plan.rows) as row:
                        source = x + row * b.lanes
                        self._product(panel, source, w, target + row * b.lanes)

    def _product(self, panel: Panel, x: Pointer, w: Pointer, y: Pointer) -> None:
        """Some tiles, and a panel of output channels."""
        plan, lanes = self.plan, self.b.lanes
        axis = _vectors_as_taps(plan)
        inner = Sums(self, replace(plan.channels, depth=lanes), panel, axis)
        sums = [self.zero()] * (plan.rows * panel.vectors)
        sums = inner.add(Segment(0, axis.taps, 0, plan.rows), x, w, sums)
        for k, value in enumerate(sums):
            row, vector = divmod(k, panel.vectors)
            self.b.store(value, y, vector * plan.vector + row * lanes, None)

    # --- outputs ----------------------------------------------------------------------

    def _outputs(self, tile: Number, place: Number) -> None:
        """Transform the products of a tile back."""
        b, at, (vertical, horizontal) = self.b, self.plan.channels, self.plan.axes
        image, y, x = self.corner(tile)
        source = self.products + place * b.lanes
        size, pitch = self.plan.points, self.plan.point
        rows = b.least(self.plan.outputs, vertical.count - y)
        with b.loop(0, at.width, b.lanes) as column:
            vector = source + column * (self.plan.vector // b.lanes)
            with b.loop(0, size) as j:
                line = vector + j * pitch
                points = (i * size * pitch for i in range(size))
                values = [self.load(line, point) for point in points]
                self.keep(j, self.transforms.outputs(values))
            loaded = self.epilogue.columns(column)
            with b.loop(0, rows) as i:
                down = y + i
                row = image * vertical.count + down
                pixel = row * horizontal.count + x
                element = pixel * at.width + column
                for k, value in enumerate(self.transforms.outputs(self.kept(i, size))):
                    with self._if_output(x, k):
                        target = element + k * at.width
                        self.epilogue.apply(value, target, column, None, loaded)

    @contextmanager
    def _if_output(self, x: Number, step: int) -> Iterator[None]:
        """What follows runs only if a column of a tile is one of the outputs."""
        count = self.plan.axes[1].count
        if step < (count - 1) % self.plan.outputs + 1:
            yield
            return
        position = x + step
        with self.b.when(self.b.compare("slt", position, count)):
            yield


def _vectors_as_taps(plan: WinogradPlan) -> Axis:
    """Tiles as positions of a correlation whose taps are the vectors of channels."""
    return Axis(
        out=plan.block,
        start=0,
        step=1,
        count=plan.block,
        extent=plan.block,
        pitch=plan.lanes,
        stride=1,
        offset=0,
        gap=plan.vector // plan.lanes,
        taps=plan.channels.depth // plan.lanes,
        first=0,
        every=1,
    )
