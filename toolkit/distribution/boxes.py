"""Parts of arrays as boxes, and the assignment of boxes to writers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

# (start, stop) index along each axis.
Box: TypeAlias = tuple[tuple[int, int], ...]
# Iterations of the balancing of groups that share ranks.
_ITERATIONS = 16


class ShardedValue(NamedTuple):
    """Value that is split over ranks; several ranks can hold the same shard.

    Attributes:
        itemsize: the size of an element in bytes.
        boxes: the box of each rank.
    """

    itemsize: int
    boxes: Sequence[Box]


def full_box(shape: Sequence[int]) -> Box:
    """Return the box of a full array."""
    return tuple((0, extent) for extent in shape)


def extents(box: Box) -> tuple[int, ...]:
    """Return the shape of a box."""
    return tuple(stop - start for start, stop in box)


def translate(box: Box, origin: Box) -> Box:
    """Translate a box inside another box to the indices of the array."""
    return tuple(
        (start + first, stop + first)
        for (start, stop), (first, _) in zip(box, origin, strict=True)
    )


def intersect(a: Box, b: Box) -> Box | None:
    """Return the intersection of two boxes, or None if it is empty."""
    result = tuple(
        (max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b, strict=True)
    )
    return result if all(start < stop for start, stop in result) else None


def slices_within(box: Box, origin: Box) -> tuple[slice, ...]:
    """Translate a box to the indices of the box that starts at `origin`."""
    return tuple(
        slice(start - first, stop - first)
        for (start, stop), (first, _) in zip(box, origin, strict=True)
    )


def split_range_into_boxes(
    shape: Sequence[int], start: int, stop: int, max_size: int
) -> Iterator[Box]:
    """Split a range of an array's elements into boxes that are contiguous in memory.

    Args:
        shape: the shape of the array.
        start, stop: the first element, and the end (exclusive).
        max_size: the maximum number of elements in a box.
    """
    if not shape:
        yield from [()] * (stop - start)
        return
    row_shape = shape[1:]
    row_size = prod(row_shape)
    while start < stop:
        index, offset = divmod(start, row_size)
        if offset or stop - start < row_size or row_size > max_size:
            end = min(stop, (index + 1) * row_size)
            for box in split_range_into_boxes(
                row_shape, offset, end - index * row_size, max_size
            ):
                yield ((index, index + 1), *box)
            start = end
        else:
            count = min(stop - start, max_size) // row_size
            yield ((index, index + count), *full_box(row_shape))
            start += count * row_size


def assign_writes(values: Sequence[ShardedValue], rank: int) -> list[range]:
    """Return the elements of each item that a rank writes, in memory order.

    Ranks that hold the same shard divide it, so that the maximum written by any rank is
    minimal.
    """
    pools: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for index, (_, boxes) in enumerate(values):
        holders: dict[Box, list[int]] = {}
        for holder, box in enumerate(boxes):
            holders.setdefault(box, []).append(holder)
        for box, holding_ranks in holders.items():
            count = prod(extents(box))
            if count > 0:
                pools.setdefault(tuple(holding_ranks), []).append((index, count))
    totals = {
        ranks: sum(count * values[index].itemsize for index, count in pool)
        for ranks, pool in pools.items()
    }
    element_ranges = [range(0)] * len(values)
    for ranks, amounts in _balance_writes(totals).items():
        if rank not in ranks:
            continue
        first, offset = sum(amounts[: ranks.index(rank)]), 0
        stop = first + amounts[ranks.index(rank)]
        for index, count in pools[ranks]:
            size = values[index].itemsize
            bounds = [-((offset - bound) // size) for bound in (first, stop)]
            low, high = (min(max(bound, 0), count) for bound in bounds)
            element_ranges[index] = range(low, high)
            offset += count * size
    return element_ranges


def _balance_writes(
    totals: dict[tuple[int, ...], int],
) -> dict[tuple[int, ...], list[int]]:
    """Balance the writes: return the amount of each rank in each group of ranks."""
    amounts = {ranks: [0] * len(ranks) for ranks in totals}
    loads: dict[int, int] = {}
    for _ in range(_ITERATIONS):
        # Large groups are last, because they can balance the loads of small ones.
        for ranks in sorted(totals, key=lambda group: (len(group), group)):
            for rank, amount in zip(ranks, amounts[ranks], strict=True):
                loads[rank] = loads.get(rank, 0) - amount
            amounts[ranks] = _distribute_amount(
                [loads[rank] for rank in ranks], totals[ranks]
            )
            for rank, amount in zip(ranks, amounts[ranks], strict=True):
                loads[rank] += amount
    return amounts


def _distribute_amount(loads: Sequence[int], amount: int) -> list[int]:
    """Return the increments of the loads, `amount` in total, with minimal maximum."""
    sorted_loads = sorted(loads)
    level = remainder = 0
    for count in range(1, len(loads) + 1):
        level, remainder = divmod(amount + sum(sorted_loads[:count]), count)
        if count == len(loads) or level < sorted_loads[count]:
            break
    increments = []
    for load in loads:
        increment = max(0, level - load)
        if remainder and load <= level:
            increment, remainder = increment + 1, remainder - 1
        increments.append(increment)
    return increments


def is_cover(box: Box, boxes: Sequence[Box]) -> bool:
    """Return whether boxes inside a box cover it without overlap."""
    if sum(prod(extents(inner)) for inner in boxes) != prod(extents(box)):
        return False
    bounds: Any = np.array(boxes, np.int64).reshape(len(boxes), len(box), 2)
    for index in range(1, len(boxes)):
        current, previous = bounds[index], bounds[:index]
        overlaps = np.maximum(current[:, 0], previous[:, :, 0]) < np.minimum(
            current[:, 1], previous[:, :, 1]
        )
        if overlaps.all(axis=1).any():
            return False
    return True
