"""Test that ranges have the numbers of NumPy, near the limits of 32 bits too."""

import numpy as np
import pytest

from toolkit import ops

LIMIT = 2**31 - 1
RANGES = [
    *[(5,), (0, 10, 3), (10, 0, -3), (5, 1), (0, 7, 2**40), (1, 5, 0.5), (0.0, 2.0)],
    *[(LIMIT - 3, LIMIT), (-LIMIT, -LIMIT + 5, 2), (LIMIT - 1, LIMIT, 5)],
    *[
        (-LIMIT, LIMIT, 2**30),
        (0, 2**33, 2**31),
        (2**40, 2**40 + 3),
        (2**24, 2**24 + 4),
    ],
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint32"])
@pytest.mark.parametrize("arguments", RANGES, ids=str)
def test_ranges(arguments, dtype):
    if dtype == "uint32" and min(arguments) < 0:
        pytest.skip("negative numbers have no result")
    expected = np.arange(*arguments).astype(dtype)
    result = ops.arange(*arguments, dtype=dtype)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)
