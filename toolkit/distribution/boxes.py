"""Parts of arrays as boxes, and who writes which of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

# First and last index, the latter exclusive, along each axis.
Box: TypeAlias = tuple[tuple[int, int], ...]
# Groups that have some ranks in common come to equal shares step by step.
_ROUNDS = 16


class Item(NamedTuple):
    """A value of which each rank holds a part; some may hold the same one.

    Attributes:
        itemsize: bytes of an element.
        boxes: what each rank holds, by rank.
    """

    itemsize: int
    boxes: Sequence[Box]


def whole(shape: Sequence[int]) -> Box:
    """The box that is all of an array."""
    return tuple((0, extent) for extent in shape)


def extents(box: Box) -> tuple[int, ...]:
    """The shape of what is in a box."""
    return tuple(stop - start for start, stop in box)


def moved(box: Box, origin: Box) -> Box:
    """A box inside of another one, by the indices of the array that holds both."""
    return tuple(
        (start + first, stop + first)
        for (start, stop), (first, _) in zip(box, origin, strict=True)
    )


def overlap(a: Box, b: Box) -> Box | None:
    """What two boxes have in common; None for nothing."""
    found = tuple((max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b, strict=True))
    return found if all(start < stop for start, stop in found) else None


def within(box: Box, origin: Box) -> tuple[slice, ...]:
    """Where a box is in the array of the box around it."""
    return tuple(
        slice(start - first, stop - first)
        for (start, stop), (first, _) in zip(box, origin, strict=True)
    )


def cut(shape: Sequence[int], start: int, stop: int, most: int) -> Iterator[Box]:
    """Boxes that follow each other in memory, and are a range of an array's elements.

    Args:
        shape: of the array.
        start, stop: its first element, and the one behind its last.
        most: so many elements a box may have.
    """
    if not shape:
        yield from [()] * (stop - start)
        return
    rest = shape[1:]
    row = prod(rest)
    while start < stop:
        first, inside = divmod(start, row)
        if inside or stop - start < row or row > most:
            end = min(stop, (first + 1) * row)
            for box in cut(rest, inside, end - first * row, most):
                yield ((first, first + 1), *box)
            start = end
        else:
            count = min(stop - start, most) // row
            yield ((first, first + count), *whole(rest))
            start += count * row


def share(items: Sequence[Item], rank: int) -> list[range]:
    """Which elements of its part of each item a rank writes, in their order in memory.

    Ranks that hold the same part divide it so that the one that writes most writes as
    little as possible.
    """
    pools: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for number, (_, boxes) in enumerate(items):
        holders: dict[Box, list[int]] = {}
        for holder, box in enumerate(boxes):
            holders.setdefault(box, []).append(holder)
        for box, found in holders.items():
            count = prod(extents(box))
            if count > 0:
                pools.setdefault(tuple(found), []).append((number, count))
    totals = {
        ranks: sum(count * items[number].itemsize for number, count in pool)
        for ranks, pool in pools.items()
    }
    mine = [range(0)] * len(items)
    for ranks, taken in _balanced(totals).items():
        if rank not in ranks:
            continue
        first, place = sum(taken[: ranks.index(rank)]), 0
        stop = first + taken[ranks.index(rank)]
        for number, count in pools[ranks]:
            size = items[number].itemsize
            bounds = [-((place - bound) // size) for bound in (first, stop)]
            low, high = (min(max(bound, 0), count) for bound in bounds)
            mine[number] = range(low, high)
            place += count * size
    return mine


def _balanced(totals: dict[tuple[int, ...], int]) -> dict[tuple[int, ...], list[int]]:
    """How much of what some ranks hold each of them writes, for all such groups."""
    taken = {ranks: [0] * len(ranks) for ranks in totals}
    loads: dict[int, int] = {}
    for _ in range(_ROUNDS):
        # Whoever has a choice comes last, and makes up for the others.
        for ranks in sorted(totals, key=lambda each: (len(each), each)):
            for rank, amount in zip(ranks, taken[ranks], strict=True):
                loads[rank] = loads.get(rank, 0) - amount
            taken[ranks] = _filled([loads[rank] for rank in ranks], totals[ranks])
            for rank, amount in zip(ranks, taken[ranks], strict=True):
                loads[rank] += amount
    return taken


def _filled(loads: Sequence[int], amount: int) -> list[int]:
    """What to add to each load, in all `amount`, so that the largest is smallest."""
    ordered = sorted(loads)
    level = rest = 0
    for count in range(1, len(loads) + 1):
        level, rest = divmod(amount + sum(ordered[:count]), count)
        if count == len(loads) or level < ordered[count]:
            break
    added = []
    for load in loads:
        more = max(0, level - load)
        if rest and load <= level:
            more, rest = more + 1, rest - 1
        added.append(more)
    return added


def is_cover(box: Box, parts: Sequence[Box]) -> bool:
    """Whether boxes inside of one are all of it, and have nothing in common."""
    if sum(prod(extents(part)) for part in parts) != prod(extents(box)):
        return False
    bounds: Any = np.array(parts, np.int64).reshape(len(parts), len(box), 2)
    for number in range(1, len(parts)):
        one, others = bounds[number], bounds[:number]
        meet = np.maximum(one[:, 0], others[:, :, 0]) < np.minimum(
            one[:, 1], others[:, :, 1]
        )
        if meet.all(axis=1).any():
            return False
    return True
