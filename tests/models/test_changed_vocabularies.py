"""Test that compiled steps follow vocabularies and boundaries that change."""

import numpy as np
import pytest

import toolkit
from toolkit import layers

INTEGERS = np.array([[5], [6], [9], [3]])
NUMBERS = np.array([[0.5], [4.0], [7.5], [9.0]], "float32")
TEXTS = np.array([["a"], ["b"], ["c"], ["z"]])


def integer_lookup(mode):
    layer = layers.IntegerLookup(vocabulary=[5, 6, 7], output_mode=mode)
    return layer, INTEGERS, lambda: layer.set_vocabulary([9, 5, 3])


def adapted_integer_lookup(mode):
    layer = layers.IntegerLookup(output_mode=mode)
    layer.adapt(np.array([5, 5, 6]))
    return layer, INTEGERS, lambda: layer.adapt(np.array([3, 3, 9]))


def string_lookup(mode):
    layer = layers.StringLookup(vocabulary=["a", "b", "c"], output_mode=mode)
    return layer, TEXTS, lambda: layer.set_vocabulary(["z", "c", "a"])


def text_vectorization(mode):
    layer = layers.TextVectorization(vocabulary=["a", "b", "c"], output_mode=mode)
    return layer, TEXTS, lambda: layer.set_vocabulary(["z", "c", "a"])


def tf_idf(mode):
    layer = layers.IntegerLookup(
        vocabulary=[5, 6, 7], idf_weights=[1.0, 2.0, 3.0], output_mode="tf_idf"
    )
    return layer, INTEGERS, lambda: layer.set_vocabulary([5, 6, 7], [3.0, 2.0, 1.0])


def discretization(mode):
    layer = layers.Discretization(num_bins=3, output_mode=mode)
    layer.adapt(np.arange(9.0)[:, None])
    return layer, NUMBERS, lambda: layer.adapt(np.arange(4.0)[:, None])


def normalization(mode):
    layer = layers.Normalization()
    layer.adapt(np.ones((3, 1)))
    return layer, NUMBERS, lambda: layer.adapt(NUMBERS)


@pytest.mark.parametrize("mode", ["int", "multi_hot"])
@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        *(integer_lookup, adapted_integer_lookup, string_lookup, text_vectorization),
        *(tf_idf, discretization, normalization),
    ],
)
def test_predict_follows_a_changed_layer(make, mode, is_nested):
    layer, x, change = make(mode)
    dtype = "string" if x.dtype.kind == "U" else x.dtype.name
    inputs = layers.Input((1,), dtype=dtype)
    model = toolkit.Model(inputs, layer(inputs))
    if is_nested:
        model = toolkit.Sequential([layers.Input((1,), dtype=dtype), model])
    before = model.predict(x, verbose=0)
    np.testing.assert_array_equal(before, np.asarray(layer(x)))
    change()
    after = model.predict(x, verbose=0)
    np.testing.assert_array_equal(after, np.asarray(layer(x)))
    assert not np.array_equal(before, after)


def test_a_step_is_traced_once_without_a_change():
    layer, x, change = integer_lookup("int")
    inputs = layers.Input((1,), dtype="int64")
    model = toolkit.Model(inputs, layer(inputs))
    for _ in range(3):
        model.predict(x, verbose=0)
    assert model.predict_function.trace_count == 1
    change()
    for _ in range(3):
        model.predict(x, verbose=0)
    assert model.predict_function.trace_count == 2
