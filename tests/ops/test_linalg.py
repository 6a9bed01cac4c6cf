"""Test linear algebra beyond the table of samples."""

import numpy as np
import pytest

import toolkit
from toolkit import ops


@pytest.mark.parametrize("order", [None, 1, 2, 3, -1, np.inf, -np.inf])
def test_norms_propagate_nan(order):
    x = np.array([np.nan, 1.0, np.inf])
    assert np.isnan(ops.norm(x, ord=order))
    assert np.isnan(ops.norm(np.stack([x, x]), axis=-1, ord=order)).all()
    assert np.isnan(ops.norm(np.stack([x, x]), ord="fro"))


@pytest.mark.parametrize("shape", [(70, 70), (2, 40, 33), (33, 80), (90, 40)])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_lu_factor_of_several_panels(shape, dtype):
    random = np.random.default_rng(0)
    x = random.standard_normal(shape).astype(dtype)
    x[..., 5] = x[..., 4]  # a zero on the diagonal of the upper triangle
    if dtype == "complex128":
        x = x + 1j * random.standard_normal(shape)
    packed, pivots = (y.numpy() for y in ops.lu_factor(x))
    rank = min(shape[-2:])
    lower = np.tril(packed[..., :rank], -1) + np.eye(shape[-2], rank)
    upper = np.triu(packed[..., :rank, :])
    assert np.abs(lower).max() < 1 + 1e-9
    for matrix, factors, swaps in zip(
        x.reshape(-1, *shape[-2:]),
        (lower @ upper).reshape(-1, *shape[-2:]),
        pivots.reshape(-1, rank),
        strict=True,
    ):
        rows = list(range(shape[-2]))
        for i, j in enumerate(swaps):
            rows[i], rows[j] = rows[j], rows[i]
        np.testing.assert_allclose(factors, matrix[rows], 1e-9, 1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_determinants_and_their_gradients(n, dtype):
    x = ops.cast(np.random.default_rng(n).standard_normal((5, 2, n, n)), dtype)
    exact = np.asarray(ops.cast(x, "float64"))
    tolerance = {"float64": 1e-13, "float32": 1e-5}.get(dtype, 2e-2)

    def gradient(x):
        with toolkit.GradientTape() as tape:
            tape.watch(x)
            y = ops.det(x)
        return y, tape.gradient(y, x)

    for call in (gradient, toolkit.function(gradient)):
        y, g = call(x)
        assert y.dtype == g.dtype == dtype
        np.testing.assert_allclose(
            ops.cast(y, "float64"), np.linalg.det(exact), tolerance, tolerance
        )
        expected = np.linalg.det(exact)[..., None, None] * np.swapaxes(
            np.linalg.inv(exact), -1, -2
        )
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            ops.cast(g, "float64"), expected, 3 * tolerance, 3 * tolerance * scale
        )


def test_the_gradient_of_the_determinant_of_a_singular_matrix():
    x = ops.array([[1.0, 2.0], [2.0, 4.0]])
    with toolkit.GradientTape() as tape:
        tape.watch(x)
        y = ops.det(x)
    assert float(y) == 0
    assert tape.gradient(y, x).tolist() == [[4.0, -2.0], [-2.0, 1.0]]
    assert ops.det(ops.zeros((0, 3, 3))).shape == (0,)
    assert ops.det(ops.array([[1j, 2.0], [3.0, 4.0]])).tolist() == 4j - 6
