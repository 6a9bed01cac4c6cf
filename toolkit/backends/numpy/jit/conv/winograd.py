"""3 x 3 convolutions of many channels with a quarter of the multiplications.

A block of tiles at a time: their inputs are transformed, a matrix product for each of
the 36 points adds up the channels, and the products are transformed back and handed to
the epilogue. What lies between stays in the second cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.conv.correlate import Plan
from toolkit.backends.numpy.jit.conv.feed import Channels
from toolkit.backends.numpy.jit.conv.geometry import Axis
from toolkit.backends.numpy.jit.conv.sums import Sums
from toolkit.backends.numpy.jit.conv.tiles import (
    Panel,
    Segment,
    best_vectors,
    most_rows,
    panels,
    split,
)
from toolkit.backends.numpy.jit.conv.transforms import (
    OUTPUTS,
    POINTS,
    TAPS,
    Transforms,
)
from toolkit.backends.numpy.jit.conv.writer import Writer
from toolkit.backends.numpy.jit.epilogue import Described, Epilogue

# Tiles of a block, as few as fill the registers: more only if the weights are too many
# elements for the second cache, so that they are read less often.
_LEAST_BLOCK, _FAR_BLOCK, _NEAR = 8, 32, 1 << 18
# Cycles that the transforms of a vector of a tile's inputs and outputs take.
_INPUT_CYCLES, _OUTPUT_CYCLES = 200, 125
_LEAST_GAIN = 1.25
# Elements between neighbouring pixels; the zeros outside the image span a tile's.
_MOST_PITCH = 1 << 12


@dataclass(frozen=True)
class WinogradPlan:
    """What a kernel depends on, besides its epilogue.

    Attributes:
        dtype: of inputs and weights.
        lanes: of a vector.
        axes: the two axes, with three taps each.
        channels: all in one block; whole vectors of inputs and outputs.
        vectors: of a panel of output channels.
        rows: tiles that a product adds up together.
        block: tiles of a block, a multiple of those.
    """

    dtype: str
    lanes: int
    axes: tuple[Axis, Axis]
    channels: Channels
    vectors: int
    rows: int
    block: int

    @property
    def tiles(self) -> tuple[int, int]:
        """How many tiles an image has along each axis."""
        y, x = (-(-axis.count // OUTPUTS) for axis in self.axes)
        return y, x

    @property
    def point(self) -> int:
        """Elements from one point of a block's tiles to the next.

        No power of 2: the points of a tile should not share a set of the cache.
        """
        return (self.block + 1) * self.lanes

    @property
    def zeros(self) -> int:
        """The zeros that stand for a row of a tile outside the image."""
        return POINTS * self.axes[1].pitch + self.channels.depth

    @property
    def scratch(self) -> int:
        """The elements of a task's own memory."""
        vectors = (self.channels.depth + self.channels.width) // self.lanes
        return POINTS**2 * (vectors * self.point + self.lanes) + self.zeros

    @property
    def weights(self) -> int:
        """The elements of the transformed weights."""
        return POINTS**2 * self.channels.depth * self.channels.width


