"""Test objects of the TensorFlow names in functions and layers of the core."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.core.test_strings import LAYERS, WORDS, text_model
from tests.test_honoured_arguments import is_documented
from toolkit.utils import split_dataset


@pytest.mark.parametrize("name", LAYERS)
def test_layers_accept_strings(name):
    layer = LAYERS[name]()
    strings = layer(tf.constant(WORDS.tolist()))
    np.testing.assert_array_equal(strings, np.asarray(layer(WORDS)))


def test_a_model_accepts_texts():
    model, texts = text_model(), WORDS[:, :1]
    strings = tf.constant(texts.tolist())
    np.testing.assert_array_equal(model(strings), np.asarray(model(texts)))


def test_batches_of_tensors_are_split_by_samples():
    batches = tf.data.Dataset.range(10).batch(3)
    for splits in (
        split_dataset(batches, 0.4),
        tf.keras.utils.split_dataset(batches, 4),
    ):
        values = [[batch.numpy().tolist() for batch in split] for split in splits]
        assert values == [[[0, 1, 2], [3]], [[4, 5, 6], [7, 8, 9]]]


def test_operation_names_are_documented_as_unused():
    assert is_documented("name", tf.__doc__)


def test_assign_without_read_value_returns_none():
    v = tf.Variable([1.0, 2.0])
    assert v.assign_add([1.0, 1.0], read_value=False) is None
    assert v.assign([3.0, 4.0]).numpy().tolist() == [3.0, 4.0]
