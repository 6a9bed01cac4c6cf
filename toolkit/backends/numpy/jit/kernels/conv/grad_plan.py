"""The plan of a kernel gradient: its axes, channels, tiles and strips."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from toolkit.backends.numpy.jit.builder import Number
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axes, Axis
from toolkit.backends.numpy.jit.kernels.conv.input_loader import Channels
from toolkit.backends.numpy.jit.kernels.conv.tiles import Panel, split_panels
from toolkit.definitions.records import record

# The multiply-adds of an innermost iteration, and the most that are unrolled in all.
UNROLL, _MAX_UNROLLED = 64, 400


@record
class KernelGradPlan:
    """The properties that a kernel gradient depends on.

    Attributes:
        dtype: of all arrays.
        lanes: of a vector.
        axes: the map from gradients to inputs along each spatial axis.
        pitches: the strides of g in elements along each spatial axis.
        channels: inputs along `depth` are rows of tiles, outputs along `width` are
        vectors. For dot products it is the reverse.
        vectors: the vectors of output channels in a panel.
        rows: the most (tap, input channel) pairs of a tile.
        strip: the positions of the first axis per pass of a tile.
        images: the images per pass, if they are small.
        by_weights: whether a row of the call is a part of the weights, not an image.
    """

    dtype: str
    lanes: int
    axes: Axes
    pitches: tuple[int, ...]
    channels: Channels
    vectors: int
    rows: int
    strip: int
    images: int
    by_weights: bool

    @property
    def width(self) -> int:
        """Return the channels along vectors, of all blocks."""
        return self.channels.blocks * self.channels.width

    @property
    def taps(self) -> int:
        """Return the number of all taps."""
        return prod(axis.taps for axis in self.axes)

    @property
    def weights(self) -> int:
        """Return the number of elements of the result."""
        return self.taps * self.channels.depth * self.width

    @property
    def pitch(self) -> int:
        """Return the elements from one task's result to the next."""
        return -(-self.weights // self.lanes) * self.lanes

    @property
    def taps_of_tile(self) -> int:
        """Return the taps of a tile: several if it has few channels, else one."""
        taps = self.axes[-1].taps
        fitting = min(taps, self.rows // max(1, self.channels.depth))
        short_counts = (
            n for n in range(fitting, 1, -1) if self._size(n) <= _MAX_UNROLLED
        )
        return next(short_counts, 1)

    def _size(self, taps: int) -> int:
        """Return the approximate unrolled multiply-adds for tiles of some taps.

        At the edges of a padded axis each number of taps has separate code.
        """
        tiles = -(-self.axes[-1].taps // taps)
        sums = taps * self.channels.depth * self.vectors
        edges = taps if self.axes[-1].is_padded else 0
        return tiles * (UNROLL + sums * (1 + edges))

    @property
    def panels(self) -> list[Panel]:
        """Return the panels of a block of channels."""
        return split_panels(self.channels.width, self.vectors, self.lanes)

    @property
    def part_count(self) -> int:
        """Return the number of parts of the weights, which are panels of taps."""
        count = sum(panel.count for panel in self.panels)
        return self.channels.blocks * self.taps * count


@record
class PositionRange:
    """Positions [low, high) of the innermost axis for the rows [first, last) of a tile.

    The positions are values or constants.
    """

    low: Number
    high: Number
    first: int
    last: int


def position_ranges(
    axis: Axis, first: int, taps: int, channels: int
) -> tuple[PositionRange, ...]:
    """Return the ranges of positions at which the same taps of a tile meet an input.

    Args:
        axis: the innermost axis.
        first, taps: the tile's first tap, and the number of its taps.
        channels: the rows of each tap.
    """
    ranges = [axis.reached_positions(first + tap) for tap in range(taps)]
    ends = sorted({end for reached in ranges for end in reached})
    result = []
    for low, high in pairwise(ends):
        visible = [t for t, (a, b) in enumerate(ranges) if a <= low and high <= b]
        if visible:
            rows = visible[0] * channels, (visible[-1] + 1) * channels
            result.append(PositionRange(low, high, *rows))
    return tuple(result)
