"""The plan of a convolution or input gradient: channels, tiles, order of loops."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from toolkit.backends.numpy.jit.kernels.conv.geometry import Axes
from toolkit.backends.numpy.jit.kernels.conv.input_loader import Channels
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    Panel,
    Segment,
    max_rows,
    split_panels,
    split_tiles,
    unroll_steps,
)
from toolkit.definitions.records import record

# A tile with more kinds of edges than this is computed position by position.
MAX_SEGMENTS = 8
# The most weights that stay in the L1 cache with the images, and in the L2 cache.
_L1_WEIGHTS, _L2_WEIGHTS = 1 << 12, 1 << 18
# The least panels for a partition by panels.
_MIN_PANELS = 8
# The most unrolled multiply-adds, which compile in about 30 ms. To stay below, these
# pairs reduce the fraction of a tile's rows, and the longest unrolled sum.
_MAX_UNROLLED = 380
_REDUCTIONS = ((1, 100), (1, 30), (0.7, 30), (0.5, 30), (0.5, 0), (0.3, 0))


@record
class CorrelationPlan:
    """The properties that a kernel depends on, except for its epilogue.

    Attributes:
        dtype: of inputs and weights.
        lanes: of a vector.
        registers: the vector registers of the processor.
        sweeps: the axes of each correlation. Together they cover all outputs.
        taps: the extents of the weights' spatial axes.
        channels: their blocks.
        vectors: the vectors of output channels in a panel.
        rows: the most positions of a tile, if the registers suffice.
        max_unrolled: the most multiply-adds of a segment without a loop.
        has_few_images: whether only panels can be parts of the work, because there are
            few images
        and no rows of outputs.
    """

    dtype: str
    lanes: int
    registers: int
    sweeps: tuple[Axes, ...]
    taps: tuple[int, ...]
    channels: Channels
    vectors: int
    rows: int
    max_unrolled: int = 100
    has_few_images: bool = False

    def max_rows(self, panel: Panel) -> int:
        """Return the most positions of a panel's tile."""
        return min(self.rows, max_rows(panel.vectors, self.registers))

    @property
    def panels(self) -> list[Panel]:
        """Return the panels of a block of channels."""
        at = self.channels
        if at.is_dot_product:
            return [Panel(0, 1, at.width, at.width * self.lanes)]
        return split_panels(at.width, self.vectors, self.lanes)

    @property
    def weights(self) -> int:
        """Return the number of all weights, with the padding of panels."""
        padded = sum(panel.count * panel.vectors for panel in self.panels) * self.lanes
        return prod(self.taps) * self.channels.blocks * self.channels.depth * padded

    @property
    def is_far(self) -> bool:
        """Return whether the weights exceed the L1 cache."""
        return self.weights > _L1_WEIGHTS and not self.channels.group_outputs

    @property
    def is_packed(self) -> bool:
        """Return whether row-major weights are already in the order of access."""
        at, panel_width = self.channels, self.vectors * self.lanes
        return at.blocks == 1 and at.width == panel_width and not at.is_dot_product

    @property
    def is_split_by_panels(self) -> bool:
        """Return whether parts of an image are panels, with separate weights.

        Parts that are rows of outputs would all read weights that exceed the caches.
        """
        if self.channels.group_outputs or self.channels.blocks > 1:
            return False
        count = sum(panel.count for panel in self.panels)
        is_far = self.weights > _L2_WEIGHTS and count >= _MIN_PANELS
        return is_far or (self.has_few_images and count > 1)

    @property
    def order(self) -> tuple[str, ...]:
        """Return the loops from the outermost on, for reuse in the caches."""
        if self.is_split_by_panels:
            return "parts", "panels", "images", "rows"
        if not self.is_far:
            return "images", "rows", "panels"
        if self.weights <= _L2_WEIGHTS:
            return "images", "panels", "rows"
        return "panels", "images", "rows"

    @property
    def size(self) -> int:
        """Return the approximate unrolled multiply-adds: the compile time.

        A vector that is reduced to one lane, or stored, counts as several.
        """
        total = 0
        for panel, axes in product(self.panels, self.sweeps):
            for tile in split_tiles(axes[-1], self.max_rows(panel)):
                steps = sum(self._steps(panel, segment) for segment in tile.segments)
                outputs = (
                    tile.size
                    * panel.vectors
                    * (3 if self.channels.is_dot_product else 1)
                )
                is_unrolled = len(tile.segments) <= MAX_SEGMENTS
                total += steps + outputs if is_unrolled else panel.vectors
        return total

    def _steps(self, panel: Panel, segment: Segment) -> int:
        """Return the unrolled multiply-adds of a segment."""
        accumulators = (segment.last - segment.first) * panel.vectors
        steps = (segment.high - segment.low) * self.channels.depth
        if self.channels.group_outputs or steps * accumulators <= self.max_unrolled:
            return steps * accumulators
        step_count = unroll_steps(accumulators, panel.vectors, self.registers)
        return (step_count + steps % step_count) * accumulators

    def shortened(self) -> CorrelationPlan:
        """Return the plan with less unrolled code, if there is too much of it."""
        limit = max(map(self.max_rows, self.panels))
        for share, max_unrolled in _REDUCTIONS:
            rows = max(4, int(limit * share))
            plan = replace(self, rows=rows, max_unrolled=max_unrolled)
            if plan.size <= _MAX_UNROLLED:
                break
        return plan
