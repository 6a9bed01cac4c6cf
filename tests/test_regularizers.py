"""Tests of regularizers against NumPy, and of their gradients, configs and names."""

import numpy as np
import pytest

from tests.helpers import assert_close, check_grads
from toolkit import ops, regularizers
from toolkit.errors import ArgumentError, ShapeError
from toolkit.functions.decorator import function

X = np.random.default_rng(0).normal(size=(4, 3))


def orthogonal(x):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = np.abs(x @ x.T)
    return (cosines.sum() - len(x)) / (len(x) * (len(x) - 1))


ROWS = [
    (regularizers.L1(0.3), 0.3 * np.abs(X).sum()),
    (regularizers.L2(0.3), 0.3 * (X**2).sum()),
    (regularizers.L1L2(0.3, 0.2), 0.3 * np.abs(X).sum() + 0.2 * (X**2).sum()),
    (regularizers.L1L2(l2=0.2), 0.2 * (X**2).sum()),
    (regularizers.L1L2(), 0.0),
    (regularizers.OrthogonalRegularizer(0.3), 0.3 * orthogonal(X)),
    (
        regularizers.OrthogonalRegularizer(0.3, mode="columns"),
        0.3 * orthogonal(X.T),
    ),
]
ids = [type(row[0]).__name__ + str(i) for i, row in enumerate(ROWS)]


@pytest.mark.parametrize("regularizer, expected", ROWS, ids=ids)
def test_against_numpy(regularizer, expected):
    assert_close(regularizer(X), expected)
    single = regularizer(ops.convert_to_tensor(X, "float32"))
    assert (single.dtype, single.shape) == ("float32", ())
    assert_close(function(regularizer)(X), expected)
    check_grads(regularizer, [X])


@pytest.mark.parametrize("regularizer, expected", ROWS, ids=ids)
def test_config_round_trip(regularizer, expected):
    config = regularizers.serialize(regularizer)
    assert config["module"] == "keras.regularizers"
    restored = regularizers.deserialize(config)
    assert type(restored) is type(regularizer)
    assert restored.get_config() == regularizer.get_config()
    assert_close(restored(X), expected)


def test_zero_rows_are_orthogonal_to_all():
    regularizer = regularizers.OrthogonalRegularizer(1.0)
    assert float(regularizer([[0.0, 0.0], [1.0, 2.0]])) == 0
    assert float(regularizer([[1.0, 2.0]])) == 0


@pytest.mark.parametrize(
    "identifier, config",
    [
        ("l1", {"l1": 0.01}),
        ("L2", {"l2": 0.01}),
        ("l1_l2", {"l1": 0.0, "l2": 0.0}),
        (regularizers.l2(0.5), {"l2": 0.5}),
        ({"class_name": "L1", "config": {"l1": 0.5}}, {"l1": 0.5}),
        (regularizers.l1_l2(), {"l1": 0.0, "l2": 0.0}),
        (regularizers.l1(), {"l1": 0.01}),
        ("orthogonal_regularizer", {"factor": 0.01, "mode": "rows"}),
        (regularizers.orthogonal_regularizer(0.5), {"factor": 0.5, "mode": "rows"}),
    ],
)
def test_get(identifier, config):
    assert regularizers.get(identifier).get_config() == config


def test_get_accepts_functions():
    assert regularizers.get(ops.sum) is ops.sum
    assert regularizers.get(None) is None


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: regularizers.get("l3"), ArgumentError, "'l2'.*'l3'"),
        (lambda: regularizers.L1(-1.0), ArgumentError, "l1 must be .*-1.0"),
        (lambda: regularizers.L2(float("nan")), ArgumentError, "finite"),
        (lambda: regularizers.L2("0.1"), ArgumentError, "'0.1'"),
        (
            lambda: regularizers.OrthogonalRegularizer(mode="x"),
            ArgumentError,
            "'rows'.*'x'",
        ),
        (
            lambda: regularizers.OrthogonalRegularizer()(np.ones(3)),
            ShapeError,
            r"\(3,\)",
        ),
        (lambda: regularizers.Regularizer()(X), NotImplementedError, "__call__"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()
