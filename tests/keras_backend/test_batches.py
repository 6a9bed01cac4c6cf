"""Test that the batches of arrays equal the batches of Keras."""

import keras_toolkit  # noqa: F401  # isort: skip

import numpy as np
import pytest
from keras.src import tree
from keras.src.trainers.epoch_iterator import EpochIterator

from keras_toolkit.batches import BatchIterator

X = np.arange(22, dtype="float64").reshape(11, 2)
Y = np.arange(11)
DATA = {
    "x": {"x": X},
    "x and y": {"x": X, "y": Y},
    "weights": {"x": X, "y": Y, "sample_weight": np.linspace(0, 1, 11)},
    "class weights": {"x": X, "y": Y % 2, "class_weight": {0: 1.0, 1: 3.0}},
    "dict and list": {"x": {"b": X, "a": [Y, X[:, :1]]}, "y": (Y, X)},
    "an absent label": {"x": X, "y": None, "sample_weight": np.ones(11)},
    "a list": {"x": [X]},
    "lists of one array": {"x": [X], "y": {"a": Y}},
    "empty columns": {"x": X[:, :0], "y": Y},
}


def batches(kind, shuffle, data, epochs, **options):
    np.random.seed(3)  # Keras draws the order from this generator
    iterator = kind(shuffle=shuffle, batch_size=4, **data, **options)
    result = []
    for _ in range(epochs):
        iterator.reset()
        result += list(iterator)
    return result, np.random.random()


@pytest.mark.parametrize("options", [{}, {"steps_per_execution": 3}], ids=str)
@pytest.mark.parametrize("shuffle", [True, False, "batch"])
@pytest.mark.parametrize("name", DATA)
def test_batches_and_draws_equal_those_of_keras(name, shuffle, options):
    expected, expected_draw = batches(EpochIterator, shuffle, DATA[name], 2, **options)
    received, draw = batches(BatchIterator, shuffle, DATA[name], 2, **options)
    assert draw == expected_draw
    assert len(received) == len(expected)
    for ours, keras_batch in zip(received, expected, strict=True):
        tree.assert_same_structure(ours, keras_batch)
        pairs = zip(tree.flatten(ours), tree.flatten(keras_batch), strict=True)
        for x, y in pairs:
            assert type(x) is type(y)
            assert getattr(x, "dtype", None) == getattr(y, "dtype", None)
            np.testing.assert_array_equal(x, y)
