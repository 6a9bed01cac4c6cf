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
