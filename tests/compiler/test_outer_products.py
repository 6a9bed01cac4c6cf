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


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(40, 3, 3), (5, 8, 2, 16), (33, 16, 2), (50, 1, 4)])
def test_many_small_matrices_by_columns(shape, dtype):
    random = np.random.default_rng(0)
    a = ops.cast(random.standard_normal(shape), dtype)
    b = ops.cast(random.standard_normal((*shape[:-2], shape[-1], 1)), dtype)
    function = toolkit.function(lambda a, b: ops.relu(ops.matmul(a, b)))
    y = function(a, b)
    assert "= matmul" not in str(function.inspect(a, b))
    product = np.matmul(*(np.asarray(ops.cast(x, "float64")) for x in (a, b)))
    tolerance = {"float64": 1e-14, "float32": 4e-6}.get(dtype, 4e-2)
    assert y.dtype == dtype and y.shape == product.shape
    np.testing.assert_allclose(
        ops.cast(y, "float64"), np.maximum(product, 0), tolerance, tolerance
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((8, 3, 3), (8, 3, 1)),  # few matrices
        ((40, 17, 17), (40, 17, 1)),  # larger matrices
        ((40, 3, 3), (40, 3, 2)),  # several columns
        ((3, 3), (40, 3, 1)),  # one matrix
    ],
)
def test_other_products_remain(a, b):
    x, y = ops.ones(a), ops.ones(b)
    function = toolkit.function(lambda a, b: ops.matmul(a, b))
    np.testing.assert_array_equal(function(x, y), a[-1])
    assert "= matmul" in str(function.inspect(x, y))


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
