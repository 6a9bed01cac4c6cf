"""Convolutions and their input gradients: loops over register blocks.

For each image, panel of output channels and row of outputs, a tile of neighbouring
outputs is summed in registers over all taps and input channels. Then it goes through
the epilogue. Taps in the padding are skipped: on the outer axes by loop bounds, on the
innermost axis by tiles with known edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from toolkit.backends.numpy.jit.builder import Number, Pointer, Range, Value
from toolkit.backends.numpy.jit.epilogue import BodyStructure, Epilogue
from toolkit.backends.numpy.jit.kernel import Kernel, constant_mask
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axes, Axis
from toolkit.backends.numpy.jit.kernels.conv.plan import MAX_SEGMENTS, CorrelationPlan
from toolkit.backends.numpy.jit.kernels.conv.sums import TapSums
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    Panel,
    Segment,
    Tile,
    split_tiles,
)
from toolkit.backends.numpy.jit.kernels.conv.writer import ConvolutionWriter
from toolkit.definitions.records import record


def emit_correlation(body: BodyStructure, plan: CorrelationPlan) -> Kernel:
    """Emit the function of a convolution or input gradient and its epilogue.

    The table holds the operands of the body, the images, the packed weights, and three
    numbers: the strips of an image, the elements from one image to the next, and the
    number of images. A strip is a range of an image's rows or, if the plan cuts panels,
    a range of panels. Rows of the call are the strips of an image in the first case,
    the images of a strip in the second.
    """
    builder = Kernel(plan.lanes)
    _Correlation(builder, body, plan).write()
    return builder


@record
class _LoopState:
    """The state of the loops.

    Attributes:
        x, w: the addresses of the inputs and weights of the position and panel.
        element: the index of the output pixel, computed up to the current axis.
        column: the index of the panel's first output channel.
        strip: the strip of the image's rows.
        panel: the panel.
        inner: the innermost axis.
        visible_taps: for each outer axis, the taps [low, high) that meet an input.
    """

    x: Pointer
    w: Pointer
    element: Number = 0
    column: Number = 0
    strip: Number = 0
    panel: Panel | None = None
    inner: Axis | None = None
    visible_taps: tuple[tuple[Axis, Number, Number], ...] = ()


class _Correlation(ConvolutionWriter):
    """Emits one function."""

    def __init__(
        self, builder: Kernel, body: BodyStructure, plan: CorrelationPlan
    ) -> None:
        super().__init__(builder, plan.dtype)
        self.plan = plan
        count = len(body.body.inputs) + len(body.body.outputs)
        *bases, x, w = (self.address(i) for i in range(count + 2))
        self.epilogue = Epilogue(body.body, builder, bases)
        self.start = _LoopState(x, w)
        self.strips = self.b.entry(count + 2)
        self.image = self.b.entry(count + 3)
        self.images = self.b.entry(count + 4)

    def write(self) -> None:
        """Emit the loop nest."""
        self._nest(self.plan.order, self.start)

    def _nest(self, order: tuple[str, ...], state: _LoopState) -> None:
        if not order:
            self._tiles(state)
            return
        loops = {
            "parts": self._loop_parts,
            "images": self._part_images
            if self.plan.is_split_by_panels
            else self._images,
            "panels": self._panels,
            "rows": self._rows,
        }
        for inner in loops[order[0]](state):
            self._nest(order[1:], inner)

    # --- loops ------------------------------------------------------------------------

    def _images(self, state: _LoopState) -> Iterator[_LoopState]:
        b = self.b
        with b.loop(b.low, b.high) as row:
            number = row // self.strips
            start = number * self.image
            x = state.x + start
            strip = row % self.strips
            yield replace(state, x=x, element=number, strip=strip)

    def _loop_parts(self, state: _LoopState) -> Iterator[_LoopState]:
        """Loop over the parts of the panels."""
        b = self.b
        with b.loop(b.low // self.images, b.ceil_div(b.high, self.images)) as strip:
            yield replace(state, strip=strip)

    def _part_images(self, state: _LoopState) -> Iterator[_LoopState]:
        """Loop over the images of a part."""
        b, first = self.b, state.strip * self.images
        low, high = b.max(0, b.low - first), b.min(self.images, b.high - first)
        with b.loop(low, high) as number:
            yield replace(state, x=state.x + number * self.image, element=number)

    def _each_panel(self, state: _LoopState, first: int, count: int) -> Any:
        """Return a loop over `count` panels, or over the panels of the part.

        Args:
            state: the state of the loops.
            first: the number of panels before these.
            count: the number of panels.
        """
        if not self.plan.is_split_by_panels:
            return self.b.elidable_loop(count)
        b, total = self.b, sum(panel.count for panel in self.plan.panels)
        ends = state.strip, state.strip + 1
        low, high = (end * total // self.strips - first for end in ends)
        return b.loop(b.max(0, low), b.min(count, high))

    def _panels(self, state: _LoopState) -> Iterator[_LoopState]:
        """Loop over the panels of all blocks of channels."""
        at, lanes = self.plan.channels, self.plan.lanes
        depth = prod(self.plan.taps) * at.depth
        weights = self.plan.weights // at.blocks
        with self.b.elidable_loop(at.blocks) as block:
            first = 0
            for panel in self.plan.panels:
                with self._each_panel(state, first, panel.count) as index:
                    column = index * (panel.vectors * lanes) + panel.first
                    x = state.x + block * (at.depth * at.pitch)
                    w = state.w + block * weights
                    yield replace(
                        state,
                        x=x + self._inputs(column),
                        w=w + column * depth,
                        column=block * at.width + column,
                        panel=panel,
                    )
                first += panel.count

    def _inputs(self, column: Number) -> Number:
        """Return the elements before the first input of a column."""
        at = self.plan.channels
        if not at.group_outputs:
            return 0
        group = column // at.group_outputs
        return group * at.depth

    def _rows(self, state: _LoopState) -> Iterator[_LoopState]:
        """Loop over the positions of the outer axes of each correlation."""
        strips = 1 if self.plan.is_split_by_panels else self.strips
        for axes in self.plan.sweeps:
            for outer in self._positions(axes[:-1], state, strips):
                yield replace(outer, inner=axes[-1])

    def _positions(
        self, axes: Axes, state: _LoopState, strips: Number
    ) -> Iterator[_LoopState]:
        if not axes:
            yield state
            return
        b, axis = self.b, axes[0]
        low: Number = 0
        high: Number = axis.count
        if strips != 1:
            # The rows of the first axis are divided into strips.
            ends = state.strip, state.strip + 1
            low, high = (end * axis.count // strips for end in ends)
        with b.loop(low, high) as position:
            yield from self._positions(
                axes[1:], self._state_at(state, axis, position), 1
            )

    def _state_at(self, state: _LoopState, axis: Axis, position: Number) -> _LoopState:
        """Return the state at a position of one more axis."""
        base = position * axis.stride + axis.offset
        return replace(
            state,
            x=state.x + base * axis.pitch,
            element=self._output(state, axis, position),
            visible_taps=(*state.visible_taps, (axis, *self._visible_taps(axis, base))),
        )

    def _output(self, state: _LoopState, axis: Axis, position: Number) -> Number:
        """Return the index of an output pixel along one more axis."""
        output = position * axis.step + axis.start
        return state.element * axis.out + output

    def _visible_taps(self, axis: Axis, base: Number) -> Range:
        """Return `axis.visible` of a position whose first tap is at input `base`."""
        if not axis.is_padded:
            return 0, axis.taps
        b = self.b
        # Division truncates towards zero, but negative results do not matter.
        low = (axis.gap - 1 - base) // axis.gap
        last = axis.extent + axis.gap - 1 - base
        return b.max(0, low), b.min(axis.taps, last // axis.gap)

    # --- tiles ------------------------------------------------------------------------

    def _tiles(self, state: _LoopState) -> None:
        """Compute all positions of the innermost axis."""
        panel, axis = state.panel, state.inner
        assert panel and axis
        for tile in split_tiles(axis, self.plan.max_rows(panel)):
            if len(tile.segments) > MAX_SEGMENTS:
                self._compute_single_positions(tile, axis, state)
                continue
            with self.b.elidable_loop(tile.count) as index:
                first = index * tile.size + tile.start
                base = first * axis.stride + axis.offset
                x = state.x + base * axis.pitch
                element = self._output(state, axis, first)
                self._tile(tile, axis, replace(state, x=x, element=element))

    def _compute_single_positions(
        self, tile: Tile, axis: Axis, state: _LoopState
    ) -> None:
        """Compute a tile with many kinds of edges by position and tap."""
        single = replace(axis, taps=1, first=0)
        pixel = Tile(0, 1, 1, (Segment(0, 1, 0, 1),))
        with self.b.loop(tile.start, tile.start + tile.size) as position:
            self._tile(pixel, single, self._state_at(state, axis, position))

    def _tile(self, tile: Tile, axis: Axis, state: _LoopState) -> None:
        """Sum a tile over all taps, and apply the epilogue."""
        b, panel = self.b, state.panel
        assert panel
        sums = [self.zero] * (tile.size * panel.vectors)
        pitch = self.plan.channels.blocks * self.plan.channels.width
        start = state.element * pitch + state.column
        dots = self.plan.channels.is_dot_product
        lane_counts = [panel.vectors] if dots else panel.lane_counts(b.lanes)
        if self.epilogue.reads_elements:
            for row in range(tile.size):
                element = start + row * axis.step * pitch
                self.epilogue.prefetch(element, sum(lane_counts))
        sums = self._taps(tile, axis, state, sums)
        if dots:
            rows = range(0, len(sums), panel.vectors)
            sums = [self._total(sums[k : k + panel.vectors]) for k in rows]
        for j, count in enumerate(lane_counts):
            column = state.column + j * b.lanes
            bits = constant_mask(count, b.lanes)
            loaded = self.epilogue.columns(column, bits)
            for row in range(tile.size):
                steps = row * axis.step * pitch + j * b.lanes
                element = start + steps
                value = sums[row * len(lane_counts) + j]
                self.epilogue.apply(value, element, column, bits, loaded)

    def _total(self, sums: list[Value]) -> Value:
        """Return dot products: the reduced vectors, as the lanes of one vector."""
        b = self.b
        result = b.filled(0.0, self.dtype)
        for lane, value in enumerate(sums):
            total = self.total(value)
            result = b.let(
                f"insertelement {result.type} {result.text}, "
                f"{total.type} {total.text}, i64 {lane}",
                self.dtype,
                b.lanes,
            )
        return result

    def _taps(
        self,
        tile: Tile,
        axis: Axis,
        state: _LoopState,
        sums: list[Value],
        depth: int = 0,
    ) -> list[Value]:
        """Loop over visible taps of outer axes, then add taps of the tile's axis."""
        panel = state.panel
        assert panel
        below = prod(self.plan.taps[depth + 1 :])
        size = below * self.plan.channels.depth * panel.vectors * self.plan.lanes
        if depth < len(state.visible_taps):
            outer, low, high = state.visible_taps[depth]
            w = state.w + outer.first * size
            with self.b.accumulate(low, high, 1, sums) as iteration:
                next_state = replace(
                    state,
                    x=state.x + iteration.index * (outer.gap * outer.pitch),
                    w=w + iteration.index * (outer.every * size),
                )
                iteration.next(
                    self._taps(tile, axis, next_state, iteration.values, depth + 1)
                )
            return iteration.values
        w = state.w + axis.first * size
        plan = self.plan
        inner = TapSums(
            self, plan.channels, panel, axis, plan.max_unrolled, plan.is_far
        )
        for segment in tile.segments:
            sums = inner.add_segment(segment, state.x, w, sums)
        return sums
