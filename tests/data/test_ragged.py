"""Tests of rows of ragged arrays, and of None values, as elements and in batches."""

import numpy as np

from toolkit.data import Dataset
from toolkit.data.padding import Ragged


def test_results_of_rows_are_plain_arrays():
    rows = Dataset.from_tensor_slices(Ragged(np.arange(1, 7), np.array([0, 1, 3, 6])))
    for change in (lambda x: x[:1], lambda x: np.zeros_like(x, shape=(3,))):
        (batch,) = rows.map(change).batch(3)
        assert type(batch) is np.ndarray and batch.shape[0] == 3
    assert type(rows.reduce(0, lambda total, x: total + x.sum())) is np.int64
    assert type(next(iter(rows)) * 2) is np.ndarray


def test_none_stays_none_in_rows_of_batches():
    pairs = Dataset.range(4).map(lambda x: (x, None))
    expected = [(0, None), (1, None), (2, None), (3, None)]
    assert list(pairs.batch(2).unbatch()) == expected
    assert [len(x) for x, _ in pairs.batch(2).rebatch(3)] == [3, 1]
