"""Tests of directional derivatives."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import errors, ops
from toolkit.ops.symbolic import KerasTensor

X = np.random.default_rng(0).normal(size=(3, 4))
V = np.random.default_rng(1).normal(size=(3, 4))


def function(x, scale):
    return {"sine": ops.sin(x) * scale, "count": ops.shape(x)[0] + ops.argmax(x)}


def test_jvp_of_structures():
    y, t = ops.jvp(function, (X, 2.0), (V, 3.0))
    assert_close(y["sine"], np.sin(X) * 2, dtype="float32")
    expected = np.cos(X) * V * 2 + np.sin(X) * 3
    assert_close(t["sine"], expected, dtype="float32")


def test_jvp_in_a_trace():
    call = toolkit.function(lambda x, v: ops.jvp(ops.exp, (x,), (v,))[1])
    assert_close(call(ops.array(X), ops.array(V)), np.exp(X) * V, factor=10)


def test_jvp_of_symbols_and_constants():
    x = KerasTensor((None, 7))
    y, t, z = ops.jvp(
        lambda x: (ops.exp(x), ops.mean(x, axis=-1)), (x,), (x,), has_aux=True
    )
    assert y.shape == t.shape == (None, 7)
    assert z.shape == (None,)


def test_one_tangent_for_each_primal():
    with pytest.raises(errors.ArgumentError, match="equal numbers of tangents"):
        ops.jvp(ops.add, (X, X), (V,))
