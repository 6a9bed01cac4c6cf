"""Packing of weights in the order in which a correlation reads them.

The weights of a panel are contiguous: for each tap and input channel a row of vectors,
with zeros for missing output channels. The input gradient reads the taps in reverse
order, and exchanges inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from toolkit.backends.numpy.jit.kernels.gemm.problem import LINES, TERMS
from toolkit.definitions.records import record


@record
class Layout:
    """The layout of the source weights: extents, and strides in elements.

    Attributes:
        taps, depth, width: taps, input channels and output channels of a block.
        vectors: the vectors in a row of a panel.
        start: the element of the first tap.
        block, tap, input, output: the stride of each.
        group: the stride of groups, if a vector spans several.
        vector: the stride of vectors of outputs.
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


def emit_pack(dtype: str, lanes: int, group_outputs: int, packing: str) -> Kernel:
    """Emit a function that packs weights of any layout. Rows are taps of all blocks.

    The table holds the weights, the packed weights, and the numbers of a `Layout`.

    Args:
        dtype: of the weights.
        lanes: of a vector.
        group_outputs: the outputs of a group, if a vector spans several groups.
        packing: LINES if the outputs of a vector are contiguous.
    """
    builder = Kernel(lanes)
    _Pack(builder, dtype).write(group_outputs or lanes, packing)
    return builder


def emit_pack_points(dtype: str, lanes: int, outputs: int, packing: str) -> Kernel:
    """Emit a function that transforms and packs 3 x 3 taps for Winograd.

    Rows are input channels. The table is the table of `emit_pack`. The rows of a panel
    at one point are contiguous.

    Args:
        dtype: of the weights.
        lanes: of a vector.
        outputs: the outputs of a line of a tile.
        packing: the contiguous axis: outputs (LINES), inputs (TERMS), or neither. For
        TERMS rows are vectors of input channels.
    """
    builder = Kernel(lanes)
    _Pack(builder, dtype).write_points(outputs, packing)
    return builder


class _Pack(ConvolutionWriter):
    """Emits the functions."""

    def __init__(self, builder: Kernel, dtype: str) -> None:
        super().__init__(builder, dtype)
        weights, self.packed = self.address(0), self.address(1)
        self.at: dict[str, Number] = {
            f.name: self.b.entry(2 + i) for i, f in enumerate(fields(Layout))
        }
        self.weights = weights + self.at["start"]

    def write_points(self, outputs: int, packing: str) -> None:
        """Emit the loops over inputs and vectors of outputs. Both are whole vectors."""
        b, at, weights = self.b, self.at, self.weights
        vectors = at["width"] // b.lanes
        if packing == TERMS:
            square = b.memory(TAPS**2 * b.lanes, b.filled(0.0, self.dtype))
            with b.loop(b.low, b.high) as row, b.loop(0, vectors) as j:
                first = row * b.lanes
                x = weights + first * at["input"] + j * at["vector"]
                self._transpose(x, at["tap"], at["output"], square)
                with b.loop(0, b.lanes) as i:
                    taps = [
                        b.load(square, (t * b.lanes + i) * b.lanes, self.dtype, None)
                        for t in range(TAPS**2)
                    ]
                    self._points(taps, outputs, first + i, j)
            return
        is_strided = packing != LINES
        lanes = (
            self._lane_offsets(at["output"], at["group"], b.lanes)
            if is_strided
            else None
        )
        full_mask = self.b.first_lanes(b.lanes, "int64")
        with b.loop(b.low, b.high) as channel, b.loop(0, vectors) as j:
            x = weights + channel * at["input"] + j * at["vector"]
            taps = [
                self._load(x + t * at["tap"], lanes, full_mask) for t in range(TAPS**2)
            ]
            self._points(taps, outputs, channel, j)

    def _transpose(
        self, x: Pointer, tap: Number, output: Number, square: Pointer
    ) -> None:
        """Store each tap by inputs, from a vector of inputs of each output."""
        b = self.b
        with b.loop(0, TAPS**2) as t:
            address = x + t * tap
            rows = [
                b.load(address + i * output, 0, self.dtype, None)
                for i in range(b.lanes)
            ]
            for i, column in enumerate(b.transposed(rows)):
                b.store(column, square, (t * b.lanes + i) * b.lanes, None)

    def _points(
        self, taps: Sequence[Value], outputs: int, channel: Number, j: Number
    ) -> None:
        """Store the points of the taps of an input and a vector of outputs."""
        b, at, points = self.b, self.at, outputs + TAPS - 1
        line = transforms(b, outputs).weights
        vectors = at["width"] // b.lanes
        panel_vector, first, size = self._panel_of(j, vectors)
        row = size * b.lanes
        point = row * at["depth"]
        # Points within panels, rows of all inputs within points.
        w = self.packed + first * at["depth"] * (points**2 * b.lanes)
        w = w + channel * row
        w = w + panel_vector * b.lanes
        columns = [taps[t::TAPS] for t in range(TAPS)]
        for i, values in enumerate(columns_first(columns, line)):
            for k, value in enumerate(line(values)):
                b.store(value, w + (points * i + k) * point, 0, None)

    def write(self, group_outputs: int, packing: str) -> None:
        """Emit the loops over taps, vectors of outputs, and inputs."""
        b, at = self.b, self.at
        vectors = b.ceil_div(at["width"], b.lanes)
        rows = at["taps"] * at["depth"]
        volume = rows * b.lanes
        is_strided = packing != LINES
        lanes = (
            self._lane_offsets(at["output"], at["group"], group_outputs)
            if is_strided
            else None
        )
        with b.loop(b.low, b.high) as row, b.loop(0, vectors) as j:
            block = row // at["taps"]
            tap = row % at["taps"]
            x = self.weights + block * at["block"] + tap * at["tap"]
            x = x + j * at["vector"]
            panel_vector, first, size = self._panel_of(j, vectors)
            pitch = size * b.lanes
            preceding_vectors = block * vectors + first
            w = self.packed + preceding_vectors * volume + panel_vector * b.lanes
            w = w + tap * at["depth"] * pitch
            column = j * b.lanes
            mask = self.b.first_lanes(at["width"] - column, "int64")
            with b.loop(0, at["depth"]) as channel:
                source = x + channel * at["input"]
                value = self._load(source, lanes, mask)
                self.b.store(value, w + channel * pitch, 0, None)

    def _panel_of(
        self, vector: Number, vectors: Number
    ) -> tuple[Number, Number, Number]:
        """Return a vector's number in its panel, and the panel's first and size."""
        panel_vector = vector % self.at["vectors"]
        first = vector - panel_vector
        return panel_vector, first, self.b.min(self.at["vectors"], vectors - first)

    def _lane_offsets(self, output: Number, group: Number, group_outputs: int) -> Value:
        """Return the element offsets of a vector's outputs from its first one."""
        b = self.b
        lane_in_group = integers(
            (lane % group_outputs for lane in range(b.lanes)), "int64"
        )
        groups = integers((lane // group_outputs for lane in range(b.lanes)), "int64")
        output_steps = b.splat(self.b.int64(output))
        group_steps = b.splat(self.b.int64(group))
        return b.binary(
            "add",
            b.binary("mul", lane_in_group, output_steps),
            b.binary("mul", groups, group_steps),
        )

    def _load(self, address: Pointer, lane_offsets: Value | None, mask: Mask) -> Value:
        """Load the weights of one input and a vector of outputs."""
        if lane_offsets is None:
            return self.b.load(address, 0, self.dtype, mask)
        kind = MEMORY_TYPES[self.dtype]
        return self.b.gather_at(address, lane_offsets, kind, self.dtype, mask)
