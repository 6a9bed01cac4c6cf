"""Register blocking of a kernel.

In each step of a sum, a tile multiplies some scalars with some vectors, and adds to an
accumulator for each pair. Its cost follows from the throughput of a core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from toolkit.backends.numpy.jit.kernels.conv.geometry import Axis
from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record

# Multiply-adds or loads per cycle, the latency of a multiply-add in cycles, and the
# cycles of a load of weights from the L2 cache.
_OPS_PER_CYCLE, _LATENCY_CYCLES, _L2_LOAD_CYCLES = 2, 4, 2.5
# Registers for inputs, in addition to the weights of two steps.
_INPUT_REGISTERS = 3


def register_count() -> int:
    """Return the number of vector registers of the processor."""
    return current().registers


def max_rows(vectors: int, available: int) -> int:
    """Return the scalars of the largest tile with `vectors` vectors."""
    return (available - 1 - vectors) // vectors


def unroll_steps(accumulators: int, vectors: int, available: int) -> int:
    """Return the unrolled steps of a loop over a sum: one, or two.

    The weights of two steps are loaded ahead. If they do not fit the registers with the
    tile and some inputs, all accumulators spill to memory.
    """
    return 2 if accumulators + 2 * vectors + _INPUT_REGISTERS <= available else 1


def step_cycles(rows: int, vectors: int) -> float:
    """Return the cycles of one step of a tile: multiply-adds, loads or latency."""
    return max(
        rows * vectors / _OPS_PER_CYCLE,
        (rows + vectors) / _OPS_PER_CYCLE,
        _LATENCY_CYCLES,
    )


def split_evenly(extent: int, limit: int) -> list[tuple[int, int]]:
    """Split `extent` into the fewest parts of at most `limit`, as equal as possible.

    Returns:
        The sizes, the larger first, and the number of parts of each.
    """
    part_count = -(-extent // limit)
    size, larger = divmod(extent, part_count) if part_count else (0, 0)
    groups = (size + 1, larger), (size, part_count - larger)
    return [(size, count) for size, count in groups if count]


@record
class Panel:
    """Output channels that a tile computes together, as vectors.

    Attributes:
        first: the first channel of the first panel.
        count: the number of consecutive panels of this kind.
        vectors: the vectors of a panel.
        channels: the channels of a panel. The last panel has fewer channels than lanes.
    """

    first: int
    count: int
    vectors: int
    channels: int

    def lane_counts(self, lanes: int) -> list[int]:
        """Return the number of channels of each vector."""
        starts = range(0, self.vectors * lanes, lanes)
        return [min(lanes, self.channels - start) for start in starts]


def split_panels(width: int, vectors: int, lanes: int) -> list[Panel]:
    """Return `width` channels as full panels of `vectors` vectors, and a remainder."""
    full = vectors * lanes
    count, remainder = divmod(width, full)
    result = [Panel(0, count, vectors, full)] if count else []
    if remainder:
        result.append(Panel(width - remainder, 1, -(-remainder // lanes), remainder))
    return result


def best_vectors(width: int, lanes: int, rows: Sequence[int], available: int) -> int:
    """Return the best vectors of a panel, for `width` channels and loops over rows.

    Of equally fast numbers it returns the one with the least code, then the smallest.
    """

    def cost(vectors: int) -> tuple[float, int]:
        panel_list, total = split_panels(width, vectors, lanes), 0.0
        for panel in panel_list:
            row_limit, load_cycles = (
                max_rows(panel.vectors, available),
                panel.vectors * _L2_LOAD_CYCLES,
            )
            for size, count in (
                group for extent in rows for group in split_evenly(extent, row_limit)
            ):
                steps = max(step_cycles(size, panel.vectors), load_cycles)
                total += panel.count * count * steps
        return total, len(panel_list)

    largest = min(available // 4, -(-width // lanes))
    return min(range(1, largest + 1), key=cost, default=1)


@record
class Segment:
    """Consecutive taps [low, high) that the same rows [first, last) of a tile read."""

    low: int
    high: int
    first: int
    last: int


@record
class Tile:
    """Positions of the innermost axis that are computed together, `count` times.

    Attributes:
        start: the first position.
        size: the number of positions.
        count: the number of consecutive tiles of this kind.
        segments: the taps of the positions.
    """

    start: int
    size: int
    count: int
    segments: tuple[Segment, ...]


def split_tiles(axis: Axis, limit: int) -> Iterator[Tile]:
    """Yield the positions of an axis as tiles of at most `limit`, grouped if equal."""
    ranges = [axis.reached_positions(tap) for tap in range(axis.taps)]
    # The range in which all taps meet an input.
    low = max((low for low, _ in ranges), default=0)
    high = min((high for _, high in ranges), default=axis.count)
    start = 0
    for size, count in split_evenly(axis.count, limit):
        inner = min(max(-((start - low) // size), 0), count)
        outer = min(max((high - start) // size, inner), count)
        yield from _edges(axis, start, size, inner)
        if inner < outer:
            segments = (Segment(0, axis.taps, 0, size),) if axis.taps else ()
            yield Tile(start + inner * size, size, outer - inner, segments)
        yield from _edges(axis, start + outer * size, size, count - outer)
        start += size * count


def _edges(axis: Axis, start: int, size: int, count: int) -> Iterator[Tile]:
    """Yield `count` tiles, equal tiles together."""
    starts = range(start, start + size * count, size)
    pieces = [(at, _segments(axis, at, size)) for at in starts]
    for segments, equal in groupby(pieces, key=lambda piece: piece[1]):
        group = list(equal)
        yield Tile(group[0][0], size, len(group), segments)


def _segments(axis: Axis, start: int, size: int) -> tuple[Segment, ...]:
    ranges = []
    for tap in range(axis.taps):
        low, high = axis.reached_positions(tap)
        first, last = max(low - start, 0), min(high - start, size)
        ranges.append((first, last) if first < last else (0, 0))
    segments, tap = [], 0
    for (first, last), equal in groupby(ranges):
        count = len(list(equal))
        if last:
            segments.append(Segment(tap, tap + count, first, last))
        tap += count
    return tuple(segments)
