"""How a convolution or input gradient is computed: channels, tiles, order of loops."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from toolkit.backends.numpy.jit.kernels.conv.feed import Channels
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axes
from toolkit.backends.numpy.jit.kernels.conv.tiles import (
    Panel,
    Segment,
    most_rows,
    panels,
    tiles,
    unrolled,
)
from toolkit.definitions.records import record

# A tile with more kinds of edges than this is computed position by position.
MOST_SEGMENTS = 8
# Weights that stay in the first cache beside the images, and in the second.
_FEW, _MANY = 1 << 12, 1 << 18
# Panels that are enough to divide the work by them.
_FEWEST_PARTS = 8
# Multiply-adds that compile in some 30 ms, and how to get there: the share of the rows
# that a tile could have, and up to which length sums are straight code.
_MOST_SIZE = 380
_SHORTER = ((1, 100), (1, 30), (0.7, 30), (0.5, 30), (0.5, 0), (0.3, 0))


@record
class CorrelationPlan:
    """What a kernel depends on, besides its epilogue.

    Attributes:
        dtype: of inputs and weights.
        lanes: of a vector.
        registers: of the processor, for vectors.
        sweeps: the axes of each correlation; together they reach every output.
        taps: the extents of the weights' spatial axes.
        channels: how they are grouped.
        vectors: of a panel of output channels.
        rows: positions that a tile may have, if the registers suffice.
        straight: multiply-adds up to which a segment of a tile has no loop.
        few: whether there are so few images, and no rows of outputs, that only panels
            can be parts of the work.
    """

    dtype: str
    lanes: int
    registers: int
    sweeps: tuple[Axes, ...]
    taps: tuple[int, ...]
    channels: Channels
    vectors: int
    rows: int
    straight: int = 100
    few: bool = False

    def most_rows(self, panel: Panel) -> int:
        """The positions that a tile of a panel may have."""
        return min(self.rows, most_rows(panel.vectors, self.registers))

    @property
    def panels(self) -> list[Panel]:
        """The panels of a block of channels."""
        at = self.channels
        if at.dots:
            return [Panel(0, 1, at.width, at.width * self.lanes)]
        return panels(at.width, self.vectors, self.lanes)

    @property
    def weights(self) -> int:
        """The elements of all weights, with the padding of panels."""
        padded = sum(panel.count * panel.vectors for panel in self.panels) * self.lanes
        return prod(self.taps) * self.channels.blocks * self.channels.depth * padded

    @property
    def is_far(self) -> bool:
        """Whether the first cache has no room for the weights."""
        return self.weights > _FEW and not self.channels.spread

    @property
    def is_packed(self) -> bool:
        """Whether weights in row-major order are stored as they are read."""
        at, whole = self.channels, self.vectors * self.lanes
        return at.blocks == 1 and at.width == whole and not at.dots

    @property
    def cuts_panels(self) -> bool:
        """Whether parts of an image's work are panels: each reads its weights alone.

        Parts that are rows of outputs would all read weights that no cache holds.
        """
        if self.channels.spread or self.channels.blocks > 1:
            return False
        count = sum(panel.count for panel in self.panels)
        is_far = self.weights > _MANY and count >= _FEWEST_PARTS
        return is_far or (self.few and count > 1)

    @property
    def order(self) -> tuple[str, ...]:
        """The loops from the outermost on: what is read again should still be near."""
        if self.cuts_panels:
            return "parts", "panels", "images", "rows"
        if not self.is_far:
            return "images", "rows", "panels"
        if self.weights <= _MANY:
            return "images", "panels", "rows"
        return "panels", "images", "rows"

    @property
    def size(self) -> int:
        """About how many multiply-adds are written out, which is what compiling costs.

        A vector that is added up into one lane, or stored, counts as some.
        """
        total = 0
        for panel, axes in product(self.panels, self.sweeps):
            for tile in tiles(axes[-1], self.most_rows(panel)):
                found = sum(self._steps(panel, part) for part in tile.segments)
                outputs = tile.size * panel.vectors * (3 if self.channels.dots else 1)
                few = len(tile.segments) <= MOST_SEGMENTS
                total += found + outputs if few else panel.vectors
        return total

    def _steps(self, panel: Panel, part: Segment) -> int:
        """The multiply-adds of a segment that are written out."""
        accumulators = (part.last - part.first) * panel.vectors
        steps = (part.high - part.low) * self.channels.depth
        if self.channels.spread or steps * accumulators <= self.straight:
            return steps * accumulators
        written = unrolled(accumulators, panel.vectors, self.registers)
        return (written + steps % written) * accumulators

    def shortened(self) -> CorrelationPlan:
        """The same with less code, if there is too much of it."""
        most = max(map(self.most_rows, self.panels))
        for share, straight in _SHORTER:
            rows = max(4, int(most * share))
            found = replace(self, rows=rows, straight=straight)
            if found.size <= _MOST_SIZE:
                break
        return found
