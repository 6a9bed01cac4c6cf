"""Allocation in an arena: rectangles of steps by bytes that do not overlap."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np


class Rectangle(NamedTuple):
    """Bytes in use from one step to another, inclusive."""

    first: int
    last: int
    extent: int


def pack_lowest(rectangles: Sequence[Rectangle]) -> tuple[int, list[int]]:
    """Allocate rectangles in the given order, each at the lowest free offset.

    Each is compared with all earlier ones: the time is quadratic in their number.

    Returns:
        The bytes in total, and the offsets in the order of the rectangles.
    """
    # The allocated rectangles, sorted by offset: offset, end, first, last.
    rows = np.zeros((4, len(rectangles)), np.int64)
    size, offsets = 0, []
    for count, (first, last, extent) in enumerate(rectangles):
        starts, ends, begins, finishes = rows[:, :count]
        overlaps = (begins <= last) & (finishes >= first)
        offset = _lowest_gap(starts[overlaps], ends[overlaps], extent)
        offsets.append(offset)
        size = max(size, offset + extent)
        index = int(np.searchsorted(starts, offset, "right"))
        rows[:, index + 1 : count + 1] = rows[:, index:count].copy()
        rows[:, index] = offset, offset + extent, first, last
    return size, offsets


def _lowest_gap(starts: np.ndarray, ends: np.ndarray, extent: int) -> int:
    """Return the lowest offset with room between sorted ranges."""
    if not len(starts):
        return 0
    occupied = np.maximum.accumulate(ends)
    below = np.concatenate([[0], occupied[:-1]])
    fits = starts - below >= extent
    number = int(fits.argmax())
    return int(below[number] if fits[number] else occupied[-1])


def pack_by_time(rectangles: Sequence[Rectangle]) -> tuple[int, list[int]]:
    """Allocate rectangles in the order of their first steps, each in the tightest gap.

    The time is almost linear in their number.

    Returns:
        The bytes in total, and the offsets in the order of the rectangles.
    """
    gaps = _Gaps()
    offsets = [0] * len(rectangles)
    live: list[tuple[int, int]] = []  # the last step of each, and its number
    for i in sorted(range(len(rectangles)), key=lambda i: rectangles[i].first):
        while live and live[0][0] < rectangles[i].first:
            _, over = heappop(live)
            gaps.free(offsets[over], rectangles[over].extent)
        if rectangles[i].extent:
            offsets[i] = gaps.allocate(rectangles[i].extent)
            heappush(live, (rectangles[i].last, i))
    return gaps.size, offsets


class _Gaps:
    """Free ranges of bytes, and the number of bytes in total."""

    def __init__(self) -> None:
        self.size = 0
        self._by_extent: list[tuple[int, int]] = []  # sorted (extent, start)
        self._end_of: dict[int, int] = {}
        self._start_of: dict[int, int] = {}

    def allocate(self, extent: int) -> int:
        """Allocate `extent` bytes; return their offset."""
        number = bisect_left(self._by_extent, (extent, 0))
        if number < len(self._by_extent):
            start = self._by_extent[number][1]
        elif self.size in self._start_of:
            start = self._start_of[self.size]
        else:
            start = self.size
        end = self._end_of.get(start, start)
        if end > start:
            self._drop(start, end)
        self.size = max(self.size, start + extent)
        if start + extent < end:
            self._insert(start + extent, end)
        return start

    def free(self, start: int, extent: int) -> None:
        """Free a range of bytes; merge it with adjacent gaps."""
        end = start + extent
        if end in self._end_of:
            following = self._end_of[end]
            self._drop(end, following)
            end = following
        if start in self._start_of:
            before = self._start_of[start]
            self._drop(before, start)
            start = before
        self._insert(start, end)

    def _insert(self, start: int, end: int) -> None:
        insort(self._by_extent, (end - start, start))
        self._end_of[start], self._start_of[end] = end, start

    def _drop(self, start: int, end: int) -> None:
        del self._by_extent[bisect_left(self._by_extent, (end - start, start))]
        del self._end_of[start], self._start_of[end]
