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


SYSTEMS = [
    *[((50, 20), 3), ((20, 50), 3), ((30, 30), 1), ((5, 40, 20), 2), ((0, 40, 20), 2)],
    *[((40, 0), 2), ((3, 4, 5), 1), ((600, 30), 1), ((17, 16), 0)],
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16"])
@pytest.mark.parametrize(("shape", "columns"), SYSTEMS)
@pytest.mark.parametrize("rank", [None, 3])
def test_least_squares(dtype, shape, columns, rank):
    random, (*lead, m, n) = np.random.default_rng(0), shape
    wide = "complex128" if dtype == "complex64" else "float64"
    narrow = "float32" if dtype == "bfloat16" else dtype
    a = random.standard_normal(shape)
    if rank and min(m, n) > rank:
        factor = random.standard_normal((*lead, rank, n))
        a = random.standard_normal((*lead, m, rank)) @ factor
    b = random.standard_normal((*lead, m, columns))
    if dtype == "complex64":
        a, b = a + 0.5j * a[..., ::-1], b * (1 - 2j)
    a, b = (ops.cast(x.astype(narrow), dtype) for x in (a, b))
    exact_a, exact_b = (np.asarray(ops.cast(x, wide)) for x in (a, b))
    limit = np.finfo("float64" if dtype == "float64" else "float32").eps * max(m, n)
    expected = np.zeros((*lead, n, columns), wide)
    if m and n and expected.size:
        expected = np.linalg.pinv(exact_a, rcond=limit) @ exact_b
    scale = np.abs(expected).max(initial=1e-3)
    tolerance = {"float64": 1e-11, "bfloat16": 2e-2}.get(dtype, 2e-5)
    for call in (ops.lstsq, toolkit.function(lambda a, b: ops.lstsq(a, b))):
        x = call(a, b)
        assert x.dtype == dtype
        assert np.abs(np.asarray(ops.cast(x, wide)) - expected).max(initial=0) <= (
            tolerance * scale
        )


def test_the_cutoff_of_least_squares():
    random = np.random.default_rng(0)
    u, v = (np.linalg.qr(random.standard_normal((40, 20)))[0] for _ in range(2))
    for smallest in (1e-3, 1e-6, 1e-12, 0.0):
        s = np.geomspace(1, max(smallest, 1e-3), 20)
        s[-1] = smallest
        a, b = (u * s) @ v[:20].T, random.standard_normal((40, 2))
        for rcond in (1e-2, 1e-4, 1e-9):
            expected = np.linalg.pinv(a, rcond=rcond) @ b
            for cutoff in (rcond, ops.array(rcond, "float64")):
                x = ops.lstsq(a, b, rcond=cutoff)
                np.testing.assert_allclose(x, expected, 1e-6, 1e-7)


@pytest.mark.parametrize("shape", [(20, 18), (18, 20), (4, 3)])
def test_the_gradient_of_least_squares(shape):
    random = np.random.default_rng(0)
    a, b = random.standard_normal(shape), random.standard_normal((shape[0], 2))
    weights, step = random.standard_normal((shape[1], 2)), 1e-6
    direction = random.standard_normal(shape)

    def gradient(a, b):
        with toolkit.GradientTape() as tape:
            tape.watch([a, b])
            y = ops.sum(ops.lstsq(a, b) * weights)
        return tape.gradient(y, [a, b])

    def loss(a):
        return np.sum(np.linalg.pinv(a) @ b * weights)

    difference = loss(a + step * direction) - loss(a - step * direction)
    a, b = ops.array(a), ops.array(b)
    for call in (gradient, toolkit.function(gradient)):
        ga, gb = (x.numpy() for x in call(a, b))
        np.testing.assert_allclose(np.sum(ga * direction), difference / 2 / step, 1e-5)
        np.testing.assert_allclose(gb, np.linalg.pinv(a.numpy()).T @ weights)


@pytest.mark.parametrize("shape", [(7, 4), (3, 5, 5), (0, 4, 2), (40, 60)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_singular_values_without_vectors(shape, dtype):
    x = ops.cast(np.random.default_rng(0).standard_normal(shape), dtype)
    expected = np.linalg.svd(np.asarray(ops.cast(x, "float64")), compute_uv=False)
    for call in (
        lambda x: ops.svd(x, compute_uv=False),
        toolkit.function(lambda x: ops.svd(x, compute_uv=False)),
    ):
        y = call(x)
        assert y.dtype == dtype
        tolerance = {"float64": 1e-12, "float32": 1e-5}.get(dtype, 1e-2)
        np.testing.assert_allclose(ops.cast(y, "float64"), expected, tolerance, 1e-4)
