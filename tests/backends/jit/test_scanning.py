"""Running sums and products against NumPy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tests.backends.jit.running import operand_of, run_lowered
from toolkit.backends.numpy.jit.kernels.scan import lower_cumulative


@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        *(((5,), 0), ((3, 4, 21), 1), ((3, 40), 1), ((0, 3), 0), ((40, 0), 1)),
        *(((40, 5), 1), ((33, 35), 1), ((5, 16, 16), 2), ((7, 150), 0)),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "int32", "float32", "int64"])
@pytest.mark.parametrize("chunk", [0, 1])
def test_cumulative(op, reverse, shape, axis, dtype, chunk):
    x = np.random.default_rng(0).integers(-2, 3, shape).astype(dtype)
    flipped = np.flip(x, axis) if reverse else x
    expected = getattr(np, op)(flipped, axis=axis, dtype=dtype)
    expected = np.flip(expected, axis) if reverse else expected
    actual = np.empty_like(x)
    attrs = {"axis": axis, "reverse": reverse}
    node = SimpleNamespace(attrs=attrs, op=SimpleNamespace(name=op))
    lowered = lower_cumulative(node, [operand_of(x)], [operand_of(actual)])
    run_lowered(lowered, [x], [actual], chunk)
    np.testing.assert_array_equal(actual, expected)
