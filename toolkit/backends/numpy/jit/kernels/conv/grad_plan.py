"""How a kernel gradient is computed: its axes, channels, tiles and strips."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from toolkit.backends.numpy.jit.builder import Number
from toolkit.backends.numpy.jit.kernels.conv.feed import Channels
from toolkit.backends.numpy.jit.kernels.conv.geometry import Axes, Axis
from toolkit.backends.numpy.jit.kernels.conv.tiles import Panel, panels
from toolkit.definitions.records import record

# Multiply-adds of an iteration of the innermost loop, and of all that is written out.
UNROLL, _MOST_SIZE = 64, 400


@record
class KernelGradPlan:
    """What a kernel gradient depends on.

    Attributes:
        dtype: of all arrays.
        lanes: of a vector.
        axes: how g sees the images along each spatial axis.
        pitches: elements between neighbours in g along each spatial axis.
        channels: those along `depth` are rows of tiles, those along `width` vectors:
            inputs and outputs, the other way round for dot products.
        vectors: of a panel of output channels.
        rows: the most (tap, input channel) pairs of a tile.
        strip: positions of the first axis that a tile passes over.
        images: those that it passes over, if they are small.
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
        """The channels along vectors, of all blocks."""
        return self.channels.blocks * self.channels.width

    @property
    def taps(self) -> int:
        """All taps."""
        return prod(axis.taps for axis in self.axes)

    @property
    def weights(self) -> int:
        """The elements of the result."""
        return self.taps * self.channels.depth * self.width

    @property
    def pitch(self) -> int:
        """Elements between the results of two tasks."""
        return -(-self.weights // self.lanes) * self.lanes

    @property
    def taps_of_tile(self) -> int:
        """The taps of a tile: several if the channels along rows are few, else one."""
        taps = self.axes[-1].taps
        fitting = min(taps, self.rows // max(1, self.channels.depth))
        short = (n for n in range(fitting, 1, -1) if self._size(n) <= _MOST_SIZE)
        return next(short, 1)

    def _size(self, taps: int) -> int:
        """About how many multiply-adds are written out for tiles of some taps.

        At the edges of a padded axis each number of taps has code of its own.
        """
        tiles = -(-self.axes[-1].taps // taps)
        sums = taps * self.channels.depth * self.vectors
        edges = taps if self.axes[-1].is_padded else 0
        return tiles * (UNROLL + sums * (1 + edges))

    @property
    def panels(self) -> list[Panel]:
        """The panels of a block of channels."""
        return panels(self.channels.width, self.vectors, self.lanes)

    @property
    def parts(self) -> int:
        """Into how many parts the weights divide: panels of taps."""
        count = sum(panel.count for panel in self.panels)
        return self.channels.blocks * self.taps * count


@record
class Pass:
    """Positions [low, high) of the innermost axis for the rows [first, last) of a tile.

    The positions are names or digits.
    """

    low: Number
    high: Number
    first: int
    last: int


def passes(axis: Axis, first: int, taps: int, channels: int) -> tuple[Pass, ...]:
    """The positions at which the same of a tile's taps meet an input.

    Args:
        axis: the innermost one.
        first, taps: the tile's first tap, and how many it has.
        channels: rows of each tap.
    """
    ranges = [axis.reached(first + tap) for tap in range(taps)]
    ends = sorted({end for reached in ranges for end in reached})
    found = []
    for low, high in pairwise(ends):
        seen = [t for t, (a, b) in enumerate(ranges) if a <= low and high <= b]
        if seen:
            rows = seen[0] * channels, (seen[-1] + 1) * channels
            found.append(Pass(low, high, *rows))
    return tuple(found)
