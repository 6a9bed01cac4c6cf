"""Test operations that count elements, and drop duplicates."""

from itertools import compress, product

import numpy as np
import pytest

from toolkit import function, ops

NUMBERS = np.array([[3, 1, 3, 2], [1, 1, 0, 3]], np.int32)


@pytest.mark.parametrize("flags", [*product((False, True), repeat=3)], ids=str)
@pytest.mark.parametrize(("axis", "size"), [(None, None), (1, None), (None, 3), (1, 5)])
def test_each_selection_of_results_of_unique(flags, axis, size):
    everything = ops.unique(NUMBERS, True, True, True, True, axis=axis, size=size)
    expected = list(compress(everything, (True, *flags)))
    result = ops.unique(NUMBERS, True, *flags, axis=axis, size=size)
    results = result if any(flags) else (result,)
    assert [x.tolist() for x in results] == [x.tolist() for x in expected]
    reference = np.unique(NUMBERS, True, True, True, axis=axis)
    if size is None:
        assert [x.tolist() for x in everything] == [x.tolist() for x in reference]


def test_counts_of_available_and_unavailable_integers_agree():
    numbers = np.array([4, 0, 4], np.int32)
    for minlength, expected in ((0, [1, 0, 0, 0, 2]), (7, [1, 0, 0, 0, 2, 0, 0])):
        counts = ops.bincount(numbers, minlength=minlength)
        assert (counts.tolist(), counts.dtype) == (expected, "int32")
    traced = function(lambda x: ops.bincount(x, minlength=7))(numbers)
    assert traced.tolist() == counts.tolist()
    assert ops.bincount(np.zeros(0, np.int32), minlength=2).tolist() == [0, 0]
