"""Test invalid values of layers: fractions as indices, words without vocabulary."""

import warnings

import numpy as np
import pytest

import toolkit
from toolkit import GradientTape, Sequential, Variable, layers, ops, utils
from toolkit.errors import ArgumentError, NotBuiltError

REFUSED = {
    "a fraction in an Embedding": (
        lambda: layers.Embedding(5, 2, name="words")(np.array([[1.5]])),
        "Embedding 'words': expected indices, whole numbers; received 1.5",
    ),
    "a fraction in one_hot": (lambda: ops.one_hot([1.5], 3), "received 1.5"),
    "less than no classes": (lambda: ops.one_hot([1], -3), "num_classes >= 0"),
    "a category below 0": (
        lambda: layers.CategoryEncoding(3)(np.array([[-1, 1]])),
        "0 <= values < num_tokens with num_tokens=3.*from -1 to 1",
    ),
    "a category too large": (
        lambda: layers.CategoryEncoding(3)(np.array([[7, 1]])),
        "from 1 to 7",
    ),
    "a class below 0": (lambda: utils.to_categorical([-1], 3), "from 0 to 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_values_that_are_no_indices_are_refused(case):
    function, message = REFUSED[case]
    with pytest.raises(ArgumentError, match=message):
        function()


def test_integral_floats_are_accepted():
    layer = layers.Embedding(5, 2)
    expected = layer(np.array([[1, 4]])).numpy()
    assert np.array_equal(layer(np.array([[1.0, 4.0]], "float32")), expected)
    run = toolkit.function(lambda x: layer(x))
    assert np.array_equal(run(np.array([[1.0, 4.0]], "float32")), expected)
    assert ops.one_hot([1.0, 0.0], 2).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_fraction_in_a_compiled_embedding():
    model = Sequential([layers.Embedding(5, 2), layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
    with pytest.raises(IndexError, match="an input of an Embedding"):
        model.fit(np.full((4, 3), 1.5), np.ones((4, 1)), verbose=0)


def test_fraction_in_a_compiled_one_hot_is_no_class():
    run = toolkit.function(lambda x: ops.one_hot(x, 3))
    assert run(np.array([1.5, 2.0], "float32")).tolist() == [[0, 0, 0], [0, 0, 1]]


EMBEDDINGS = {
    "float32": lambda layer: None,
    "int8": lambda layer: layer.quantize("int8"),
    "int4": lambda layer: layer.quantize("int4"),
    "lora": lambda layer: layer.enable_lora(2),
}


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
@pytest.mark.parametrize("change", EMBEDDINGS)
@pytest.mark.parametrize("index", [-1, -5, -6, 5])
@pytest.mark.filterwarnings("ignore:.*no trainable weights")
def test_out_of_range_index_of_an_embedding(index, change, dtype):
    layer = layers.Embedding(5, 4, name="words")
    layer.build()
    EMBEDDINGS[change](layer)
    x = np.array([[0, index]], dtype)
    with pytest.raises(IndexError, match=rf"{index}\b"):
        layer(x)
    model = toolkit.Sequential([toolkit.Input((2,), dtype=dtype), layer])
    model.compile("sgd", "mse", jit_compile=dtype != "int64")
    y = np.zeros((1, 2, 4))
    for method in (model.predict, lambda x, **k: model.fit(x, y, **k)):
        with pytest.raises(IndexError, match=rf"{index}\b"):
            method(x, verbose=0)
    assert np.isfinite(model.predict(np.array([[0, 4]], dtype), verbose=0)).all()


UNADAPTED = {
    "TextVectorization": lambda: layers.TextVectorization()(["a b"]),
    "TextVectorization in width": lambda: layers.TextVectorization(
        max_tokens=5, output_mode="multi_hot", pad_to_max_tokens=True
    )(["a b"]),
    "StringLookup": lambda: layers.StringLookup()(np.array([["a"]])),
    "StringLookup back": lambda: layers.StringLookup(invert=True)(np.array([[1]])),
    "IntegerLookup": lambda: layers.IntegerLookup()(np.array([[3]])),
    "Discretization": lambda: layers.Discretization(num_bins=3)(np.array([[1.0]])),
    "FeatureSpace": lambda: utils.FeatureSpace(
        {"x": "float_normalized"}, output_mode="concat"
    )({"x": np.ones(2)}),
}


@pytest.mark.parametrize("case", UNADAPTED)
def test_unadapted_layers_are_refused(case):
    with pytest.raises(NotBuiltError, match="adapt"):
        UNADAPTED[case]()


def test_vocabulary_makes_a_lookup_ready(tmp_path):
    with_vocabulary = layers.StringLookup(vocabulary=["a"])
    learned = layers.StringLookup()
    learned.adapt(["a"])
    with_assigned_vocabulary = layers.StringLookup()
    with_assigned_vocabulary.set_vocabulary(["a"])
    for layer in (with_vocabulary, learned, with_assigned_vocabulary):
        assert layer(np.array([["a"], ["b"]])).tolist() == [[1], [0]]


def test_normalization_without_statistics_warns_once():
    x = np.array([[1.0, 2.0], [3.0, 6.0]], "float32")
    layer = layers.Normalization(name="scaled")
    with pytest.warns(UserWarning, match="'scaled': it has not been adapted"):
        assert np.array_equal(layer(x), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x)
        adapted = layers.Normalization()
        adapted.adapt(x)
        adapted(x)
        layers.Normalization(mean=0.0, variance=1.0)(x)


def test_unadapted_normalization_in_a_model():
    model = Sequential([layers.Normalization(), layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="not been adapted"):
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)


def test_gradients_of_integers_warn():
    number, rate = Variable([1, 2]), Variable([1.0, 2.0])
    with GradientTape() as tape:
        y = ops.sum(ops.square(number))
    with pytest.warns(UserWarning, match="a target of int32, which gives None"):
        assert tape.gradient(y, number) is None
    with GradientTape() as tape:
        y = ops.sum(ops.cast(number, "float32") * rate)
    with pytest.warns(UserWarning, match="a source of int32"):
        assert tape.gradient(y, number) is None
    with GradientTape() as tape:
        y = ops.sum(ops.cast(number, "float32") * rate)
    assert tape.gradient(y, [number, rate])[1].tolist() == [1.0, 2.0]
