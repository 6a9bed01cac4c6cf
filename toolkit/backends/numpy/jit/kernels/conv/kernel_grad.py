"""Kernel gradients: inputs times gradients, summed over all positions.

A tile holds the gradients of some weights in registers: rows of (tap, input channel)
times vectors of output channels, or the reverse with few outputs. It passes over a
strip of the image that stays in the L1 cache, and is added to memory. Then the next
tile passes over the same strip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.kernel import Kernel, constant_mask
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axis
from toolkit.backends.numpy.jit.kernels.conv.grad_plan import (
    UNROLL,
    KernelGradPlan,
    PositionRange,
    position_ranges,
)
from toolkit.backends.numpy.jit.kernels.conv.input_loader import InputLoader
from toolkit.backends.numpy.jit.kernels.conv.tiles import Panel, split_evenly
from toolkit.backends.numpy.jit.kernels.conv.writer import ConvolutionWriter
from toolkit.definitions.records import record


def emit_kernel_grad(plan: KernelGradPlan) -> Kernel:
    """Emit the function of a kernel gradient.

    The table holds the images, g, the result, the elements from one image and from one
    gradient to the next, the number of images, and the grain. If rows are images, each
    task has a separate partial result.
    """
    builder = Kernel(plan.lanes)
    _KernelGrad(builder, plan).write()
    return builder


@record
class _LoopState:
    """The state of the loops.

    Attributes:
        x, g, w: the addresses in inputs, gradients and the result.
        images: the number of images of the strip.
        strip: the first position of the strip along the first axis.
        ranges: for each axis, the positions that meet an input.
        rows: (tap, channel) of each row of the tile, relative to x.
        position_ranges: over the innermost axis, if rows have several taps.
        panel: the tile's output channels.
    """

    x: Pointer
    g: Pointer
    w: Pointer
    images: Number = 1
    strip: Number = 0
    ranges: tuple[Range, ...] = ()
    rows: tuple[tuple[int, int], ...] = ()
    position_ranges: tuple[PositionRange, ...] | None = None
    panel: Panel | None = None


class _KernelGrad(ConvolutionWriter):
    """Emits the function."""

    def __init__(self, builder: Kernel, plan: KernelGradPlan) -> None:
        super().__init__(builder, plan.dtype)
        self.plan = plan
        self.loader = InputLoader(self, plan.channels)
        x, g, w = (self.address(i) for i in range(3))
        self.start = _LoopState(x, g, w)
        self.image, self.gradient, self.count, self.grain = (
            self.b.entry(i) for i in range(3, 7)
        )

    def write(self) -> None:
        """Emit the loop nest."""
        if self.plan.by_weights:
            for state in self._loop_parts(self.start):
                self._clear_part(state)
                for images in self._images(state, 0, self.count):
                    for strip in self._strips(images):
                        for tile in self._rows(strip):
                            self._tile(tile)
            return
        for images in self._images(
            self._task_result(self.start), self.b.low, self.b.high
        ):
            for strip in self._strips(images):
                for panel in self._panels(strip):
                    for taps in self._taps(panel):
                        for tile in self._rows(taps):
                            self._tile(tile)

    # --- loops ------------------------------------------------------------------------

    def _images(
        self, state: _LoopState, low: Number, high: Number
    ) -> Iterator[_LoopState]:
        """Loop over groups of images."""
        group = self.plan.images
        with self.b.loop(low, high, group) as image:
            remaining = high - image
            yield replace(
                state,
                x=state.x + image * self.image,
                g=state.g + image * self.gradient,
                images=1 if group == 1 else self.b.min(remaining, group),
            )

    def _strips(self, state: _LoopState) -> Iterator[_LoopState]:
        """Loop over strips of the first axis that fit the L1 cache."""
        count = self.plan.axes[0].count
        if self.plan.strip >= count:
            yield state
            return
        with self.b.loop(0, count, self.plan.strip) as first:
            yield replace(state, strip=first)

    def _taps(self, state: _LoopState) -> Iterator[_LoopState]:
        """Loop over the taps of each axis. Few channels allow tiles of several taps."""
        depth = len(state.ranges)
        axis, is_last = self.plan.axes[depth], depth == len(self.plan.axes) - 1
        if is_last and self.plan.taps_of_tile > 1:
            yield from self._tap_tiles(state, axis)
            return
        with self.b.elidable_loop(axis.taps) as tap:
            next_state = self._at_tap(state, depth, tap)
            if is_last:
                yield next_state
            else:
                yield from self._taps(next_state)

    def _at_tap(self, state: _LoopState, depth: int, tap: Number) -> _LoopState:
        """Return the state at one tap of an axis."""
        axis = self.plan.axes[depth]
        below = prod(inner_axis.taps for inner_axis in self.plan.axes[depth + 1 :])
        weights = below * self.plan.channels.depth * self.plan.width
        base = tap * axis.gap + axis.offset
        return replace(
            state,
            x=state.x + base * axis.pitch,
            w=state.w + tap * weights,
            ranges=(*state.ranges, self._reached_positions(axis, base)),
        )

    def _reached_positions(self, axis: Axis, base: Number) -> Range:
        """Return `axis.reached` of the tap that reads input `base` at position 0."""
        if not axis.is_padded:
            return 0, axis.count
        b, last = self.b, axis.stride - 1
        # Division truncates towards zero, but negative results do not matter.
        low = (last - base) // axis.stride
        high = axis.extent + last - base
        high = high // axis.stride
        return b.max(0, low), b.min(axis.count, high)

    def _tap_tiles(self, state: _LoopState, axis: Axis) -> Iterator[_LoopState]:
        """Yield tiles of several taps of the last axis and all channels."""
        channels, first = self.plan.channels.depth, 0
        groups = split_evenly(axis.taps, self.plan.taps_of_tile)
        for size in (size for size, count in groups for _ in range(count)):
            next_state = self._at_tap(state, len(state.ranges), first)
            rows = [(t, c) for t in range(size) for c in range(channels)]
            edges = position_ranges(axis, first, size, channels)
            yield replace(next_state, rows=tuple(rows), position_ranges=edges)
            first += size

    def _rows(self, state: _LoopState) -> Iterator[_LoopState]:
        """Yield tiles of one tap and some channels of each block."""
        at = self.plan.channels
        if state.rows:
            yield state
            return
        first = 0
        for size, count in split_evenly(at.depth, self.plan.rows):
            with self.b.elidable_loop(count) as index:
                channel = index * size + first
                yield replace(
                    state,
                    x=state.x + (0 if at.is_dot_product else channel) * at.pitch,
                    g=state.g + (channel if at.is_dot_product else 0) * at.pitch,
                    w=state.w + channel * self.plan.width,
                    rows=tuple((0, c) for c in range(size)),
                )
            first += size * count

    def _panels(self, state: _LoopState) -> Iterator[_LoopState]:
        """Loop over the panels of all blocks of channels."""
        with self.b.elidable_loop(self.plan.channels.blocks) as block:
            for panel in self.plan.panels:
                with self.b.elidable_loop(panel.count) as index:
                    yield self._at_panel(state, block, panel, index)

    def _at_panel(
        self, state: _LoopState, block: Number, panel: Panel, index: Number
    ) -> _LoopState:
        at = self.plan.channels
        column = index * (panel.vectors * self.b.lanes) + panel.first
        x = state.x + block * (at.depth * at.pitch)
        if at.group_outputs:
            x = x + column // at.group_outputs * at.depth
        column = block * at.width + column
        return replace(
            state,
            x=x + (column if at.is_dot_product else 0),
            g=state.g + (0 if at.is_dot_product else column),
            w=state.w + column,
            panel=panel,
        )

    def _loop_parts(self, state: _LoopState) -> Iterator[_LoopState]:
        """Loop over the rows of the call as parts of the weights: panels of taps."""
        b, plan = self.b, self.plan
        every = sum(panel.count for panel in plan.panels)
        with b.loop(b.low, b.high) as row:
            number = row % every
            quotient: Number = row // every
            block = quotient % plan.channels.blocks
            quotient = quotient // plan.channels.blocks
            taps: list[Number] = []
            for axis in reversed(plan.axes):
                taps.insert(0, quotient % axis.taps)
                quotient = quotient // axis.taps
            for depth, tap in enumerate(taps):
                state = self._at_tap(state, depth, tap)
            first = 0
            for panel in plan.panels:
                # The loop has one iteration if the part is such a panel, else none.
                low = b.max(number, first)
                high = b.min(number + 1, first + panel.count)
                with b.loop(low, high) as index:
                    index = index - first
                    yield self._at_panel(state, block, panel, index)
                first += panel.count

    # --- results ----------------------------------------------------------------------

    def _task_result(self, state: _LoopState) -> _LoopState:
        """Return the state with the task's partial result. Clear it at the start."""
        b, plan = self.b, self.plan
        w = state.w + b.slot * plan.pitch
        with b.when(b.compare("eq", b.slot * self.grain, b.low)):
            self._clear(w, plan.weights)
        return replace(state, w=w)

    def _clear_part(self, state: _LoopState) -> None:
        assert state.panel
        with self.b.loop(0, self.plan.channels.depth) as channel:
            w = state.w + channel * self.plan.width
            self._clear(w, state.panel.channels)

    def _clear(self, address: Pointer, count: int) -> None:
        """Fill with zeros."""
        zero, remainder = self.zero, count % self.b.lanes
        with self.b.loop(0, count - remainder, self.b.lanes) as index:
            self.b.store(zero, address, index, None)
        if remainder:
            self.b.store(
                zero, address, count - remainder, constant_mask(remainder, self.b.lanes)
            )

    # --- one tile ---------------------------------------------------------------------

    def _tile(self, state: _LoopState) -> None:
        """Add the contributions of a strip to the weights of a tile."""
        assert state.panel
        lane_counts = state.panel.lane_counts(self.b.lanes)
        destinations = [
            (state.w + (row * self.plan.width + j * self.b.lanes), count)
            for row in range(len(state.rows))
            for j, count in enumerate(lane_counts)
        ]
        masks = [constant_mask(count, self.b.lanes) for _, count in destinations]
        sums = [
            self.b.load(w, 0, self.dtype, bits)
            for (w, _), bits in zip(destinations, masks, strict=True)
        ]
        if state.images == 1:
            sums = self._positions(state, 0, sums)
        else:
            with self.b.accumulate(0, state.images, 1, sums) as iteration:
                x = state.x + iteration.index * self.image
                g = state.g + iteration.index * self.gradient
                next_state = replace(state, x=x, g=g)
                iteration.next(self._positions(next_state, 0, iteration.values))
            sums = iteration.values
        for value, (w, _), bits in zip(sums, destinations, masks, strict=True):
            self.b.store(value, w, 0, bits)

    def _positions(
        self, state: _LoopState, depth: int, sums: list[Value]
    ) -> list[Value]:
        """Loop over the positions of each axis."""
        axis, pitch = self.plan.axes[depth], self.plan.pitches[depth]
        low, high = state.ranges[depth]
        if depth == len(self.plan.axes) - 1:
            return self._last_axis(state, sums)
        low, high = self._clip_to_strip(state, depth, low, high)
        with self.b.accumulate(low, high, 1, sums) as iteration:
            x = state.x + iteration.index * (axis.stride * axis.pitch)
            next_state = replace(state, x=x, g=state.g + iteration.index * pitch)
            iteration.next(self._positions(next_state, depth + 1, iteration.values))
        return iteration.values

    def _last_axis(self, state: _LoopState, sums: list[Value]) -> list[Value]:
        """Loop over the last axis: several positions per iteration, then one."""
        depth, vectors = len(self.plan.axes) - 1, len(sums) // len(state.rows)
        all_positions = (PositionRange(*state.ranges[depth], 0, len(state.rows)),)
        for positions in (
            all_positions if state.position_ranges is None else state.position_ranges
        ):
            unroll = max(1, UNROLL // (positions.last - positions.first) // vectors)
            if (
                state.position_ranges is not None
                and _position_count(positions) < unroll
            ):
                unroll = 1
            low, high = self._clip_to_strip(state, depth, positions.low, positions.high)
            count = high - low
            remainder = count % unroll
            middle = high - remainder
            row_slice = slice(positions.first * vectors, positions.last * vectors)
            partial_sums = self._unrolled(
                state, positions, low, middle, unroll, sums[row_slice]
            )
            partial_sums = self._unrolled(
                state, positions, middle, high, 1, partial_sums
            )
            sums = [*sums[: row_slice.start], *partial_sums, *sums[row_slice.stop :]]
        return sums

    def _unrolled(
        self,
        state: _LoopState,
        positions: PositionRange,
        low: Number,
        high: Number,
        unroll: int,
        sums: list[Value],
    ) -> list[Value]:
        """Loop over positions [low, high), several per iteration."""
        if low == high:
            return sums
        if (high - low) == unroll:
            return self._step_unrolled(state, positions, low, unroll, sums)
        with self.b.accumulate(low, high, unroll, sums) as iteration:
            iteration.next(
                self._step_unrolled(
                    state, positions, iteration.index, unroll, iteration.values
                )
            )
        return iteration.values

    def _step_unrolled(
        self,
        state: _LoopState,
        positions: PositionRange,
        first: Number,
        unroll: int,
        sums: list[Value],
    ) -> list[Value]:
        """Add several positions, unrolled."""
        axis, pitch = self.plan.axes[-1], self.plan.pitches[-1]
        x = state.x + first * (axis.stride * axis.pitch)
        g = state.g + first * pitch
        for u in range(unroll):
            xu = x + u * (axis.stride * axis.pitch)
            next_state = replace(state, x=xu, g=g + u * pitch)
            sums = self._step(
                next_state, state.rows[positions.first : positions.last], sums
            )
        return sums

    def _clip_to_strip(
        self, state: _LoopState, depth: int, low: Number, high: Number
    ) -> Range:
        """Return the positions of an axis that are in the strip."""
        if depth or state.strip == 0:
            return low, high
        end = state.strip + self.plan.strip
        return self.b.max(low, state.strip), self.b.min(high, end)

    def _step(
        self, state: _LoopState, rows: tuple[tuple[int, int], ...], sums: list[Value]
    ) -> list[Value]:
        """Add one position: scalars or spread inputs of the rows times vectors."""
        assert state.panel
        b, lane_counts, results = self.b, state.panel.lane_counts(self.b.lanes), []
        factors = (
            self._dot_factors if self.plan.channels.is_dot_product else self._products
        )
        for row, pairs in enumerate(factors(state, rows, lane_counts)):
            previous = sums[row * len(lane_counts) : (row + 1) * len(lane_counts)]
            for pair, value in zip(pairs, previous, strict=True):
                results.append(b.intrinsic("fma", *pair, value))
        return results

    def _products(
        self,
        state: _LoopState,
        rows: tuple[tuple[int, int], ...],
        lane_counts: list[int],
    ) -> Iterator[list[tuple[Value, Value]]]:
        """Yield an input and the vectors of gradients for each row."""
        tap_stride = self.plan.axes[-1].gap * self.plan.axes[-1].pitch
        gradients = self._vectors(state.g, lane_counts)
        for t, channel in rows:
            inputs = self.loader.load(state.x + t * tap_stride, channel, lane_counts)
            yield list(zip(inputs, gradients, strict=True))

    def _dot_factors(
        self,
        state: _LoopState,
        rows: tuple[tuple[int, int], ...],
        lane_counts: list[int],
    ) -> Iterator[list[tuple[Value, Value]]]:
        """Yield a gradient and the vectors of inputs for each row."""
        tap_stride = self.plan.axes[-1].gap * self.plan.axes[-1].pitch
        inputs = {
            t: self._vectors(state.x + t * tap_stride, lane_counts) for t in dict(rows)
        }
        for t, channel in rows:
            gradient_address = state.g + channel * self.plan.channels.pitch
            gradient = self.b.splat(self.b.scalar(gradient_address, self.dtype))
            yield [(gradient, vector) for vector in inputs[t]]

    def _vectors(self, address: Pointer, lane_counts: list[int]) -> list[Value]:
        """Load the vectors of a panel."""
        lanes = self.b.lanes
        return [
            self.b.load(address, j * lanes, self.dtype, constant_mask(count, lanes))
            for j, count in enumerate(lane_counts)
        ]


def _position_count(positions: PositionRange) -> int:
    """Return the number of positions of a pass with constant bounds."""
    assert isinstance(positions.low, int) and isinstance(positions.high, int)
    return positions.high - positions.low
