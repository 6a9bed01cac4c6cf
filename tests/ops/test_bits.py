"""Test the bits of numbers against NumPy."""

import numpy as np
import pytest

from toolkit import dtypes, ops
from toolkit.errors import ShapeError
from toolkit.ops.symbolic import KerasTensor

STARTS = [0.0, -0.0, 1.0, -1.0, 3.0, np.inf, -np.inf, np.nan, 1.0]
ENDS = [1.0, -1.0, 2.0, -2.0, 3.0, 0.0, 0.0, 1.0, np.nan]


@pytest.mark.parametrize("dtype", dtypes.FLOATS)
def test_nextafter(dtype):
    x1, x2 = (ops.convert_to_tensor(x, dtype) for x in (STARTS, ENDS))
    expected = np.nextafter(x1.numpy(), x2.numpy()).astype("float64")
    np.testing.assert_array_equal(ops.nextafter(x1, x2).numpy().astype("f8"), expected)


@pytest.mark.parametrize("old, new", [("float32", "int16"), ("int8", "float64")])
def test_view_of_another_size(old, new):
    x = ops.cast(ops.reshape(ops.arange(32), (2, 16)), old)
    expected = x.numpy().view(new)
    y = ops.view(x, new)
    np.testing.assert_array_equal(y.numpy(), expected)
    assert ops.view(KerasTensor((None, 16), old), new).shape == (None, y.shape[1])


def test_invalid_view_is_refused():
    with pytest.raises(ShapeError, match="does not contain a whole number of int64"):
        ops.view(ops.ones((3,)), "int64")
