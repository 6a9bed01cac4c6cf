"""Test that another batch size is planned again, and compiles no kernel."""

from __future__ import annotations

import numpy as np
import pytest

import toolkit as tk

pytest.importorskip("llvmlite")

layers = tk.layers
# Kernels are specialized for one sample, the height of a tile, one or two vectors, and
# for a remainder after full tiles. Vectors have 4, 8 or 16 numbers.
FIRST = (1, 2, 4, 6, 9, 12, 17, 25, 32, 33, 49, 64)


def perceptron():
    """Return a model from numbers to a number."""
    return tk.Sequential([tk.Input((6,)), layers.Dense(9, "relu"), layers.Dense(1)])


def convolutional():
    """Return a model from images to classes that depends on all samples of a batch."""
    return tk.Sequential(
        [
            tk.Input((8, 8, 3)),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(3, "softmax"),
        ]
    )


def recurrent():
    """Return a model from words to a probability."""
    return tk.Sequential(
        [
            tk.Input((5,), dtype="int32"),
            layers.Embedding(20, 8),
            layers.LSTM(8),
            layers.Dense(1, "sigmoid"),
        ]
    )


def transformer():
    """Return a model from words to logits of words."""
    tokens = tk.Input((8,), dtype="int32")
    x = layers.Embedding(20, 16)(tokens)
    y = layers.LayerNormalization()(x)
    x = layers.add([x, layers.MultiHeadAttention(2, 8)(y, y, use_causal_mask=True)])
    y = layers.Dense(32, "gelu")(layers.LayerNormalization()(x))
    return tk.Model(tokens, layers.Dense(20)(layers.add([x, layers.Dense(16)(y)])))


def floats(*shape):
    return lambda n: np.random.default_rng(0).random((n, *shape), "float32")


def integers(limit, *shape):
    return lambda n: np.random.default_rng(0).integers(0, limit, (n, *shape), "int32")


CLASSES = tk.losses.SparseCategoricalCrossentropy
# The network, its loss and metrics, and functions for its inputs and targets.
MODELS = {
    "mlp": (perceptron, "mse", ["mae"], floats(6), floats(1)),
    "cnn": (convolutional, CLASSES(), ["accuracy"], floats(8, 8, 3), integers(3)),
    "lstm": (recurrent, "binary_crossentropy", [], integers(20, 5), floats(1)),
    "gpt": (transformer, CLASSES(True), [], integers(20, 8), integers(20, 8)),
}


def fitting(name):
    """Return a function that trains a model on a batch of a size."""
    build, loss, metrics, inputs, targets = MODELS[name]
    model = build()
    model.compile("adam", loss, metrics=metrics)
    return lambda n: model.train_on_batch(inputs(n), targets(n))


def evaluating(name):
    """Return a function that evaluates a model."""
    build, loss, metrics, inputs, targets = MODELS[name]
    model = build()
    model.compile("adam", loss, metrics=metrics)
    return lambda n: model.test_on_batch(inputs(n), targets(n))


def predicting(name):
    """Return a function that predicts."""
    build, _, _, inputs, _ = MODELS[name]
    model = build()
    return lambda n: model.predict_on_batch(inputs(n))


def calling(name):
    """Return a function that computes the gradient of a mean."""
    build, _, _, inputs, _ = MODELS[name]
    model = build()

    @tk.function
    def slope(x):
        with tk.GradientTape() as tape:
            y = model(x)
            loss = tk.ops.mean(y * y) + tk.ops.mean(tk.ops.var(y, axis=0))
        return tape.gradient(loss, model.trainable_variables)

    return lambda n: slope(tk.ops.convert_to_tensor(inputs(n)))


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Return a function that returns the kernels that were compiled in this test."""
    monkeypatch.setenv("TOOLKIT_CACHE_DIR", str(tmp_path))
    return lambda: {path for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("function", [fitting, evaluating, predicting, calling])
@pytest.mark.one_in(4)
def test_another_batch_size_compiles_no_kernel(compiled, function, name):
    run = function(name)
    for size in FIRST:
        run(size)
    kernels = compiled()
    for size in (5, 11, 23, 30, 41, 58):
        run(size)
    assert compiled() == kernels


@pytest.mark.parametrize("name", MODELS)
def test_row_has_the_same_bits_in_all_batch_sizes(name):
    build, _, _, inputs, _ = MODELS[name]
    model, x = build(), inputs(64)
    expected = model.predict_on_batch(x)
    for size in (1, 2, 3, 5, 16, 17, 33):
        np.testing.assert_array_equal(model.predict_on_batch(x[:size]), expected[:size])


@pytest.mark.parametrize("name", ["mlp", "cnn"])
@pytest.mark.one_in(2)
@pytest.mark.usefixtures("no_free_extents")
def test_64_batch_sizes_compile_no_more_than_the_first_few(compiled, name):
    run = fitting(name)
    for size in FIRST:
        run(size)
    kernels = compiled()
    for size in range(1, 65):
        run(size)
    assert compiled() == kernels
