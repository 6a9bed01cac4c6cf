"""Kernel gradients by Winograd's transforms: inputs, gradients, products.

A kernel gradient is a correlation of inputs with gradients: 6 inputs and 4 gradients
give 3 taps, with the same points. The products of all tiles are added up at the points.
A task transforms its sums back once, after its last tile. With many channels, a task
computes a block of input channels by output channels.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.conv.grad_plan import KernelGradPlan
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    Panel,
    max_rows,
    register_count,
    split_panels,
    step_cycles,
)
from toolkit.backends.numpy.jit.kernels.conv.winograd.correlation import MAX_PITCH
from toolkit.backends.numpy.jit.kernels.conv.winograd.patches import (
    Grid,
    Patches,
    PatchWriter,
    Side,
    can_be_tiled,
)
from toolkit.backends.numpy.jit.kernels.conv.winograd.transforms import (
    OUTPUTS,
    POINTS,
    TAPS,
    FourOutputs,
)
from toolkit.definitions.records import record

# The most tiles of a block, which hide the loads and stores of sums, and the most
# elements of their points, which fit the L2 cache.
_MAX_BLOCK_TILES, _MAX_BLOCK_POINTS = 32, 1 << 18
# The most elements of a task's sums, 1.2 MB: they stay in the L2 cache.
_MAX_SUMS = POINTS**2 << 13
# Cycles of the transforms of a vector of a tile's inputs and gradients.
_PATCH_CYCLES = 200
_MIN_SPEEDUP = 1.25
# Products of an iteration of the innermost loop.
_UNROLL = 2


@record
class WinogradGradPlan(Grid):
    """The properties that a kernel gradient depends on, except for the tiles.

    Attributes:
        direct: the plan of the direct computation.
        stored: the dtypes of the inputs and the gradients.
        vectors: the vectors of output channels in a panel.
        rows: the input channels of a register block, which divide a vector.
        depth, width: the input and output channels of a block, or all channels if the
        sums of a task can cover them.
    """

    direct: KernelGradPlan
    stored: tuple[str, str]
    vectors: int
    rows: int
    depth: int
    width: int

    @property
    def blocks(self) -> int:
        """Return the number of blocks of channels."""
        return self.across * (self.direct.channels.depth // self.depth)

    @property
    def across(self) -> int:
        """Return the number of blocks that share their input channels."""
        return self.direct.channels.width // self.width

    @property
    def sums(self) -> int:
        """Return the elements from one point's sums to the next, not a power of 2."""
        return self.depth * self.width + self.lanes

    @property
    def zeros(self) -> int:
        """Return the number of zeros for a row of a patch outside the images."""
        inputs = POINTS * self.axes[1].pitch + self.depth
        gradients = OUTPUTS * self.direct.pitches[1] + self.width
        return self.whole_vectors(max(inputs, gradients))

    @property
    def speedup(self) -> float:
        """Return the speedup over the direct computation."""
        y, x = self.axes
        steps = self.depth * self.width / self.lanes / 2
        patches = _PATCH_CYCLES * (self.depth + self.width) / self.lanes
        tile = POINTS**2 * steps + patches
        return y.count * x.count * TAPS**2 * steps / (prod(self.tiles) * tile)

    @property
    def scratch(self) -> int:
        """Return the elements of a task's memory."""
        vectors = (self.depth + self.width) // self.lanes
        lines = POINTS**2 * (self.sums + self.lanes)
        return vectors * self.vector + lines + self.zeros


def winograd_grad_plan(
    plan: KernelGradPlan, stored: tuple[str, str]
) -> WinogradGradPlan | None:
    """Return the plan with fewer multiplications, or None if it is slower.

    Args:
        plan: the plan of the direct computation.
        stored: the dtypes of the inputs and the gradients.
    """
    at, lanes = plan.channels, plan.lanes
    if plan.dtype != "float32" or at.blocks > 1 or at.group_outputs or at.pitch != 1:
        return None
    if at.depth % lanes or at.width % lanes or not can_be_tiled(plan.axes):
        return None
    if not all(0 <= p <= MAX_PITCH for p in (plan.axes[1].pitch, plan.pitches[1])):
        return None
    depth, width = _channels_of_block(at.depth, at.width, lanes)
    vectors, rows = _registers_tile(width, lanes)
    block = _MAX_BLOCK_POINTS // (POINTS**2 * (depth + width))
    result = WinogradGradPlan(
        lanes=lanes,
        axes=(plan.axes[0], plan.axes[1]),
        block=max(1, min(block, _MAX_BLOCK_TILES)),
        outputs=OUTPUTS,
        direct=plan,
        stored=stored,
        vectors=vectors,
        rows=rows,
        depth=depth,
        width=width,
    )
    return result if result.speedup >= _MIN_SPEEDUP else None


