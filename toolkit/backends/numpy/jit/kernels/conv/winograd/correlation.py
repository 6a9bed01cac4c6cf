"""Correlations by Winograd's transforms: inputs, products, outputs.

A block of tiles is computed at a time. The kernel transforms its inputs, adds up the
channels by a matrix product for each point, transforms the products back, and applies
the epilogue. Intermediate results stay in the L2 cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from toolkit.backends.numpy.jit.builder import Number, Pointer
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axis
from toolkit.backends.numpy.jit.kernels.conv.input_loader import Channels
from toolkit.backends.numpy.jit.kernels.conv.plan import CorrelationPlan
from toolkit.backends.numpy.jit.kernels.conv.sums import TapSums
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    Panel,
    Segment,
    best_vectors,
    max_rows,
    split_evenly,
    split_panels,
    step_cycles,
)
from toolkit.backends.numpy.jit.kernels.conv.winograd.exactness import is_exact_enough
from toolkit.backends.numpy.jit.kernels.conv.winograd.patches import (
    Grid,
    Patches,
    PatchWriter,
    Side,
    can_be_tiled,
)
from toolkit.backends.numpy.jit.kernels.conv.winograd.transforms import OUTPUTS, TAPS
from toolkit.definitions.records import record

# Tiles of a block times registers: 8 tiles for 32 registers. With 16 registers, 4 tiles
# fit next to two vectors of outputs, and a block of 16 tiles halves the reads of
# weights. _FAR_BLOCK_TILES is the tiles of a block if the weights have more than _NEAR
# elements, which exceed the L2 cache.
_BLOCK_REGISTERS, _FAR_BLOCK_TILES, _L2_WEIGHTS = 256, 64, 1 << 18
# The tiles of a part of an image, for small batches.
_STRIP_TILES = 8
# Cycles of the transforms of a vector of a tile's inputs and outputs, by the outputs
# along an axis.
_CYCLES = {OUTPUTS: (200, 125), 2: (70, 45)}
_MIN_SPEEDUP = 1.25
_LINE_ELEMENTS = 16  # elements
# The most elements between neighbouring pixels: the zeros for rows outside the image
# span a patch of them.
MAX_PITCH = 1 << 12


@record
class WinogradPlan(Grid):
    """The properties that a kernel depends on, except for its epilogue and the tiles.

    Attributes:
        dtype: of weights and of the computation.
        stored: the dtype of the images.
        channels: one block of whole vectors of inputs and outputs.
        vectors: the vectors of output channels in a panel.
        rows: the tiles that a product sums together. A block is a multiple of them.
    """

    dtype: str
    stored: str
    channels: Channels
    vectors: int
    rows: int

    @property
    def vector(self) -> int:
        """Return the stride of vectors of channels in elements, not a power of 2."""
        return (self.block + 1) * self.lanes

    @property
    def point(self) -> int:
        """Return the elements from one point of all channels to the next.

        The number of cache lines is odd, so that the points of a tile are in different
        cache sets.
        """
        vectors = max(self.channels.depth, self.channels.width) // self.lanes
        return (-(-vectors * self.vector // _LINE_ELEMENTS) | 1) * _LINE_ELEMENTS

    @property
    def zeros(self) -> int:
        """Return the number of zeros for a row of a patch outside the image."""
        elements = self.points * self.axes[1].pitch + self.channels.depth
        return self.whole_vectors(elements)

    @property
    def scratch(self) -> int:
        """Return the elements of a task's memory."""
        return self.points**2 * (2 * self.point + self.lanes) + self.zeros

    @property
    def weights(self) -> int:
        """Return the elements of the transformed weights."""
        return self.points**2 * self.channels.depth * self.channels.width

    @property
    def is_far(self) -> bool:
        """Return whether the transformed weights exceed the nearest caches."""
        return self.weights > _L2_WEIGHTS

    @property
    def speedup(self) -> float:
        """Return the speedup over a direct correlation."""
        at, (y, x) = self.channels, self.axes
        inputs, outputs = at.depth // self.lanes, at.width // self.lanes
        steps = at.depth * outputs / 2
        in_cycles, out_cycles = _CYCLES[self.outputs]
        tile = self.points**2 * steps + in_cycles * inputs + out_cycles * outputs
        return y.count * x.count * TAPS**2 * steps / (prod(self.tiles) * tile)

    @property
    def strip(self) -> int:
        """Return the least tiles of a part of an image: each part reads all weights."""
        return self.block if self.is_far else _STRIP_TILES


def winograd_plan(plan: CorrelationPlan, stored: str) -> WinogradPlan | None:
    """Return the plan of a correlation with fewer multiplications, or None if slower.

    The plan uses F(2, 3) where it is faster, or where F(4, 3) is not exact enough.

    Args:
        plan: the correlation.
        stored: the dtype of the images.
    """
    at, lanes = plan.channels, plan.lanes
    if plan.dtype != "float32" or len(plan.sweeps) > 1:
        return None
    if (
        at.blocks > 1
        or at.group_outputs
        or at.pitch != 1
        or at.depth % lanes
        or at.is_dot_product
    ):
        return None
    if at.width % lanes or not can_be_tiled(plan.sweeps[0]):
        return None
    y, x = plan.sweeps[0]
    if not 0 <= x.pitch <= MAX_PITCH:
        return None
    allowed = [n for n in (OUTPUTS, 2) if is_exact_enough(at.depth, n)]
    plans = (_plan(plan, stored, (y, x), outputs) for outputs in allowed)
    best = max(plans, key=lambda plan: plan.speedup, default=None)
    return best if best and best.speedup >= _MIN_SPEEDUP else None


