"""Test TimeDistributed: masks of the steps and of their content, several outputs."""

import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, layers, ops

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4, 5)).astype("float32")
WORDS = np.array(
    [[[1, 2, 0, 0], [3, 0, 0, 0], [0] * 4], [[1, 1, 1, 1], [0] * 4, [0] * 4]]
)
MASK = WORDS != 0


class Silent(layers.Layer):
    """A layer without support for masks."""

    def call(self, inputs):
        return inputs * 2.0


class Nested(layers.Layer):
    """A layer with a dict of outputs, one of which has a mask."""

    def call(self, inputs):
        return {"same": inputs * 1.0, "sum": ops.sum(inputs, axis=1)}

    def compute_mask(self, inputs, previous_mask):
        return {"same": previous_mask, "sum": None}


def masked():
    x = ops.convert_to_tensor(X)
    return layers.Masking()(x * MASK[..., None])


@pytest.mark.parametrize(
    "inner, expected",
    [
        (lambda: layers.Dense(2), MASK),
        (lambda: layers.LSTM(2, return_sequences=True), MASK),
        (lambda: layers.LSTM(2), MASK.any(2)),
        (layers.Flatten, MASK.any(2)),
        (Silent, MASK.any(2)),
        (lambda: toolkit.Sequential([layers.Dense(2), layers.GRU(2)]), MASK.any(2)),
        (lambda: toolkit.Sequential([layers.Dense(2)]), MASK),
        (lambda: layers.TimeDistributed(layers.Dense(2)), MASK),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_the_mask_of_the_outputs(inner, expected, training):
    layer = layers.TimeDistributed(inner())
    y = layer(masked(), training=training)
    np.testing.assert_array_equal(y._keras_mask, expected)
    inputs = Input((3, 4, 5))
    model = Model(inputs, layer(layers.Masking()(inputs)))
    np.testing.assert_allclose(model(masked(), training=training), y, rtol=1e-5)


def test_inner_layer_may_create_the_mask():
    layer = layers.TimeDistributed(layers.Embedding(5, 2, mask_zero=True))
    np.testing.assert_array_equal(layer(WORDS)._keras_mask, MASK)


@pytest.mark.parametrize("batch", [None, 2])
def test_words_in_sentences_in_documents(batch):
    embedding = layers.Embedding(5, 4, mask_zero=True)
    words, sentences = layers.LSTM(3), layers.GRU(2)
    inputs = Input((3, 4), batch_size=batch, dtype="int32")
    x = layers.TimeDistributed(words)(embedding(inputs))
    model = Model(inputs, sentences(x))
    first_document = [words(embedding(WORDS[:1, k, :n])) for k, n in ((0, 2), (1, 1))]
    second_document = words(embedding(WORDS[1:, 0]))
    expected = [
        sentences(ops.stack(first_document, axis=1)),
        sentences(ops.expand_dims(second_document, 1)),
    ]
    predictions = model.predict(WORDS, verbose=0)
    np.testing.assert_allclose(
        predictions, np.concatenate(expected), rtol=1e-5, atol=1e-6
    )


def test_mask_of_steps_is_not_a_mask_of_the_inner_sequence():
    layer = layers.TimeDistributed(layers.LSTM(2))
    y = layer(X, mask=ops.convert_to_tensor(MASK.any(2)))
    np.testing.assert_allclose(y, layer(X), rtol=1e-6)
    np.testing.assert_array_equal(y._keras_mask, MASK.any(2))


@pytest.mark.parametrize("penalty", [None, "l2"])
def test_layer_of_several_outputs(penalty):
    inputs = Input((4, 5))
    dense = layers.Dense(2, activity_regularizer=penalty)
    inner = Model(inputs, [dense(inputs), layers.Rescaling(2.0)(inputs)])
    layer = layers.TimeDistributed(inner)
    first_output, second_output = layer(X)
    np.testing.assert_allclose(
        first_output, X @ dense.kernel.numpy(), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(second_output, 2 * X)
    outer = Input((3, 4, 5))
    model = Model(outer, layer(outer))
    assert model.output_shape == [(None, 3, 4, 2), (None, 3, 4, 5)]
    np.testing.assert_allclose(model.predict(X, verbose=0)[0], first_output, rtol=1e-5)


@pytest.mark.parametrize("rows", ["together", "one by one"])
def test_several_outputs_have_separate_masks(rows):
    layer = layers.TimeDistributed(Nested())
    layer._adds_losses = rows == "one by one"
    outputs = layer(masked())
    np.testing.assert_allclose(outputs["sum"], ops.sum(masked(), axis=2), rtol=1e-6)
    np.testing.assert_array_equal(outputs["same"]._keras_mask, MASK)


def test_outputs_of_nested_time_distributed_models():
    inputs = Input((4, 5))
    inner = Model(inputs, {"a": layers.Dense(2)(inputs), "b": inputs * 2.0})
    layer = layers.TimeDistributed(layers.TimeDistributed(inner))
    outputs = layer(X[None])
    assert outputs["a"].shape == (1, 2, 3, 4, 2)
    np.testing.assert_allclose(outputs["b"][0], 2 * X)
