"""Products of columns and rows are elementwise products in compiled functions."""

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from toolkit import ops


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((7, 1), (1, 5)),
        ((3, 7, 1), (1, 5)),
        ((3, 7, 1), (3, 1, 1)),
        ((0, 1), (1, 4)),
        ((2, 1, 4, 1), (3, 1, 6)),
    ],
)
def test_outer_products(a, b, dtype):
    random = np.random.default_rng(0)
    a, b = (ops.cast(random.standard_normal(s), dtype) for s in (a, b))
    function = toolkit.function(lambda a, b: ops.matmul(a, b))
    y = function(a, b)
    assert "= matmul" not in str(function.inspect(a, b))
    expected = np.matmul(*(np.asarray(ops.cast(x, "float64")) for x in (a, b)))
    assert y.dtype == dtype and y.shape == expected.shape
    tolerance = {"float64": 1e-15, "float32": 1e-6}.get(dtype, 1e-2)
    np.testing.assert_allclose(ops.cast(y, "float64"), expected, tolerance)


def test_the_gradient_of_a_dot_product():
    x, y = np.random.default_rng(0).standard_normal((2, 100)).astype("float32")

    def gradient(x, y):
        with toolkit.GradientTape() as tape:
            tape.watch([x, y])
            product = 3 * ops.dot(x, y)
        return tape.gradient(product, [x, y])

    for actual, expected in zip(
        toolkit.function(gradient)(ops.array(x), ops.array(y)),
        (3 * y, 3 * x),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, 1e-6)
