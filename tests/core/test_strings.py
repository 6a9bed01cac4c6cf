"""Tests of strings: operations, layers and models move them but do not compute."""

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.core.strings import StringTensor
from toolkit.data import Dataset
from toolkit.errors import DTypeError

WORDS = np.array([["a", "b b"], ["c", "a"], ["é", ""]], object)
BYTES = np.array([[w.encode() for w in row] for row in WORDS.tolist()], object)


@pytest.mark.parametrize("function", [ops.convert_to_tensor, ops.array])
@pytest.mark.parametrize(
    "value", [WORDS, WORDS.tolist(), WORDS.astype(str), BYTES, StringTensor(WORDS)]
)
def test_strings_are_converted_to_bytes(function, value):
    x = function(value)
    assert (x.dtype, x.shape, x.ndim, x.size) == ("string", (3, 2), 2, 6)
    assert ops.shape(x) == (3, 2) and ops.ndim(x) == 2 and ops.size(x) == 6
    assert x.numpy().tolist() == ops.convert_to_numpy(x).tolist() == BYTES.tolist()
    assert function(value, "string").tolist() == BYTES.tolist()


def test_one_string_has_no_axes():
    x = ops.convert_to_tensor("text")
    assert x.shape == () and x.numpy() == b"text"


def test_bytes_keep_trailing_zeros():
    for value in (b"a\0", [b"a\0", b"abc"], [[b"a\0"], [b""]]):
        converted = ops.convert_to_tensor(value).numpy()
        assert np.array(converted, object).tolist() == value


@pytest.mark.parametrize("values", [["a", 1], [["a"], ["b", "c"]], ["a", None]])
def test_mixed_strings_and_numbers_are_refused(values):
    with pytest.raises((DTypeError, ValueError)):
        ops.convert_to_tensor(values)


REARRANGEMENTS = {
    "reshape": lambda x: ops.reshape(x, (2, -1)),
    "transpose": lambda x: ops.transpose(x),
    "expand_dims": lambda x: ops.expand_dims(x, -1),
    "squeeze": lambda x: ops.squeeze(ops.expand_dims(x, 0)),
    "concatenate": lambda x: ops.concatenate([x, x], axis=1),
    "stack": lambda x: ops.stack([x, x], axis=1),
    "take": lambda x: ops.take(x, [2, 0], axis=0),
    "repeat": lambda x: ops.repeat(x, 2, axis=0),
    "tile": lambda x: ops.tile(x, (1, 2)),
    "flip": lambda x: ops.flip(x, 0),
    "roll": lambda x: ops.roll(x, 1, 1),
    "broadcast_to": lambda x: ops.broadcast_to(x, (2, 3, 2)),
    "swapaxes": lambda x: ops.swapaxes(x, 0, 1),
    "vstack": lambda x: ops.vstack([x, x]),
    "ravel": lambda x: ops.ravel(x),
}


@pytest.mark.parametrize("name", REARRANGEMENTS)
@pytest.mark.parametrize("strings", [WORDS, BYTES, StringTensor(WORDS)])
def test_strings_are_rearranged_like_numbers(name, strings):
    numbers = np.arange(6).reshape(3, 2)
    expected = BYTES.reshape(-1)[np.asarray(REARRANGEMENTS[name](numbers))]
    actual = REARRANGEMENTS[name](strings)
    assert actual.dtype == "string" and actual.shape == expected.shape
    assert actual.tolist() == expected.tolist()


def test_slices_and_selections_of_strings():
    pieces = ops.split(StringTensor(WORDS), 3)
    assert [piece.tolist() for piece in pieces] == [[row] for row in BYTES.tolist()]
    rows = ops.unstack(StringTensor(WORDS))
    assert [row.tolist() for row in rows] == BYTES.tolist()
    selected = ops.where(np.array([True, False]), np.array(["x", "y"]), "z")
    assert selected.tolist() == [b"x", b"z"]
    assert StringTensor(WORDS)[1:, 0].tolist() == [b"c", "é".encode()]
    assert (StringTensor(["a", "b"]) == "a").tolist() == [True, False]


@pytest.mark.parametrize("operation", [ops.exp, ops.sum, lambda x: ops.add(x, 1)])
def test_arithmetic_on_strings_is_refused(operation):
    with pytest.raises(DTypeError, match="expected numbers"):
        operation(StringTensor(WORDS))


