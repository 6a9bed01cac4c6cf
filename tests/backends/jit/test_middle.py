"""Reductions over axes in the middle against NumPy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tests.backends.jit.running import operand_of, run_lowered
from toolkit.backends.numpy.jit.kernels.middle_axis import lower_middle


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "any", "all"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 4, 5, 21), (1, 2)), ((2, 7, 64), (1,)), ((5, 3), (0,)), ((2, 0, 3), (1,))],
)
def test_a_reduction_over_middle_axes(op, shape, axes):
    dtype = "bool" if op in ("any", "all") else "float64"
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    if 0 in shape and op in ("max", "min"):
        pytest.skip("no extreme of nothing")
    expected = getattr(np, op)(x, axis=axes).astype(dtype)
    found = np.empty_like(expected)
    node = SimpleNamespace(attrs={"axis": axes}, op=SimpleNamespace(name=op))
    lowered = lower_middle(node, [operand_of(x)], [operand_of(found)])
    run_lowered(lowered, [x], [found], chunk=2)
    np.testing.assert_array_equal(found, expected)
