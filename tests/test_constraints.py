"""Tests of constraints against NumPy, and of their configs and names."""

import numpy as np
import pytest

from tests.helpers import assert_close
from toolkit import constraints, ops
from toolkit.errors import ArgumentError
from toolkit.functions.decorator import function

W = 2 * np.random.default_rng(0).normal(size=(4, 3))
NORM = np.linalg.norm(W, axis=0)
EPSILON = 1e-7

ROWS = [
    (constraints.MaxNorm(2.0), W * np.minimum(NORM, 2) / (NORM + EPSILON)),
    (
        constraints.MaxNorm(1.0, axis=[0, 1]),
        W / (np.linalg.norm(W) + EPSILON),
    ),
    (constraints.NonNeg(), np.maximum(W, 0)),
    (constraints.UnitNorm(), W / (NORM + EPSILON)),
    (
        constraints.UnitNorm(axis=1),
        W / (np.linalg.norm(W, axis=1, keepdims=True) + EPSILON),
    ),
    (
        constraints.MinMaxNorm(2.5, 4.0, rate=0.5),
        W * (0.5 * np.clip(NORM, 2.5, 4.0) + 0.5 * NORM) / (NORM + EPSILON),
    ),
]
ids = [type(row[0]).__name__ + str(i) for i, row in enumerate(ROWS)]


@pytest.mark.parametrize("constraint, expected", ROWS, ids=ids)
def test_against_numpy(constraint, expected):
    assert_close(constraint(W), expected)
    assert_close(function(constraint)(W), expected)
    assert constraint(ops.convert_to_tensor(W, "float32")).dtype == "float32"


@pytest.mark.parametrize("constraint, expected", ROWS, ids=ids)
def test_config_round_trip(constraint, expected):
    config = constraints.serialize(constraint)
    assert config["module"] == "keras.constraints"
    restored = constraints.deserialize(config)
    assert type(restored) is type(constraint)
    assert_close(restored(W), expected)


def test_zeros_stay_zeros():
    for constraint, _ in ROWS:
        assert not constraint(np.zeros((4, 3))).numpy().any()


@pytest.mark.parametrize(
    "identifier, cls",
    [
        ("max_norm", constraints.MaxNorm),
        ("NonNeg", constraints.NonNeg),
        ("unit_norm", constraints.UnitNorm),
        ("min_max_norm", constraints.MinMaxNorm),
        (constraints.non_neg, constraints.NonNeg),
    ],
)
def test_get(identifier, cls):
    assert type(constraints.get(identifier)) is cls


def test_get_accepts_functions():
    assert constraints.get(ops.relu) is ops.relu
    assert constraints.get(None) is None


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: constraints.get("max"), ArgumentError, "'max_norm'.*'max'"),
        (lambda: constraints.MaxNorm(-1), ArgumentError, "max_value.*-1"),
        (lambda: constraints.MinMaxNorm(rate=0.0), ArgumentError, "rate"),
        (lambda: constraints.Constraint()(W), NotImplementedError, "__call__"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()