def _channels_of_block(depth: int, width: int, lanes: int) -> tuple[int, int]:
    """Return the channels of blocks with the fewest transforms for many sums."""
    pairs = product(_divisors(depth, lanes), _divisors(width, lanes))
    fitting = [(d, w) for d, w in pairs if POINTS**2 * d * w <= _MAX_SUMS]
    return min(fitting, key=lambda pair: (1 / pair[0] + 1 / pair[1], pair[1]))


def _divisors(channels: int, lanes: int) -> list[int]:
    vectors = channels // lanes
    return [n * lanes for n in range(1, vectors + 1) if vectors % n == 0]


def _registers_tile(width: int, lanes: int) -> tuple[int, int]:
    """Return the vectors and rows of the fastest register block."""
    available = register_count()

    def cost(tile: tuple[int, int]) -> float:
        vectors, rows = tile
        panel_list = split_panels(width, vectors, lanes)
        return sum(p.count * step_cycles(rows, p.vectors) for p in panel_list) / rows

    halves = [lanes >> k for k in range(lanes.bit_length())]
    return min(
        (
            (vectors, rows)
            for vectors in range(1, width // lanes + 1)
            for rows in halves
            if rows <= max_rows(vectors, available)
        ),
        key=cost,
    )


def emit_winograd_grad(plan: WinogradGradPlan) -> Kernel:
    """Emit the function of a kernel gradient.

    The table is the table of `emit_kernel_grad`, with the tasks' memory after the
    result.
    """
    builder = Kernel(plan.lanes)
    _WinogradGrad(builder, plan).write()
    return builder


class _WinogradGrad(PatchWriter):
    """Emits the function."""

    def __init__(self, builder: Kernel, plan: WinogradGradPlan) -> None:
        super().__init__(builder, plan.direct.dtype, plan)
        self.four = FourOutputs(builder)
        self.plan = plan
        images, gradients = map(self.b.address, range(2), plan.stored)
        result, scratch = (self.address(i) for i in range(2, 4))
        image, gradient, self.count, self.grain = (self.b.entry(i) for i in range(4, 8))
        lanes = plan.lanes
        self.result = result
        self.sums = scratch + builder.slot * plan.scratch
        inputs = self.sums + POINTS**2 * plan.sums
        outputs = inputs + plan.vector * (plan.depth // lanes)
        self.lines = outputs + plan.vector * (plan.width // lanes)
        self.zeros = self.lines + POINTS**2 * lanes
        (y, x), (down, across) = plan.axes, plan.direct.pitches
        self.inputs = Patches(
            images=images,
            dtype=plan.stored[0],
            image=image,
            sides=(
                Side(y.extent, y.pitch, y.offset),
                Side(x.extent, x.pitch, x.offset),
            ),
            size=POINTS,
            channels=plan.depth,
            line=self.four.inputs,
            points=inputs,
        )
        self.gradients = Patches(
            images=gradients,
            dtype=plan.stored[1],
            image=gradient,
            sides=(Side(y.count, down), Side(x.count, across)),
            size=OUTPUTS,
            channels=plan.width,
            line=self.four.gradients,
            points=outputs,
        )

    def write(self) -> None:
        """Compute all tiles of all rows, which are images or blocks of channels."""
        b, plan = self.b, self.plan
        self.clear(self.zeros, plan.zeros)
        if plan.blocks > 1:
            with b.loop(b.low, b.high) as row:
                self._block(row)
            return
        first_image = b.slot * self.grain
        last_image = b.min(first_image + self.grain, self.count)
        with b.when(self.b.compare("eq", first_image, b.low)):
            self.clear(self.sums, POINTS**2 * plan.sums)
        self._tiles(self.inputs, self.gradients, b.low, b.high)
        with b.when(self.b.compare("eq", last_image, b.high)):
            self._taps(self.result + b.slot * plan.direct.pitch)

    def _block(self, row: Number) -> None:
        """Compute a block of channels, over a group of `grain` images."""
        b, plan = self.b, self.plan
        groups = (self.count + (self.grain - 1)) // self.grain
        group, block = row % groups, row // groups
        first_input = block // plan.across * plan.depth
        first_output = block % plan.across * plan.width
        low = group * self.grain
        self.clear(self.sums, POINTS**2 * plan.sums)
        self._tiles(
            replace(self.inputs, images=self.inputs.images + first_input),
            replace(self.gradients, images=self.gradients.images + first_output),
            low,
            b.min(low + self.grain, self.count),
        )
        channel = first_input * plan.direct.width + first_output
        self._taps(self.result + group * plan.direct.pitch + channel)

    def _tiles(
        self, inputs: Patches, gradients: Patches, low: Number, high: Number
    ) -> None:
        """Add the products of all tiles of images [low, high), a block at a time."""
        b, block, total = self.b, self.plan.block, prod(self.plan.tiles)
        end = high * total
        with b.loop(low * total, end, block) as first:
            count = b.min(block, end - first)
            for patches in (inputs, gradients):
                with b.loop(0, count) as slot:
                    tile = first + slot
                    self.transform(patches, tile, slot)
            self._products(count)

    # --- products ---------------------------------------------------------------------

    def _products(self, count: Number) -> None:
        """Add, for each point, the inputs times the gradients of `count` tiles."""
        b, plan = self.b, self.plan
        vectors, blocks = plan.depth // b.lanes, b.lanes // plan.rows
        with b.loop(0, POINTS**2) as point:
            x = self.inputs.points + point * plan.point
            g = self.gradients.points + point * plan.point
            sums = self.sums + point * plan.sums
            for panel in split_panels(plan.width, plan.vectors, b.lanes):
                with self.b.elidable_loop(panel.count) as index:
                    column = index * (panel.vectors * b.lanes) + panel.first
                    panel_g = g + column * (plan.vector // b.lanes)
                    panel_sums = sums + column
                    with (
                        self.b.elidable_loop(vectors) as vector,
                        self.b.elidable_loop(blocks) as block,
                    ):
                        source = x + vector * plan.vector
                        source = source + block * plan.rows
                        channel = vector * blocks + block
                        target = panel_sums + channel * (plan.rows * plan.width)
                        self._product(panel, source, panel_g, target, count)

    def _product(
        self, panel: Panel, x: Pointer, g: Pointer, target: Pointer, count: Number
    ) -> None:
        """Add the products of some channels and a panel, over all tiles."""
        lanes = self.b.lanes
        addresses = [
            target + (row * self.plan.width + vector * lanes)
            for row in range(self.plan.rows)
            for vector in range(panel.vectors)
        ]
        sums = [self.load(address, 0) for address in addresses]
        remainder = count % _UNROLL
        middle = count - remainder
        sums = self._unrolled(panel, x, g, (0, middle), _UNROLL, sums)
        sums = self._unrolled(panel, x, g, (middle, count), 1, sums)
        for address, value in zip(addresses, sums, strict=True):
            self.b.store(value, address, 0, None)

    def _unrolled(
        self,
        panel: Panel,
        x: Pointer,
        g: Pointer,
        tiles: Range,
        unroll: int,
        sums: list[Value],
    ) -> list[Value]:
        """Loop over tiles [low, high), several per iteration."""
        with self.b.accumulate(*tiles, unroll, sums) as iteration:
            sums = iteration.values
            for u in range(unroll):
                tile = iteration.index + u
                offset = tile * self.b.lanes
                sums = self._step(panel, x + offset, g + offset, sums)
            iteration.next(sums)
        return iteration.values

    def _step(
        self, panel: Panel, x: Pointer, g: Pointer, sums: list[Value]
    ) -> list[Value]:
        """Add one tile: some of its inputs times a panel of its gradients."""
        b, results = self.b, []
        gradients = [
            self.load(g, vector * self.plan.vector) for vector in range(panel.vectors)
        ]
        for row in range(self.plan.rows):
            scalar = b.splat(self.b.scalar(x + row, self.dtype))
            for vector, gradient in enumerate(gradients):
                previous = sums[row * panel.vectors + vector]
                results.append(b.intrinsic("fma", scalar, gradient, previous))
        return results

    # --- results ----------------------------------------------------------------------

    def _taps(self, result: Pointer) -> None:
        """Transform the sums to the gradients of the taps."""
        b, plan = self.b, self.plan
        size = plan.direct.channels.depth * plan.direct.width
        with b.loop(0, plan.depth) as channel, b.loop(0, plan.width, b.lanes) as column:
            element = channel * plan.width + column
            offset = channel * plan.direct.width + column
            with b.loop(0, POINTS) as j:
                line = self.sums + j * plan.sums
                points = [line + i * POINTS * plan.sums for i in range(POINTS)]
                self.store_column(
                    j, self.four.taps([self.load(p, element) for p in points])
                )
            with b.loop(0, TAPS) as i:
                target = result + i * (TAPS * size)
                for k, value in enumerate(self.four.taps(self.load_row(i, POINTS))):
                    self.b.store(value, target + k * size, offset, None)
