"""Weights in the order in which a correlation reads them.

A panel's weights lie together: for each tap and input channel a row of vectors, zero
where there is no output channel. The input gradient reads the taps from the last to
the first, and what were outputs as inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import MEMORY_TYPES, Builder, Value, vector_type
from toolkit.backends.numpy.jit.conv.winograd.transforms import (
    POINTS,
    TAPS,
    Transforms,
    columns_first,
)
from toolkit.backends.numpy.jit.conv.writer import Writer


@dataclass(frozen=True)
class Layout:
    """The weights that are packed: extents, and strides in elements.

    Attributes:
        taps, depth, width: taps, input channels and output channels of a block.
        vectors: of a panel.
        start: where the tap lies that comes first.
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


def emit_pack(dtype: str, lanes: int, spread: int, neighbours: bool) -> Builder:
    """A function that packs weights of any layout; rows are the taps of all blocks.

    The table holds the weights, the packed weights, and the numbers of a `Layout`.

    Args:
        dtype: of the weights.
        lanes: of a vector.
        spread: the outputs of a group, if a vector spans several groups.
        neighbours: whether the outputs of a vector follow each other in memory.
    """
    builder = Builder(lanes)
    _Pack(builder, dtype).write(spread or lanes, neighbours)
    return builder


def emit_pack_points(dtype: str, lanes: int, neighbours: bool) -> Builder:
    """A function that packs 3 x 3 taps at Winograd's points; rows are input channels.

    The table is that of `emit_pack`; for each point, the rows of a panel lie together.
    """
    builder = Builder(lanes)
    _Pack(builder, dtype).write_points(neighbours)
    return builder


class _Pack(Writer):
    """Writes the functions."""

    def write_points(self, neighbours: bool) -> None:
        """Loops over inputs and vectors of outputs; both are whole vectors."""
        b = self.b
        weights, packed = self.entry(0, "ptr"), self.entry(1, "ptr")
        at = {f.name: self.entry(2 + i, "i64") for i, f in enumerate(fields(Layout))}
        weights = self.move(weights, at["start"])
        vectors = self.integer("sdiv", at["width"], b.lanes)
        lanes = None if neighbours else self._lanes(at["output"], at["group"], b.lanes)
        everything = self.first_lanes(str(b.lanes))
        line = Transforms(b).weights
        with b.loop("%lo", "%hi") as channel, b.loop("0", vectors) as j:
            x = self.move(self.move(weights, channel, at["input"]), j, at["vector"])
            columns = [
                [
                    self._load(self.move(x, TAPS * k + t, at["tap"]), lanes, everything)
                    for k in range(TAPS)
                ]
                for t in range(TAPS)
            ]
            within = self.integer("srem", j, at["vectors"])
            first = self.integer("sub", j, within)
            size = b.least(at["vectors"], self.integer("sub", vectors, first))
            row = self.integer("mul", size, b.lanes)
            point = self.integer("mul", row, b.lanes)
            # Of each panel the vectors of inputs, of those the points, then the rows.
            w = self.move(
                packed, self.integer("mul", first, at["depth"]), POINTS**2 * b.lanes
            )
            vector = self.integer("sdiv", channel, b.lanes)
            w = self.move(w, self.integer("mul", vector, point), POINTS**2)
            w = self.move(w, self.integer("srem", channel, b.lanes), row)
            w = self.move(w, within, b.lanes)
            for i, values in enumerate(columns_first(columns, line)):
                for k, value in enumerate(line(values)):
                    place = self.move(w, POINTS * i + k, point)
                    self.memory.store(value, place, "0", None)

    def write(self, spread: int, neighbours: bool) -> None:
        """Loops over taps, vectors of outputs, and inputs."""
        b = self.b
        weights, packed = self.entry(0, "ptr"), self.entry(1, "ptr")
        at = {f.name: self.entry(2 + i, "i64") for i, f in enumerate(fields(Layout))}
        weights = self.move(weights, at["start"])
        vectors = self.integer("add", at["width"], b.lanes - 1)
        vectors = self.integer("sdiv", vectors, b.lanes)
        rows = self.integer("mul", at["taps"], at["depth"])
        volume = self.integer("mul", rows, b.lanes)
        lanes = None if neighbours else self._lanes(at["output"], at["group"], spread)
        with b.loop("%lo", "%hi") as row, b.loop("0", vectors) as j:
            block = self.integer("sdiv", row, at["taps"])
            tap = self.integer("srem", row, at["taps"])
            x = self.move(self.move(weights, block, at["block"]), tap, at["tap"])
            x = self.move(x, j, at["vector"])
            within = self.integer("srem", j, at["vectors"])
            first = self.integer("sub", j, within)
            size = b.least(at["vectors"], self.integer("sub", vectors, first))
            pitch = self.integer("mul", size, b.lanes)
            before = self.affine(block, vectors, first)
            w = self.move(self.move(packed, before, volume), within, b.lanes)
            w = self.move(w, self.integer("mul", tap, at["depth"]), pitch)
            column = self.integer("mul", j, b.lanes)
            live = self.first_lanes(self.integer("sub", at["width"], column))
            with b.loop("0", at["depth"]) as channel:
                source = self.move(x, channel, at["input"])
                value = self._load(source, lanes, live)
                self.memory.store(value, self.move(w, channel, pitch), "0", None)

    def _lanes(self, output: str, group: str, spread: int) -> Value:
        """Where the outputs of a vector lie, as elements from its first one on."""
        b = self.b
        within = self.numbers(lane % spread for lane in range(b.lanes))
        groups = self.numbers(lane // spread for lane in range(b.lanes))
        output_steps = b.splat(Value(output, "int64"))
        group_steps = b.splat(Value(group, "int64"))
        return b.binary(
            "add",
            b.binary("mul", within, output_steps),
            b.binary("mul", groups, group_steps),
        )

    def _load(self, place: str, lanes: Value | None, live: str) -> Value:
        """The weights of one input and a vector of outputs."""
        if lanes is None:
            return self.memory.load(place, "0", self.dtype, live)
        b, size, element = self.b, dtypes.itemsize(self.dtype), MEMORY_TYPES[self.dtype]
        pointers = f"%{b.fresh('g')}"
        b.emit(
            f"{pointers} = getelementptr {element}, ptr {place}, "
            f"{lanes.type} {lanes.text}"
        )
        kinds = f"<{b.lanes} x ptr>", f"<{b.lanes} x i1>"
        vector = vector_type(element, b.lanes)
        name = f"@llvm.masked.gather.v{b.lanes}f{8 * size}.v{b.lanes}p0"
        b.declarations.add(
            f"declare {vector} {name}({kinds[0]}, i32, {kinds[1]}, {vector})"
        )
        return b.let(
            f"call {vector} {name}({kinds[0]} {pointers}, i32 {size}, "
            f"{kinds[1]} {live}, {vector} zeroinitializer)",
            self.dtype,
            b.lanes,
        )