def test_known_indices_inside_a_trace():
    @toolkit.function
    def add_length(x):
        words = ops.take(StringTensor(["a", "b"]), x.shape[0] - 2, axis=0)
        return x * len(words.numpy())

    assert add_length(np.ones(3)).tolist() == [1, 1, 1]
    with pytest.raises(
        DTypeError, match="take: a traced function cannot select strings"
    ):
        toolkit.function(lambda i: ops.take(WORDS, i, axis=0))(np.array(0))


LAYERS = {
    "lookup": lambda: layers.StringLookup(vocabulary=["a", "c"]),
    "lookup, one-hot": lambda: layers.StringLookup(
        vocabulary=["a", "c"], output_mode="multi_hot"
    ),
    "hashing": lambda: layers.Hashing(num_bins=5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_accept_all_types_of_strings(name):
    layer = LAYERS[name]()
    expected = np.asarray(layer(WORDS)).tolist()
    inputs = [BYTES, WORDS.tolist(), StringTensor(WORDS)]
    assert [np.asarray(layer(words)).tolist() for words in inputs] == [expected] * 3


def text_model():
    vectorize = layers.TextVectorization(output_sequence_length=3)
    vectorize.adapt(StringTensor(WORDS.reshape(-1)))
    inputs = toolkit.Input((1,), dtype="string")
    x = layers.Embedding(10, 4)(vectorize(inputs))
    outputs = layers.Dense(1)(layers.GlobalAveragePooling1D()(x))
    return toolkit.Model(inputs, outputs)


def test_a_model_of_texts():
    model, texts = text_model(), WORDS[:, :1]
    expected = np.asarray(model(texts))
    np.testing.assert_array_equal(model(StringTensor(texts)), expected)
    for data in (texts, Dataset.from_tensor_slices(texts).batch(2)):
        predictions = model.predict(data, verbose=0)
        np.testing.assert_allclose(predictions, expected, rtol=1e-5)
    model.compile("sgd", "mse")
    data = Dataset.from_tensor_slices((texts, np.ones((3, 1)))).batch(3)
    initial_loss = model.evaluate(data, verbose=0)
    model.fit(data, epochs=5, verbose=0)
    assert model.evaluate(data, verbose=0) < initial_loss


def test_a_feature_space_of_strings():
    rows = {
        "word": np.array(["a", "b", "a", "c"], object),
        "number": np.array([1.0, 2.0, 3.0, 4.0], "float32"),
    }
    targets = np.array([0.0, 1.0, 0.0, 1.0], "float32")
    space = toolkit.utils.FeatureSpace(
        {"word": "string_categorical", "number": "float_normalized"},
        crosses=[],
        output_mode="concat",
    )
    data = Dataset.from_tensor_slices((rows, targets)).batch(2)
    space.adapt(data.map(lambda x, y: x))
    encoded = space.get_encoded_features()
    model = toolkit.Model(encoded, layers.Dense(1)(encoded))
    model.compile("sgd", "mse")
    model.fit(data.map(lambda x, y: (space(x), y)), verbose=0)
    full_model = toolkit.Model(space.get_inputs(), model(encoded))
    row = {"word": ops.convert_to_tensor(["c"]), "number": ops.convert_to_tensor([4.0])}
    assert full_model.predict(row, verbose=0).shape == (1, 1)
    columns = {key: ops.expand_dims(value, -1) for key, value in row.items()}
    np.testing.assert_allclose(full_model(row), full_model(columns), rtol=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        "ab",
        ["ab", "c"],
        np.array(["ab", "c"], object),
        np.array(["ab", "c"]),
        np.zeros(0, object),
    ],
    ids=str,
)
def test_strings_become_new_arrays_of_objects(values):
    array = toolkit.ops.convert_to_numpy(values)
    assert array.dtype == object and array.shape == np.shape(values)
    assert array.tolist() == np.asarray(values, object).tolist()
    assert array is not values


def test_tokens_of_an_inverse_lookup_become_an_array():
    lookup = toolkit.layers.StringLookup(vocabulary=["a", "b"], invert=True)
    assert toolkit.ops.convert_to_numpy(lookup([1, 2])).tolist() == ["a", "b"]
