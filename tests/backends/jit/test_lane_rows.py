"""Rows of a few contiguous elements, one row in each lane, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.backends.jit.running import run_fused, vectors_of
from toolkit import ops

ROWS = [1, 3, 8, 17, 100]


def check(function, *arrays, limit=1e-12, **options):
    for actual, expected in zip(*run_fused(function, *arrays, **options), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=limit, atol=limit)


def normal(*shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def log_softmax(x):
    shifted = x - ops.max(x, axis=-1, keepdims=True)
    return shifted - ops.log(ops.sum(ops.exp(shifted), axis=-1, keepdims=True))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("columns", [2, 3, 5, 8, 10, 11])
@pytest.mark.parametrize("rows", ROWS)
def test_full_and_row_results(rows, columns, lanes):
    def body(x):
        y = log_softmax(x)
        return y, ops.max(x, axis=-1), ops.sum(y * x, axis=-1)

    for chunk in (0, 1, 3):
        with vectors_of(lanes):
            check(body, normal(rows, columns), chunk=chunk)


@pytest.mark.parametrize("columns", [2, 3, 7])
@pytest.mark.parametrize("rows", ROWS)
def test_operands_of_rows_and_columns(rows, columns):
    def body(x, row, column, condition):
        y = ops.where(condition, x * row, column) + column
        return ops.sum(y, axis=-1, keepdims=True) * row, ops.greater(y, x), y

    condition = normal(rows, columns, seed=3) > 0
    check(body, normal(rows, columns), normal(rows, 1), normal(columns), condition)


@pytest.mark.parametrize("name", ["argmax", "argmin", "prod", "min"])
def test_reductions_after_functions(name):
    x = normal(100, 3)
    x[5] = x[6, 1] = np.nan

    def body(x):
        return getattr(ops, name)(ops.sin(x), axis=-1)

    check(body, x)


def test_integers_and_booleans():
    def body(x, y):
        return ops.sum(x * 2, axis=-1), ops.any(y, axis=-1), ops.logical_not(y)

    x = np.random.default_rng(0).integers(-9, 9, (37, 4)).astype("int32")
    check(body, x, x > 3)


def test_views_that_are_not_contiguous():
    def body(x):
        narrow = x[:, 1:4]
        return narrow - ops.sum(narrow, axis=-1, keepdims=True)

    x = normal(50, 6)
    expected = x[:, 1:4] - x[:, 1:4].sum(-1, keepdims=True)
    np.testing.assert_allclose(toolkit.function(body)(x), expected, rtol=1e-12)


@pytest.mark.parametrize("step", [-1, 2, 5])
@pytest.mark.parametrize("columns", [2, 3, 4, 7])
def test_operands_of_columns_that_are_not_contiguous(columns, step):
    def body(x, row):
        y = x + row[::step][:columns]
        return y, ops.sum(x * y, axis=-1)

    x, row = normal(9, columns), normal(columns * abs(step))
    y = x + row[::step][:columns]
    actual = toolkit.function(body)(x, row)
    np.testing.assert_allclose(actual[0], y, rtol=1e-12)
    np.testing.assert_allclose(actual[1], (x * y).sum(-1), rtol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "var"])
def test_float32_is_near_float64(name):
    x = (20 * normal(1000, 5)).astype("float32")
    operation = getattr(ops, name)
    function = toolkit.function(lambda x: operation(x, axis=-1))
    expected = np.asarray(function(x.astype("float64")))
    np.testing.assert_allclose(function(x), expected, rtol=3e-6, atol=3e-6)


def test_infinities():
    x = np.array([[-np.inf, 0], [np.inf, 0], [-np.inf, -np.inf], [np.nan, 0]], "f4")
    y = np.asarray(toolkit.function(lambda x: ops.logsumexp(x, axis=-1))(x))
    np.testing.assert_array_equal(y, [0, np.inf, -np.inf, np.nan])
