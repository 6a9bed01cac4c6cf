"""Batches of arrays: order, views, gathering, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from toolkit.data import ArrayBatches
from toolkit.errors import ArgumentError, ShapeError


def test_in_order_batches_are_views():
    x, y = np.arange(10).reshape(5, 2), np.arange(5)
    batches = list(ArrayBatches([x, None, y], 2).in_order())
    assert [b[2].tolist() for b in batches] == [[0, 1], [2, 3], [4]]
    assert all(b[1] is None and np.shares_memory(b[0], x) for b in batches)


def test_shuffled_batches_hold_every_row_once_and_keep_rows_together():
    x, y = np.arange(10).reshape(5, 2), np.arange(5)
    batches = list(ArrayBatches([x, y], 2).shuffled(np.random.default_rng(0)))
    assert sorted(np.concatenate([b[1] for b in batches])) == [0, 1, 2, 3, 4]
    assert all((b[0][:, 0] == 2 * b[1]).all() for b in batches)
    assert len(batches) == 3 == len(ArrayBatches([x], 2))


def test_shuffling_within_batches():
    y = np.arange(6)
    batches = ArrayBatches([y], 3).shuffled(np.random.default_rng(0), True)
    assert [sorted(b[0].tolist()) for b in batches] == [[0, 1, 2], [3, 4, 5]]


def test_the_same_generator_gives_the_same_order():
    y = np.arange(100)
    orders = [
        [b[0].tolist() for b in ArrayBatches([y], 7).shuffled(np.random.default_rng(3))]
        for _ in range(2)
    ]
    assert orders[0] == orders[1]


def test_bad_input():
    with pytest.raises(ShapeError, match=r"received \[2, 3\]"):
        ArrayBatches([np.zeros(2), np.zeros(3)], 1)
    with pytest.raises(ArgumentError, match="batch_size >= 1; received 0"):
        ArrayBatches([np.zeros(2)], 0)
