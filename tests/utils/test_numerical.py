"""Test the conversion of labels to rows, and of arrays to unit length."""

import numpy as np
import pytest

import toolkit
from toolkit.errors import ArgumentError, DTypeError
from toolkit.utils import normalize, to_categorical


@pytest.mark.parametrize(
    "labels, num_classes, expected",
    [
        ([0, 2], None, [[1, 0, 0], [0, 0, 1]]),
        ([0, 2], 4, [[1, 0, 0, 0], [0, 0, 1, 0]]),
        ([[1], [0]], None, [[0, 1], [1, 0]]),
        ([[1, 0]], None, [[[0, 1], [1, 0]]]),
        (1, 2, [0, 1]),
        ([1.0, 0.0], None, [[0, 1], [1, 0]]),
        ([True, False], None, [[0, 1], [1, 0]]),
        ([[[1]]], 2, [[[0, 1]]]),
    ],
)
def test_to_categorical(labels, num_classes, expected):
    result = to_categorical(labels, num_classes)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, expected)


def test_to_categorical_of_empty_arrays():
    empty = np.zeros((0,), np.int32)
    assert to_categorical(empty, 3).shape == (0, 3)
    with pytest.raises(ArgumentError, match="num_classes is required"):
        to_categorical(empty)


@pytest.mark.parametrize(
    "labels, num_classes, error, message",
    [
        ([0, 3], 3, ArgumentError, "from 0 to 2; received labels from 0 to 3"),
        ([-1, 0], 3, ArgumentError, "received labels from -1 to 0"),
        ([0.5], 3, ArgumentError, "whole numbers"),
        ([float("nan")], 3, ArgumentError, "whole numbers"),
        (["cat"], 3, DTypeError, "received dtype"),
    ],
)
def test_to_categorical_refuses(labels, num_classes, error, message):
    with pytest.raises(error, match=message):
        to_categorical(labels, num_classes)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("order", [1, 2, np.inf])
def test_normalize(axis, order):
    x = np.random.default_rng(0).normal(size=(3, 4))
    norms = np.linalg.norm(normalize(x, axis, order), order, axis)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-12)


def test_normalize_keeps_zeros_and_its_input():
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    before = x.copy()
    np.testing.assert_allclose(normalize(x), [[0, 0], [0.6, 0.8]])
    np.testing.assert_array_equal(x, before)
    np.testing.assert_allclose(normalize([3, 4]), [0.6, 0.8])


def test_tensors_and_symbols_keep_their_type():
    labels = toolkit.ops.convert_to_tensor([[0], [2]])
    rows = to_categorical(labels, 3)
    assert toolkit.ops.is_tensor(rows) and rows.numpy().tolist() == [
        [1, 0, 0],
        [0, 0, 1],
    ]
    with pytest.raises(ArgumentError, match="num_classes is required"):
        to_categorical(labels)
    x = toolkit.ops.convert_to_tensor([[3.0, 4.0], [0.0, 0.0]])
    for order, first in ((1, 3 / 7), (2, 0.6)):
        unit = normalize(x, order=order)
        assert toolkit.ops.is_tensor(unit)
        np.testing.assert_allclose(unit.numpy()[:, 0], [first, 0.0], rtol=1e-6)
    symbol = toolkit.Input((4, 1), dtype="int32")
    assert to_categorical(symbol, 3).shape == (None, 4, 3)
    assert normalize(toolkit.Input((5,))).shape == (None, 5)
