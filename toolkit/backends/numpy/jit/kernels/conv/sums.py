"""The innermost loops of a convolution: adding taps to a register block."""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Pointer, Value
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axis
from toolkit.backends.numpy.jit.kernels.conv.input_loader import Channels, InputLoader
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    Panel,
    Segment,
    register_count,
    unroll_steps,
)
from toolkit.backends.numpy.jit.kernels.conv.writer import ConvolutionWriter

# The prefetch distance of weights in bytes. Hardware prefetchers stop at page ends.
_PREFETCH_BYTES = 3072


class TapSums(ConvolutionWriter):
    """Adds inputs times weights to tiles of a panel's outputs.

    The weights of a panel are stored by tap and channel, a row of vectors for each,
    which is the order of access. For dot products, they are stored by output.

    Args:
        writer: of the function.
        channels, panel: the input channels, and the panel of output channels.
        axis: the innermost axis.
        max_unrolled: the most multiply-adds of a segment without a loop.
        is_far: whether the weights exceed the L1 cache.
    """

    tap: int
    pixel: int
    row: int
    vector: int

    def __init__(
        self,
        writer: ConvolutionWriter,
        channels: Channels,
        panel: Panel,
        axis: Axis,
        max_unrolled: int = 100,
        is_far: bool = False,
    ) -> None:
        super().__init__(writer.b, writer.dtype)
        self.prefetch_elements: int = (
            is_far * _PREFETCH_BYTES // dtypes.itemsize(writer.dtype)
        )
        self.max_unrolled = max_unrolled
        self.loader: InputLoader = InputLoader(writer, channels)
        self.depth: int = channels.depth
        self.lane_counts: list[int] = panel.lane_counts(self.b.lanes)
        # Elements from one tap and one pixel to the next.
        self.tap, self.pixel = axis.gap * axis.pitch, axis.stride * axis.pitch
        # Elements from the weights of one tap, channel and vector to the next.
        lanes, vectors = self.b.lanes, panel.vectors
        self.every: int = axis.every * self.depth * vectors * lanes
        self.row, self.vector = vectors * lanes, lanes
        if channels.is_dot_product:
            self.row, self.vector = lanes, self.depth * lanes
        dense_strides = self.depth * channels.pitch, self.depth * self.row
        self.is_dense: bool = (self.tap, self.every) == dense_strides

    def add_segment(
        self, segment: Segment, x: Pointer, w: Pointer, sums: list[Value]
    ) -> list[Value]:
        """Return the sums of a tile plus a segment's taps of the rows that they meet.

        Args:
            segment: the range of taps, and of rows of the tile.
            x: the address of the input that the first row's first tap meets.
            w: the address of the first tap's weights.
            sums: row by row, the vectors of the panel.
        """
        vectors, taps = len(self.lane_counts), segment.high - segment.low
        x = x + (segment.low * self.tap + segment.first * self.pixel)
        w = w + segment.low * self.every
        row_slice = slice(segment.first * vectors, segment.last * vectors)
        partial_sums = sums[row_slice]
        if (
            self.loader.span
            or taps * self.depth * len(partial_sums) <= self.max_unrolled
        ):
            for tap in range(taps):
                xt, wt = x + tap * self.tap, w + tap * self.every
                partial_sums = self._channels(xt, wt, partial_sums)
        elif self.is_dense:
            partial_sums = self._loop(x, w, taps * self.depth, partial_sums)
        else:
            with self.b.accumulate(0, taps, 1, partial_sums) as iteration:
                xt = x + iteration.index * self.tap
                wt = w + iteration.index * self.every
                iteration.next(self._loop(xt, wt, self.depth, iteration.values))
            partial_sums = iteration.values
        return [*sums[: row_slice.start], *partial_sums, *sums[row_slice.stop :]]

    def _channels(self, x: Pointer, w: Pointer, sums: list[Value]) -> list[Value]:
        """Add all channels of one tap, unrolled."""
        for channel in range(self.depth):
            sums = self._step(x, w + channel * self.row, channel, sums)
        return sums

    def _loop(
        self, x: Pointer, w: Pointer, depth: int, sums: list[Value]
    ) -> list[Value]:
        """Add `depth` channels that are contiguous in memory."""
        steps = unroll_steps(len(sums), len(self.lane_counts), register_count())
        full = depth - depth % steps
        with self.b.accumulate(0, full, steps, sums) as iteration:
            xt = x + iteration.index * self.loader.channels.pitch
            wt = w + iteration.index * self.row
            sums = iteration.values
            for u in range(steps):
                sums = self._step(xt, wt + u * self.row, u, sums)
            iteration.next(sums)
        sums = iteration.values
        for channel in range(full, depth):
            sums = self._step(x, w + channel * self.row, channel, sums)
        return sums

    def _step(
        self, x: Pointer, w: Pointer, channel: int, sums: list[Value]
    ) -> list[Value]:
        """Add one channel: a pixel's input for each row times a row of weights."""
        b, vectors = self.b, len(self.lane_counts)
        if self.prefetch_elements:
            for j in range(vectors):
                b.prefetch(w + (self.prefetch_elements + j * self.vector))
        weights = [
            self.b.load(w, j * self.vector, self.dtype, None) for j in range(vectors)
        ]
        results = []
        for row in range(len(sums) // vectors):
            inputs = self.loader.load(x + row * self.pixel, channel, self.lane_counts)
            previous = sums[row * vectors : (row + 1) * vectors]
            for pair in zip(inputs, weights, previous, strict=True):
                results.append(b.intrinsic("fma", *pair))
        return results
