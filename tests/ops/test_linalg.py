"""What the table of samples cannot say of linear algebra."""

import numpy as np
import pytest

from toolkit import ops


@pytest.mark.parametrize("order", [None, 1, 2, 3, -1, np.inf, -np.inf])
def test_norms_do_not_hide_nan(order):
    x = np.array([np.nan, 1.0, np.inf])
    assert np.isnan(ops.norm(x, ord=order))
    assert np.isnan(ops.norm(np.stack([x, x]), axis=-1, ord=order)).all()
    assert np.isnan(ops.norm(np.stack([x, x]), ord="fro"))
