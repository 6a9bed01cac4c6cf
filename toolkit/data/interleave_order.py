"""Order in which `interleave` reads the elements of data sets of known sizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from toolkit.type_aliases import Array


def interleave_order(counts: Sequence[int], cycle: int, block: int) -> Array:
    """Return the indices of the elements in the order of `interleave`.

    An index counts the elements of all data sets, one data set after the other.

    Args:
        counts: the number of elements of each data set.
        cycle: the number of open data sets.
        block: the number of consecutive elements from each data set.

    Example:
        >>> from toolkit.data.interleave_order import interleave_order
        >>> interleave_order([3, 1, 2], cycle=2, block=1).tolist()
        [0, 3, 1, 2, 4, 5]
    """
    ends = np.cumsum(counts).tolist()
    waiting = deque([end - count, end] for count, end in zip(counts, ends, strict=True))
    active = deque(waiting.popleft() for _ in range(min(cycle, len(waiting))))
    order = [np.zeros(0, np.int64)]
    while active:
        rounds = min((end - start) // block for start, end in active)
        starts = np.array([start for start, _ in active])
        steps = np.arange(rounds * block).reshape(rounds, 1, block)
        order.append((starts[:, None] + steps).ravel())
        for limits in active:
            limits[0] += rounds * block
        order += _end_one(active, block)
        if waiting:
            active.append(waiting.popleft())
    return np.concatenate(order)


def _end_one(active: deque[list[int]], block: int) -> list[Array]:
    """Remove the first data set that ends, and return the indices up to its end."""
    order = []
    while True:
        limits = active.popleft()
        start, end = limits
        order.append(np.arange(start, min(start + block, end)))
        if end - start < block:
            return order
        limits[0] += block
        active.append(limits)
