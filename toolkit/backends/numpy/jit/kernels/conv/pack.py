"""Weights in the order in which a correlation reads them.

A panel's weights are stored together: for each tap and input channel a row of vectors,
zero where there is no output channel. The input gradient reads the taps from the last
to the first, and what were outputs as inputs.
"""

from __future__ import annotations

from dataclasses import fields

from toolkit.backends.numpy.jit.builder import (
    MEMORY_TYPES,
    Mask,
    Number,
    Pointer,
    Value,
)
from toolkit.backends.numpy.jit.kernel import Kernel, integers
from toolkit.backends.numpy.jit.kernels.conv.winograd.transforms import (
    TAPS,
    columns_first,
    transforms,
)
from toolkit.backends.numpy.jit.kernels.conv.writer import ConvolutionWriter
from toolkit.definitions.records import record


@record
class Layout:
    """The weights that are packed: extents, and strides in elements.

    Attributes:
        taps, depth, width: taps, input channels and output channels of a block.
        vectors: of a panel.
        start: the element of the tap that comes first.
        block, tap, input, output: from one to the next of each.
        group: from one group's first output to the next one's, if a vector spans some.
        vector: from one vector's first output to the next one's.
    """

    taps: int
    depth: int
    width: int
    vectors: int
    start: int
    block: int
    tap: int
    input: int
    output: int
    group: int
    vector: int


def emit_pack(dtype: str, lanes: int, spread: int, neighbours: bool) -> Kernel:
    """A function that packs weights of any layout; rows are the taps of all blocks.

    The table holds the weights, the packed weights, and the numbers of a `Layout`.

    Args:
        dtype: of the weights.
        lanes: of a vector.
        spread: the outputs of a group, if a vector spans several groups.
        neighbours: whether the outputs of a vector follow each other in memory.
    """
    builder = Kernel(lanes)
    _Pack(builder, dtype).write(spread or lanes, neighbours)
    return builder


def emit_pack_points(dtype: str, lanes: int, outputs: int, neighbours: bool) -> Kernel:
    """A function that packs 3 x 3 taps at Winograd's points; rows are input channels.

    The table is that of `emit_pack`; a panel's rows at a point are next to each other.

    Args:
        dtype: of the weights.
        lanes: of a vector.
        outputs: of a line of a tile.
        neighbours: whether the outputs of a vector follow each other in memory.
    """
    builder = Kernel(lanes)
    _Pack(builder, dtype).write_points(outputs, neighbours)
    return builder


class _Pack(ConvolutionWriter):
    """Writes the functions."""

    def write_points(self, outputs: int, neighbours: bool) -> None:
        """Loops over inputs and vectors of outputs; both are whole vectors."""
        b, points = self.b, outputs + TAPS - 1
        weights, packed = self.address(0), self.address(1)
        at = {f.name: self.b.entry(2 + i) for i, f in enumerate(fields(Layout))}
        weights = weights + at["start"]
        vectors = at["width"] // b.lanes
        lanes = None if neighbours else self._lanes(at["output"], at["group"], b.lanes)
        everything = self.b.first_lanes(b.lanes, "int64")
        line = transforms(b, outputs).weights
        with b.loop(b.low, b.high) as channel, b.loop(0, vectors) as j:
            x = weights + channel * at["input"] + j * at["vector"]
            columns = [
                [
                    self._load(x + (TAPS * k + t) * at["tap"], lanes, everything)
                    for k in range(TAPS)
                ]
                for t in range(TAPS)
            ]
            within = j % at["vectors"]
            first = j - within
            size = b.least(at["vectors"], vectors - first)
            row = size * b.lanes
            point = row * at["depth"]
            # Of each panel the points, of those the rows of all inputs.
            w = packed + first * at["depth"] * (points**2 * b.lanes)
            w = w + channel * row
            w = w + within * b.lanes
            for i, values in enumerate(columns_first(columns, line)):
                for k, value in enumerate(line(values)):
                    place = w + (points * i + k) * point
                    self.b.store(value, place, 0, None)

    def write(self, spread: int, neighbours: bool) -> None:
        """Loops over taps, vectors of outputs, and inputs."""
        b = self.b
        weights, packed = self.address(0), self.address(1)
        at = {f.name: self.b.entry(2 + i) for i, f in enumerate(fields(Layout))}
        weights = weights + at["start"]
        vectors = b.ceil_div(at["width"], b.lanes)
        rows = at["taps"] * at["depth"]
        volume = rows * b.lanes
        lanes = None if neighbours else self._lanes(at["output"], at["group"], spread)
        with b.loop(b.low, b.high) as row, b.loop(0, vectors) as j:
            block = row // at["taps"]
            tap = row % at["taps"]
            x = weights + block * at["block"] + tap * at["tap"]
            x = x + j * at["vector"]
            within = j % at["vectors"]
            first = j - within
            size = b.least(at["vectors"], vectors - first)
            pitch = size * b.lanes
            before = block * vectors + first
            w = packed + before * volume + within * b.lanes
            w = w + tap * at["depth"] * pitch
            column = j * b.lanes
            live = self.b.first_lanes(at["width"] - column, "int64")
            with b.loop(0, at["depth"]) as channel:
                source = x + channel * at["input"]
                value = self._load(source, lanes, live)
                self.b.store(value, w + channel * pitch, 0, None)

    def _lanes(self, output: Number, group: Number, spread: int) -> Value:
        """Where a vector's outputs are stored, as elements from its first one on."""
        b = self.b
        within = integers((lane % spread for lane in range(b.lanes)), "int64")
        groups = integers((lane // spread for lane in range(b.lanes)), "int64")
        output_steps = b.splat(self.b.int64(output))
        group_steps = b.splat(self.b.int64(group))
        return b.binary(
            "add",
            b.binary("mul", within, output_steps),
            b.binary("mul", groups, group_steps),
        )

    def _load(self, place: Pointer, lanes: Value | None, live: Mask) -> Value:
        """The weights of one input and a vector of outputs."""
        if lanes is None:
            return self.b.load(place, 0, self.dtype, live)
        kind = MEMORY_TYPES[self.dtype]
        return self.b.gather_at(place, lanes, kind, self.dtype, live)