def winograd_plan(plan: Plan) -> WinogradPlan | None:
    """How to compute a correlation with fewer multiplications; None if it is slower."""
    at, lanes = plan.channels, plan.lanes
    if plan.dtype != "float32" or len(plan.sweeps) > 1 or len(plan.taps) != 2:
        return None
    if at.blocks > 1 or at.spread or at.pitch != 1 or at.depth % lanes:
        return None
    y, x = plan.sweeps[0]
    if at.width % lanes or any(not _is_plain(axis) for axis in (y, x)):
        return None
    if not 0 <= x.pitch <= _MOST_PITCH:
        return None
    vectors = best_vectors(at.width, lanes, [_LEAST_BLOCK], plan.registers)
    rows = split(_LEAST_BLOCK, most_rows(vectors, plan.registers))[0]
    weights = POINTS**2 * at.depth * at.width
    least = _LEAST_BLOCK if weights <= _NEAR else _FAR_BLOCK
    block = -(-least // rows) * rows
    found = WinogradPlan(plan.dtype, lanes, (y, x), at, vectors, rows, block)
    return found if _gain(found) >= _LEAST_GAIN else None


def _is_plain(axis: Axis) -> bool:
    """Whether an axis has three taps without any gaps."""
    return axis.taps == TAPS and (axis.stride, axis.gap, axis.every) == (1, 1, 1)


def _gain(plan: WinogradPlan) -> float:
    """How many times quicker than a direct correlation it is."""
    at, (y, x), (down, across) = plan.channels, plan.axes, plan.tiles
    inputs, outputs = at.depth // plan.lanes, at.width // plan.lanes
    steps = at.depth * outputs / 2
    tile = POINTS**2 * steps + _INPUT_CYCLES * inputs + _OUTPUT_CYCLES * outputs
    return y.count * x.count * TAPS**2 * steps / (down * across * tile)


def emit_winograd(body: Described, plan: WinogradPlan) -> Builder:
    """The function of a convolution or input gradient and its epilogue.

    The table holds the operands of the body, the images, the transformed weights, the
    tasks' memory, and two numbers: in how many strips an image is computed, and the
    elements between images.
    """
    builder = Builder(plan.lanes)
    _Winograd(builder, body, plan).write()
    return builder


class _Winograd(Writer):
    """Writes the function."""

    def __init__(self, builder: Builder, body: Described, plan: WinogradPlan) -> None:
        super().__init__(builder, plan.dtype)
        self.plan = plan
        self.transforms = Transforms(builder)
        count = len(body.body.inputs) + len(body.body.outputs)
        *bases, self.x, self.w, scratch = (
            self.entry(i, "ptr") for i in range(count + 3)
        )
        self.epilogue = Epilogue(body.body, builder, bases)
        self.strips = self.entry(count + 3, "i64")
        self.image = self.entry(count + 4, "i64")
        # Of each vector of channels the points, and of each point the tiles.
        depth, width = (
            n // plan.lanes for n in (plan.channels.depth, plan.channels.width)
        )
        self.points = self.move(scratch, "%slot", plan.scratch)
        self.products = self.move(self.points, POINTS**2 * plan.point, depth)
        self.lines = self.move(self.products, POINTS**2 * plan.point, width)
        self.zeros = self.move(self.lines, POINTS**2 * plan.lanes)

    def write(self) -> None:
        """Loops over blocks of the tiles of all rows."""
        b, plan = self.b, self.plan
        with b.loop("0", str(plan.zeros), b.lanes) as index:
            self.memory.store(self._zero(), self.zeros, index, None)
        down, across = plan.tiles
        low, high = (
            self.integer("sdiv", self.integer("mul", end, down * across), self.strips)
            for end in ("%lo", "%hi")
        )
        with b.loop(low, high, plan.block) as first:
            count = b.least(plan.block, self.integer("sub", high, first))
            with b.loop("0", count) as place:
                self._inputs(self.integer("add", first, place), place)
            self._products(count)
            with b.loop("0", count) as place:
                self._outputs(self.integer("add", first, place), place)

    def _corner(self, tile: str) -> tuple[str, str, str]:
        """The image of a tile, and its first output along each axis."""
        down, across = self.plan.tiles
        image = self.integer("sdiv", tile, down * across)
        tile = self.integer("srem", tile, down * across)
        y, x = self.integer("sdiv", tile, across), self.integer("srem", tile, across)
        return image, self.integer("mul", y, OUTPUTS), self.integer("mul", x, OUTPUTS)

    def _zero(self) -> Value:
        return self.b.constant(0.0, Value("", self.dtype, self.b.lanes))

    # --- inputs -----------------------------------------------------------------------

    def _inputs(self, tile: str, place: str) -> None:
        """Transform the inputs of a tile, column by column and then row by row."""
        b, (vertical, horizontal) = self.b, self.plan.axes
        image, y, x = self._corner(tile)
        top = self.integer("add", y, vertical.offset)
        left = self.integer("add", x, horizontal.offset)
        origin = self.move(self.x, image, self.image)
        origin = self.move(origin, left, horizontal.pitch)
        rows = [self._row(origin, self.integer("add", top, i)) for i in range(POINTS)]
        target = self.move(self.points, place, b.lanes)
        with b.loop("0", str(self.plan.channels.depth), b.lanes) as channel:
            vector = self.move(target, channel, POINTS**2 * self.plan.point // b.lanes)
            with b.loop("0", str(POINTS)) as j:
                inside = self._inside(self.integer("add", left, j))
                places = [self.move(row, j, horizontal.pitch) for row in rows]
                column = [self._load(place, channel, inside) for place in places]
                self._keep(j, self.transforms.inputs(column))
            with b.loop("0", str(POINTS)) as i:
                line = self.move(vector, i, POINTS * self.plan.point)
                for k, value in enumerate(self.transforms.inputs(self._kept(i))):
                    point = str(k * self.plan.point)
                    self.memory.store(value, line, point, None)

    def _row(self, origin: str, row: str) -> str:
        """A row of the image from the tile's left on, or zeros where there is none."""
        axis = self.plan.axes[0]
        inside = self._compare("ult", row, axis.extent)
        place, name = self.move(origin, row, axis.pitch), f"%{self.b.fresh('p')}"
        self.b.emit(f"{name} = select i1 {inside}, ptr {place}, ptr {self.zeros}")
        return name

    def _inside(self, column: str) -> str:
        """A mask, of all lanes or none: whether a column is one of the image's."""
        where = self.b.splat(Value(column, "int64"))
        limit = self.b.constant(self.plan.axes[1].extent, where)
        return self.b.binary("icmp ult", where, limit, "bool").text

    # --- products ---------------------------------------------------------------------

    def _products(self, count: str) -> None:
        """For each point, the inputs of `count` tiles times the weights."""
        b, plan, at = self.b, self.plan, self.plan.channels
        with b.loop("0", str(POINTS**2)) as point:
            x = self.move(self.points, point, plan.point)
            y = self.move(self.products, point, plan.point)
            for panel in panels(at.width, plan.vectors, b.lanes):
                with self.each(panel.count) as index:
                    column = self.affine(index, panel.vectors * b.lanes, panel.first)
                    w = self.move(self.w, column, POINTS**2 * at.depth)
                    w = self.move(w, point, b.lanes * panel.vectors * b.lanes)
                    target = self.move(y, column, POINTS**2 * plan.point // b.lanes)
                    with b.loop("0", count, plan.rows) as row:
                        source = self.move(x, row, b.lanes)
                        self._product(panel, source, w, self.move(target, row, b.lanes))

    def _product(self, panel: Panel, x: str, w: str, y: str) -> None:
        """Some tiles, and a panel of output channels."""
        rows, plan, lanes = self.plan.rows, self.plan, self.b.lanes
        axis = _vectors_as_taps(plan)
        sums = [self._zero()] * (rows * panel.vectors)
        inner = Sums(self, replace(plan.channels, depth=lanes), panel, axis)
        sums = inner.add(Segment(0, axis.taps, 0, rows), x, w, sums)
        for k, value in enumerate(sums):
            row, vector = divmod(k, panel.vectors)
            offset = vector * POINTS**2 * plan.point + row * lanes
            self.memory.store(value, y, str(offset), None)

    # --- outputs ----------------------------------------------------------------------

    def _outputs(self, tile: str, place: str) -> None:
        """Transform the products of a tile back."""
        b, at, (vertical, horizontal) = self.b, self.plan.channels, self.plan.axes
        image, y, x = self._corner(tile)
        source = self.move(self.products, place, b.lanes)
        rows = b.least(OUTPUTS, self.integer("sub", vertical.count, y))
        with b.loop("0", str(at.width), b.lanes) as column:
            vector = self.move(source, column, POINTS**2 * self.plan.point // b.lanes)
            with b.loop("0", str(POINTS)) as j:
                line = self.move(vector, j, self.plan.point)
                points = (i * POINTS * self.plan.point for i in range(POINTS))
                values = [self._load(line, str(point)) for point in points]
                self._keep(j, self.transforms.outputs(values))
            loaded = self.epilogue.columns(column)
            with b.loop("0", rows) as i:
                row = self.affine(image, vertical.count, self.integer("add", y, i))
                pixel = self.affine(row, horizontal.count, x)
                element = self.affine(pixel, at.width, column)
                for k, value in enumerate(self.transforms.outputs(self._kept(i))):
                    with self._if_output(x, k):
                        target = self.integer("add", element, k * at.width)
                        self.epilogue.apply(value, target, column, None, loaded)

    @contextmanager
    def _if_output(self, x: str, step: int) -> Iterator[None]:
        """What follows runs only if a column of a tile is one of the outputs."""
        count = self.plan.axes[1].count
        if step < (count - 1) % OUTPUTS + 1:
            yield
            return
        position = self.integer("add", x, step)
        with self.b.when(self._compare("slt", position, count)):
            yield

    # --- lines of a tile --------------------------------------------------------------

    def _keep(self, j: str, values: list[Value]) -> None:
        """Store a transformed column of a tile."""
        for i, value in enumerate(values):
            index = self.affine(j, self.b.lanes, i * POINTS * self.b.lanes)
            self.memory.store(value, self.lines, index, None)

    def _kept(self, i: str) -> list[Value]:
        """A row of the columns that were stored."""
        line = self.move(self.lines, i, POINTS * self.b.lanes)
        return [self._load(line, str(j * self.b.lanes)) for j in range(POINTS)]

    def _load(self, place: str, index: str, bits: str | None = None) -> Value:
        return self.memory.load(place, index, self.dtype, bits)

    def _compare(self, how: str, a: str, b: int) -> str:
        name = f"%{self.b.fresh('c')}"
        self.b.emit(f"{name} = icmp {how} i64 {a}, {b}")
        return name


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
        gap=POINTS**2 * plan.point // plan.lanes,
        taps=plan.channels.depth // plan.lanes,
        first=0,
        every=POINTS**2,
    )
