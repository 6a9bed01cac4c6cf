"""Test boxes of arrays, and the division of their writes between ranks."""

import random
from math import prod

import numpy as np
import pytest

from toolkit.distribution import boxes
from toolkit.distribution.boxes import ShardedValue


@pytest.mark.parametrize("seed", range(40))
def test_ranges_are_cut_into_ordered_boxes(seed):
    draw = random.Random(seed)
    shape = [draw.randint(1, 6) for _ in range(draw.randint(0, 4))]
    count, limit = prod(shape), draw.choice([1, 3, 7, 1000])
    start, stop = sorted(draw.randint(0, count) for _ in range(2))
    array = np.arange(count).reshape(shape)
    parts_of_range = list(boxes.split_range_into_boxes(shape, start, stop, limit))
    elements = [
        array[boxes.slices_within(box, boxes.full_box(shape))].ravel()
        for box in parts_of_range
    ]
    assert np.concatenate([[], *elements]).tolist() == list(range(start, stop))
    assert max(map(len, elements), default=0) <= limit
    if limit == 1000:
        assert len(parts_of_range) <= max(1, 2 * len(shape) - 1)


def test_cover_has_no_gaps_and_no_overlaps():
    box = ((0, 4), (0, 3))
    left_box, right = ((0, 4), (0, 1)), ((0, 4), (1, 3))
    assert boxes.is_cover(box, [left_box, right])
    assert not boxes.is_cover(box, [left_box])
    assert not boxes.is_cover(box, [right, left_box, right])
    twice = [((0, 2), (0, 3)), ((1, 3), (0, 3))]  # with as many elements
    assert not boxes.is_cover(box, twice)
    assert boxes.is_cover((), [()]) and not boxes.is_cover((), [])
    assert boxes.is_cover(((0, 0), (0, 3)), [])


def written(items, ranks):
    """Return the bytes per rank, and check that each element is written once."""
    shares = [boxes.assign_writes(items, rank) for rank in range(ranks)]
    totals = [0] * ranks
    for number, item in enumerate(items):
        for box in set(item.boxes):
            elements = []
            for rank in range(ranks):
                if item.boxes[rank] == box:
                    elements += shares[rank][number]
                    totals[rank] += len(shares[rank][number]) * item.itemsize
            assert sorted(elements) == list(range(prod(boxes.extents(box))))
    return totals


def rows(count, ranks):
    """Return the boxes of an axis that is split over ranks."""
    return [((r * count // ranks, (r + 1) * count // ranks),) for r in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 64])
def test_equal_values_are_divided_equally(ranks):
    sizes = [(4, 1), (2, 7), (4, 100_003), (4, 0), (8, 1), (2, 50_001), (4, 3)]
    items = [ShardedValue(size, [((0, count),)] * ranks) for size, count in sizes]
    totals = written(items, ranks)
    assert max(totals) - min(totals) <= 16


def test_ranks_with_large_shards_write_less_of_the_remainder():
    # Five rows over four ranks: the last has two.
    items = [ShardedValue(4, [((0, 5000),)] * 4)]
    items += [
        ShardedValue(4, [((r * 1000, (r + 1 + (r == 3)) * 1000),) for r in range(4)])
    ]
    totals = written(items, 4)
    assert max(totals) - min(totals) <= 4


def test_equal_shards_are_divided_between_their_owners():
    # In a mesh of 2 x 2, one value is split over the first axis and one over the
    # second.
    first = [((0, 10),), ((0, 10),), ((10, 30),), ((10, 30),)]
    second = [((0, 20),), ((20, 30),), ((0, 20),), ((20, 30),)]
    totals = written(
        [ShardedValue(4, first), ShardedValue(4, second), ShardedValue(4, rows(30, 4))],
        4,
    )
    assert sum(totals) == 4 * 90
    assert max(totals) <= 4 * 24  # with 22.5 elements each


@pytest.mark.parametrize("seed", range(20))
def test_any_layout_is_written_once(seed):
    draw = random.Random(seed)
    ranks = draw.randint(1, 6)
    items = []
    for _ in range(8):
        groups = draw.choice([d for d in range(1, ranks + 1) if ranks % d == 0])
        row_ranges = rows(draw.randint(0, 50), groups)
        items.append(
            ShardedValue(
                draw.choice([1, 2, 8]), [row_ranges[r % groups] for r in range(ranks)]
            )
        )
    written(items, ranks)
