"""Tests of layers and models with ragged rows and sparse tensors, as in TensorFlow."""

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from toolkit.errors import ArgumentError

ROWS = [[1, 2], [3], [4, 5, 6]]
TARGETS = np.array([1.0, 2.0, 3.0])
L = tf.keras.layers


def vectorizer(**options):
    """Return a layer that maps each word to its index, in ragged rows."""
    return L.TextVectorization(ragged=True, vocabulary=["a", "b"], **options)


def test_texts_become_ragged_rows():
    rows = vectorizer()(["a b a", "", "c"])
    assert isinstance(rows, tf.RaggedTensor) and rows.dtype == tf.int64
    assert rows.to_list() == [[2, 3, 2], [], [1]]
    letters = vectorizer(split="character")(tf.constant(["ab", "c"]))
    assert letters.to_list() == [[2, 3], [1]]
    data = tf.data.Dataset.from_tensor_slices(["a b", "c"]).batch(2).map(vectorizer())
    assert next(iter(data)).to_list() == [[2, 3], [1]]
    config = vectorizer().get_config()
    assert L.TextVectorization.from_config(config)(["b"]).to_list() == [[3]]


@pytest.mark.parametrize(
    "options", [{"output_mode": "multi_hot"}, {"output_sequence_length": 2}]
)
def test_arguments_that_contradict_ragged(options):
    with pytest.raises(ArgumentError, match="ragged"):
        vectorizer(**options)


def test_layers_of_ragged_rows():
    rows = tf.ragged.constant(ROWS)
    table = L.Embedding(7, 2, embeddings_initializer="ones")
    vectors = table(rows)
    assert vectors.shape.as_list() == [3, None, 2]
    assert L.Dense(4)(vectors).shape.as_list() == [3, None, 4]
    assert L.GlobalAveragePooling1D()(vectors).numpy().tolist() == [[1.0, 1.0]] * 3
    assert L.GlobalMaxPooling1D()(-vectors).numpy().tolist() == [[-1.0, -1.0]] * 3
    rnn = L.GRU(3)
    last = rnn(vectors).numpy()
    output = rnn(vectors[1][tf.newaxis]).numpy()
    np.testing.assert_allclose(last[1], output[0], rtol=1e-5)
    lookup = L.StringLookup(vocabulary=["a", "b"])
    words = tf.ragged.constant([["a"], ["b", "c"]])
    assert lookup(words).to_list() == [[1], [2, 0]]
    codes = L.StringLookup(vocabulary=["a", "b"], output_mode="multi_hot")(words)
    assert codes.numpy().tolist() == [[0, 1, 0], [1, 0, 1]]


class MeanOfRows(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.last = L.Embedding(50, 8), L.Dense(1)

    def call(self, x):
        vectors = tf.ragged.map_flat_values(self.table, x)
        return self.last(tf.reduce_mean(vectors, axis=1))


MODELS = {
    "sequential": lambda: [L.Embedding(50, 8), L.GRU(4), L.Dense(1)],
    "with an input": lambda: [
        tf.keras.Input((None,), dtype="int64", ragged=True),
        *(L.Embedding(50, 8), L.GRU(4), L.Dense(1)),
    ],
    "padded by a function": lambda: [
        L.Lambda(lambda rows: rows.to_tensor()),
        *(L.Embedding(50, 8), L.GRU(4), L.Dense(1)),
    ],
}


@pytest.mark.filterwarnings("ignore:.*steps run as Python code.*ragged rows")
@pytest.mark.parametrize("kind", [*MODELS, "own class"])
def test_models_are_trained_with_ragged_rows(kind):
    rows = tf.ragged.constant(ROWS)
    model = MeanOfRows() if kind == "own class" else tf.keras.Sequential(MODELS[kind]())
    model.compile(loss="mse", optimizer="adam")
    history = model.fit(rows, TARGETS, batch_size=2, epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]
    outputs = model.predict(rows, verbose=0)
    assert outputs.shape == (3, 1)
    if kind == "padded by a function":  # longer rows change it
        return
    np.testing.assert_allclose(outputs[1], model(rows[1:2]).numpy()[0], rtol=1e-4)
    data = tf.data.Dataset.from_tensor_slices((rows, TARGETS)).batch(2)
    loss = model.evaluate(data, verbose=0)
    assert loss == pytest.approx(model.evaluate(rows, TARGETS, verbose=0), rel=1e-5)


def test_models_of_texts_with_ragged_rows():
    layers = [vectorizer(), L.Embedding(4, 3), L.GRU(4), L.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.compile(loss="mse", optimizer="adam")
    data = tf.data.Dataset.from_tensor_slices((["a b a", "c"], [1.0, 0.0])).batch(2)
    with pytest.warns(UserWarning, match="TextVectorization.*RaggedTensor") as log:
        model.fit(data, verbose=0)
        outputs = model.predict(tf.constant(["a", "b a"]), verbose=0)
    assert len(log) == 1 and outputs.shape == (2, 1)


def test_models_are_trained_with_sparse_tensors():
    matrix = tf.SparseTensor([[0, 1], [1, 0], [2, 3]], [1.0, 2.0, 3.0], [3, 4])
    dense = tf.sparse.to_dense(matrix).numpy()
    layer = L.Dense(2)
    assert layer(matrix).numpy().tolist() == layer(dense).numpy().tolist()
    model = tf.keras.Sequential([tf.keras.Input((4,), sparse=True), L.Dense(1)])
    model.compile(loss="mse", optimizer="sgd")
    model.fit(matrix, TARGETS, verbose=0)
    np.testing.assert_allclose(
        model.predict(matrix, verbose=0), model.predict(dense, verbose=0), rtol=1e-6
    )


CODES = {
    "int64": [
        L.StringLookup(vocabulary=["a"], output_mode="one_hot"),
        L.StringLookup(vocabulary=["a"], output_mode="multi_hot"),
        L.StringLookup(vocabulary=["a"], output_mode="count"),
        L.TextVectorization(vocabulary=["a"], output_mode="multi_hot"),
        L.TextVectorization(vocabulary=["a"], output_mode="count"),
        L.TextVectorization(vocabulary=["a"]),
    ],
    "float32": [
        L.StringLookup(vocabulary=["a"], output_mode="tf_idf", idf_weights=[1.0]),
        L.TextVectorization(vocabulary=["a"], output_mode="tf_idf", idf_weights=[1.0]),
        L.Hashing(3, output_mode="one_hot"),
    ],
}


@pytest.mark.parametrize("dtype", CODES)
def test_dtypes_of_codes_are_those_of_keras(dtype):
    for layer in CODES[dtype]:
        assert layer(tf.constant([["a"], ["b"]])).dtype == dtype
        symbol = layer(toolkit.Input((1,), dtype="string"))
        assert symbol.dtype == dtype