def _plan(
    plan: CorrelationPlan, stored: str, axes: tuple[Axis, Axis], outputs: int
) -> WinogradPlan:
    """Return the plan with tiles of `outputs` outputs along each axis."""
    at, lanes = plan.channels, plan.lanes
    block = _BLOCK_REGISTERS // plan.registers
    vectors = best_vectors(at.width, lanes, [block], plan.registers)
    result = WinogradPlan(
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
    if result.is_far:
        block, _ = split_evenly(
            max(prod(result.tiles), _FAR_BLOCK_TILES // 2), _FAR_BLOCK_TILES
        )[0]
    rows = _rows(block, vectors, plan.registers)
    return replace(result, block=-(-block // rows) * rows, rows=rows)


def _rows(tiles: int, vectors: int, available: int) -> int:
    """Return the number of tiles that are summed together, given enough tiles."""

    def cost(rows: int) -> tuple[float, int]:
        return -(-tiles // rows) * step_cycles(rows, vectors), -rows

    return min(range(1, max_rows(vectors, available) + 1), key=cost)


def emit_winograd(body: BodyStructure, plan: WinogradPlan) -> Kernel:
    """Emit the function of a convolution or input gradient and its epilogue.

    The table holds the operands of the body, the images, the transformed weights, the
    tasks' memory, the strips of an image, and the elements from one image to the next.
    """
    builder = Kernel(plan.lanes)
    _Winograd(builder, body, plan).write()
    return builder


class _Winograd(PatchWriter):
    """Emits the function."""

    def __init__(
        self, builder: Kernel, body: BodyStructure, plan: WinogradPlan
    ) -> None:
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
        """Emit the loop over blocks of the tiles of all rows."""
        b, block = self.b, self.plan.block
        self.clear(self.zeros, self.plan.zeros)
        total = prod(self.plan.tiles)
        low, high = (end * total // self.strips for end in (b.low, b.high))
        with b.loop(low, high, block) as first:
            count = b.min(block, high - first)
            with b.loop(0, count) as slot:
                self.transform(self.patches, first + slot, slot)
            self._products(count)
            with b.loop(0, count) as slot:
                self._outputs(first + slot, slot)

    # --- products ---------------------------------------------------------------------

    def _products(self, count: Number) -> None:
        """Multiply, for each point, the inputs of `count` tiles by the weights."""
        b, plan, at = self.b, self.plan, self.plan.channels
        points = plan.points**2
        with b.loop(0, points) as point:
            x = self.points + point * plan.point
            y = self.products + point * plan.point
            for panel in split_panels(at.width, plan.vectors, b.lanes):
                with self.b.elidable_loop(panel.count) as index:
                    column = index * (panel.vectors * b.lanes) + panel.first
                    w = self.w + column * (points * at.depth)
                    w = w + point * (at.depth * panel.vectors * b.lanes)
                    target = y + column * (plan.vector // b.lanes)
                    with b.loop(0, count, plan.rows) as row:
                        source = x + row * b.lanes
                        self._product(panel, source, w, target + row * b.lanes)

    def _product(self, panel: Panel, x: Pointer, w: Pointer, y: Pointer) -> None:
        """Multiply some tiles by a panel of output channels."""
        plan, lanes = self.plan, self.b.lanes
        axis = _vectors_as_taps(plan)
        inner = TapSums(self, replace(plan.channels, depth=lanes), panel, axis)
        sums = [self.zero] * (plan.rows * panel.vectors)
        sums = inner.add_segment(Segment(0, axis.taps, 0, plan.rows), x, w, sums)
        for k, value in enumerate(sums):
            row, vector = divmod(k, panel.vectors)
            self.b.store(value, y, vector * plan.vector + row * lanes, None)

    # --- outputs ----------------------------------------------------------------------

    def _outputs(self, tile: Number, slot: Number) -> None:
        """Transform the products of a tile back."""
        b, at, (vertical, horizontal) = self.b, self.plan.channels, self.plan.axes
        image, y, x = self.corner(tile)
        source = self.products + slot * b.lanes
        size, pitch = self.plan.points, self.plan.point
        rows = b.min(self.plan.outputs, vertical.count - y)
        with b.loop(0, at.width, b.lanes) as column:
            vector = source + column * (self.plan.vector // b.lanes)
            with b.loop(0, size) as j:
                line = vector + j * pitch
                points = (i * size * pitch for i in range(size))
                values = [self.load(line, point) for point in points]
                self.store_column(j, self.transforms.outputs(values))
            loaded = self.epilogue.columns(column)
            with b.loop(0, rows) as i:
                down = y + i
                row = image * vertical.count + down
                pixel = row * horizontal.count + x
                element = pixel * at.width + column
                for k, value in enumerate(
                    self.transforms.outputs(self.load_row(i, size))
                ):
                    with self._when_output(x, k):
                        target = element + k * at.width
                        self.epilogue.apply(value, target, column, None, loaded)

    @contextmanager
    def _when_output(self, x: Number, step: int) -> Iterator[None]:
        """Run the body only if a column of a tile is one of the outputs."""
        count = self.plan.axes[1].count
        if step < (count - 1) % self.plan.outputs + 1:
            yield
            return
        position = x + step
        with self.b.when(self.b.compare("slt", position, count)):
            yield


def _vectors_as_taps(plan: WinogradPlan) -> Axis:
    """Return tiles as positions of a correlation whose taps are vectors of channels."""
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
