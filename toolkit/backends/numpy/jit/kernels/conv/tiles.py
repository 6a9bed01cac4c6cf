"""How the work of a kernel is cut into tiles of registers.

For each step of a sum a tile multiplies some scalars with some vectors, and adds to an
accumulator for each pair. What it costs follows from what a core can do in a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from toolkit.backends.numpy.jit.kernels.conv.geometry import Axis
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record

# Two multiply-adds or two loads in a cycle; a result is there after four cycles, a
# vector of weights from the second cache after about two and a half.
_PER_CYCLE, _LATENCY, _FAR = 2, 4, 2.5
# Registers for inputs, where the weights of two steps are in some.
_SPARE = 3


def registers() -> int:
    """The vector registers of the processor."""
    return current().registers


def most_rows(vectors: int, available: int) -> int:
    """The scalars of the largest tile with that many vectors."""
    return (available - 1 - vectors) // vectors


def unrolled(accumulators: int, vectors: int, available: int) -> int:
    """Steps of a sum that are written out in its loop: one, or two.

    The weights of two steps are loaded ahead. Where they do not fit beside a tile, and
    some room to load inputs, all of its accumulators end up in memory.
    """
    return 2 if accumulators + 2 * vectors + _SPARE <= available else 1


def cycles(rows: int, vectors: int) -> float:
    """What one step of a tile takes: multiplying, loading, or waiting."""
    return max(rows * vectors / _PER_CYCLE, (rows + vectors) / _PER_CYCLE, _LATENCY)


def split(extent: int, most: int) -> list[tuple[int, int]]:
    """`extent` in the fewest parts of at most `most`, as equal as possible.

    Returns:
        The sizes, the larger first, and how many parts there are of each.
    """
    parts = -(-extent // most)
    size, larger = divmod(extent, parts) if parts else (0, 0)
    found = (size + 1, larger), (size, parts - larger)
    return [(size, count) for size, count in found if count]


@record
class Panel:
    """Output channels that a tile computes together, as vectors.

    Attributes:
        first: the first channel of the first panel.
        count: how many such panels follow each other.
        vectors: of a panel.
        channels: of a panel; fewer than the lanes of its vectors in the last one.
    """

    first: int
    count: int
    vectors: int
    channels: int

    def live(self, lanes: int) -> list[int]:
        """How many channels each vector has."""
        starts = range(0, self.vectors * lanes, lanes)
        return [min(lanes, self.channels - start) for start in starts]


def panels(width: int, vectors: int, lanes: int) -> list[Panel]:
    """`width` channels as full panels of so many vectors, and the rest."""
    full = vectors * lanes
    count, rest = divmod(width, full)
    found = [Panel(0, count, vectors, full)] if count else []
    if rest:
        found.append(Panel(width - rest, 1, -(-rest // lanes), rest))
    return found


def best_vectors(width: int, lanes: int, rows: Sequence[int], available: int) -> int:
    """The vectors of a panel, for `width` channels and loops over so many rows.

    Of equally quick ones that with the least code, then the narrowest is taken.
    """

    def cost(vectors: int) -> tuple[float, int]:
        found, total = panels(width, vectors, lanes), 0.0
        for panel in found:
            most, far = most_rows(panel.vectors, available), panel.vectors * _FAR
            for size, count in (
                part for extent in rows for part in split(extent, most)
            ):
                steps = max(cycles(size, panel.vectors), far)
                total += panel.count * count * steps
        return total, len(found)

    largest = min(available // 4, -(-width // lanes))
    return min(range(1, largest + 1), key=cost, default=1)


@record
class Segment:
    """Consecutive taps [low, high) that the same rows [first, last) of a tile see."""

    low: int
    high: int
    first: int
    last: int


@record
class Tile:
    """Positions of the innermost axis that are computed together, `count` times.

    Attributes:
        start: the first position.
        size: how many.
        count: how many such tiles follow each other.
        segments: which taps they see.
    """

    start: int
    size: int
    count: int
    segments: tuple[Segment, ...]


def tiles(axis: Axis, most: int) -> Iterator[Tile]:
    """The positions of an axis as tiles of at most `most`, equal ones together."""
    ranges = [axis.reached(tap) for tap in range(axis.taps)]
    # Where all taps meet an input.
    low = max((low for low, _ in ranges), default=0)
    high = min((high for _, high in ranges), default=axis.count)
    start = 0
    for size, count in split(axis.count, most):
        inner = min(max(-((start - low) // size), 0), count)
        outer = min(max((high - start) // size, inner), count)
        yield from _edges(axis, start, size, inner)
        if inner < outer:
            whole = (Segment(0, axis.taps, 0, size),) if axis.taps else ()
            yield Tile(start + inner * size, size, outer - inner, whole)
        yield from _edges(axis, start + outer * size, size, count - outer)
        start += size * count


def _edges(axis: Axis, start: int, size: int, count: int) -> Iterator[Tile]:
    """So many tiles one by one, equal ones together."""
    starts = range(start, start + size * count, size)
    pieces = [(at, _segments(axis, at, size)) for at in starts]
    for segments, equal in groupby(pieces, key=lambda piece: piece[1]):
        group = list(equal)
        yield Tile(group[0][0], size, len(group), segments)


def _segments(axis: Axis, start: int, size: int) -> tuple[Segment, ...]:
    ranges = []
    for tap in range(axis.taps):
        low, high = axis.reached(tap)
        first, last = max(low - start, 0), min(high - start, size)
        ranges.append((first, last) if first < last else (0, 0))
    found, tap = [], 0
    for (first, last), equal in groupby(ranges):
        count = len(list(equal))
        if last:
            found.append(Segment(tap, tap + count, first, last))
        tap += count
    return tuple(found)
