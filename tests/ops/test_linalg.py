"""Test linear algebra beyond the table of samples."""

import numpy as np
import pytest

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
