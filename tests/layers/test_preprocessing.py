"""Test layers for categories, texts and numbers: against Keras, in models, saved."""

import json
from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.fixtures import preprocessing_cases
from tests.helpers import assert_close
from toolkit import layers
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.string_hashes import farm_hash, sip_hash
from toolkit.serialization import deserialize_keras_object, serialize_keras_object

STORED = json.loads(
    Path(preprocessing_cases.__file__).with_name("preprocessing.json").read_text()
)
TEXTS = np.array([["foo bar"], ["bar baz qux"]])


@pytest.fixture(scope="module")
def results():
    spaces = preprocessing_cases.feature_spaces(toolkit.utils.FeatureSpace)
    return preprocessing_cases.results(layers) | dict(spaces)


@pytest.mark.parametrize("name", STORED)
def test_equals_keras(results, name):
    assert results[name] == STORED[name]


def test_known_hashes():
    # https://www.aumasson.jp/siphash/siphash.pdf, appendix A.
    key = int.from_bytes(bytes(range(8)), "little")
    second_key = int.from_bytes(bytes(range(8, 16)), "little")
    assert sip_hash(bytes(range(15)), (key, second_key)) == 0xA129CA6149BE45E5
    assert farm_hash(b"") == 0x9AE16A3B2F90404F


def vectorizer(**arguments):
    layer = layers.TextVectorization(**arguments)
    layer.adapt(TEXTS)
    return layer


def text_model(**arguments):
    head = [layers.Embedding(10, 3), layers.Flatten()]
    return toolkit.Sequential(
        [
            toolkit.Input((1,), dtype="string"),
            vectorizer(**arguments),
            *(head if "output_mode" not in arguments else ()),
            layers.Dense(1),
        ]
    )


@pytest.mark.parametrize(
    "arguments",
    [{"output_sequence_length": 4}, {"output_mode": "tf_idf"}],
    ids=["int", "tf_idf"],
)
def test_texts_in_a_model(tmp_path, arguments):
    model = text_model(**arguments)
    expected = model(TEXTS)
    assert_close(model(TEXTS[:, 0]), expected)
    assert_close(model.predict(TEXTS, verbose=0), expected)
    model.save(tmp_path / "model.keras")
    assert_close(toolkit.models.load_model(tmp_path / "model.keras")(TEXTS), expected)
    model.compile(loss="mse")
    y = np.array([0.0, 1.0])
    assert np.isfinite(model.fit(TEXTS, y, verbose=0).history["loss"][0])
    assert np.isfinite(model.evaluate(TEXTS, y, verbose=0))


def test_strings_and_numbers_in_one_model(tmp_path):
    word, number = toolkit.Input((), dtype="string"), toolkit.Input((1,))
    lookup = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")
    scaled = layers.Normalization()
    scaled.adapt(np.array([[1.0], [4.0]]))
    features = layers.Concatenate()([lookup(word), scaled(number)])
    model = toolkit.Model([word, number], layers.Dense(1)(features))
    data = [np.array(["a", "z"]), np.ones((2, 1), "float32")]
    model.save(tmp_path / "model.keras")
    restored = toolkit.models.load_model(tmp_path / "model.keras")
    assert_close(restored(data), model(data))


def test_hashes_run_before_compiled_functions():
    layer = layers.Hashing(3)
    call = toolkit.function(lambda x: layer(x) + 1)
    for x in (np.array([1, 2]), np.array([3, 4])):
        assert_close(call(x), layer(x) + 1)
    assert call.trace_count == 1


def test_vocabulary_from_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("a\nb\n")
    layer = layers.StringLookup(vocabulary=str(path), mask_token="")
    assert layer.get_vocabulary() == ["", "[UNK]", "a", "b"]
    assert layer.get_config()["vocabulary"] is None


@pytest.mark.parametrize(
    "content, words",
    [
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),  # as Windows ends lines
        ("a\r\nb", ["a", "b"]),
        ("a\r\nb\n", ["a\r", "b"]),
        ("Größe\na\u2028b\x85\n", ["Größe", "a\u2028b\x85"]),
    ],
)
def test_lines_of_a_vocabulary(tmp_path, content, words):
    path = tmp_path / "words.txt"
    path.write_bytes(content.encode())
    layer = layers.StringLookup(vocabulary=str(path))
    assert layer.get_vocabulary() == ["[UNK]", *words]


def test_words_with_newlines_survive_a_save(tmp_path):
    layer = layers.StringLookup()
    layer.adapt(["a\u2028b", "c\x85", "d\r"])
    layer.save_assets(str(tmp_path))
    restored = layers.StringLookup()
    restored.load_assets(str(tmp_path))
    assert restored.get_vocabulary() == layer.get_vocabulary()


def test_adapt_by_batches():
    batches = [(["a b", "c"], [0, 1]), (["c d"], [1])]
    layer = layers.TextVectorization()
    layer.adapt(iter(batches), steps=1)
    assert layer.get_vocabulary() == ["", "[UNK]", "c", "b", "a"]
    numbers = np.arange(12.0).reshape(4, 3)
    at_once, by_batches = layers.Normalization(), layers.Normalization()
    at_once.adapt(numbers)
    by_batches.adapt([numbers[:1], numbers[1:]])
    assert_close(by_batches(numbers), at_once(numbers))


def test_normalization_values():
    x = np.arange(12.0).reshape(2, 2, 3)
    mean, variance = [1.0, 2.0, 3.0], [4.0, 9.0, 16.0]
    expected = (x - mean) / np.sqrt(variance)
    layer = layers.Normalization(mean=mean, variance=variance)
    assert_close(layer(x), expected.astype("float32"))
    inverse = layers.Normalization(mean=mean, variance=variance, invert=True)
    assert_close(inverse(expected), x.astype("float32"))
    two_axes = layers.Normalization(axis=(1, 2))
    two_axes.adapt(x)
    assert two_axes.mean.shape == (1, 2, 3)
    assert_close(two_axes(x), np.array([-np.ones((2, 3)), np.ones((2, 3))], "float32"))


def test_custom_functions_of_texts():
    layer = layers.TextVectorization(
        standardize=lambda texts: np.char.upper(texts),
        split=lambda texts: [text.split("-") for text in texts],
        vocabulary=["A", "B"],
    )
    assert layer(["a-b", "b"]).tolist() == [[2, 3], [3, 0]]


def test_count_weights():
    layer = layers.CategoryEncoding(3, output_mode="count")
    weights = np.array([[0.5, 2.0]])
    assert layer(np.array([[1, 1]]), count_weights=weights).tolist() == [[0, 2.5, 0]]


WRONG = [
    (layers.StringLookup, {"vocabulary": ["a", "a"]}, "repeated"),
    (layers.StringLookup, {"vocabulary": ["a", "", "b"], "mask_token": ""}, "reserved"),
    (layers.StringLookup, {"vocabulary": []}, "empty"),
    (layers.StringLookup, {"vocabulary": ["a", "b"], "max_tokens": 2}, "larger"),
    (layers.StringLookup, {"vocabulary": "/does/not/exist"}, "does not exist"),
    (layers.StringLookup, {"invert": True, "output_mode": "count"}, "invert"),
    (layers.StringLookup, {"pad_to_max_tokens": True}, "max_tokens"),
    (layers.IntegerLookup, {"salt": 3}, "farmhash"),
    (layers.IntegerLookup, {"sparse": True}, "sparse"),
    (layers.TextVectorization, {"ragged": True, "output_mode": "count"}, "ragged"),
    (layers.TextVectorization, {"split": "words"}, "whitespace"),
    (layers.Hashing, {"num_bins": 0}, "non-positive"),
    (layers.Hashing, {"num_bins": 2, "salt": [1]}, "salt"),
    (layers.Discretization, {}, "num_bins"),
    (layers.Discretization, {"bin_boundaries": [2.0, 1.0]}, "that ascend"),
    (layers.CategoryEncoding, {}, "num_tokens"),
    (layers.Normalization, {"mean": 1.0}, "variance"),
]


@pytest.mark.parametrize(
    ("cls", "arguments", "message"), WRONG, ids=[str(i) for i in range(len(WRONG))]
)
def test_invalid_arguments_are_refused(cls, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        cls(**arguments)


def test_values_outside_of_a_closed_vocabulary():
    layer = layers.StringLookup(vocabulary=["a"], num_oov_indices=0)
    with pytest.raises(ArgumentError, match="found OOV values"):
        layer(["a", "b"])


def test_pipeline_round_trip():
    steps = [layers.Rescaling(0.5), layers.Dropout(0.5)]
    pipeline = layers.Pipeline(steps)
    twin = layers.Pipeline.from_config(pipeline.get_config())
    assert [type(x) for x in twin.layers] == [type(x) for x in steps]
    x = np.ones((2, 3), "float32")
    assert twin(x, training=False).tolist() == [[0.5] * 3] * 2


def test_configs_contain_no_file_names(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("secret")
    for cls in (layers.StringLookup, layers.TextVectorization):
        config = serialize_keras_object(cls())
        config["config"]["vocabulary"] = str(path)
        with pytest.raises(ArgumentError, match="must not refer to files"):
            deserialize_keras_object(config)


def test_feature_space_in_a_model_and_a_file(tmp_path):
    make = toolkit.utils.FeatureSpace
    space = make(
        {"f": make.float(), "n": "float_normalized", "s": "string_categorical"},
        crosses=[("s", "s")],
    )
    with pytest.raises(ValueError, match="adapt"):
        space(preprocessing_cases.COLUMNS)
    columns = {name: preprocessing_cases.COLUMNS[name] for name in ("f", "n", "s")}
    space.adapt(columns)
    expected = space(columns)
    model = toolkit.Model(space.get_inputs(), space.get_encoded_features())
    assert_close(model(columns), expected)
    assert_close(model.predict(columns, verbose=0), expected)
    space.save(tmp_path / "space.keras")
    restored = toolkit.saving.load_model(tmp_path / "space.keras")
    assert_close(restored(columns), expected)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"num_oov_indices": 3},
        {"mask_token": 0},
        {"mask_token": 0, "output_mode": "multi_hot"},
        {"output_mode": "count", "num_oov_indices": 2},
        {"invert": True, "mask_token": 0},
    ],
    ids=str,
)
def test_integer_lookup_in_a_compiled_function(arguments):
    layer = layers.IntegerLookup(vocabulary=[42, 12, 1138], **arguments)
    x = np.array([[12, 0, -7], [3, 42, 2000], [1, 2, 1138]])
    assert_close(toolkit.function(layer)(x), layer(x))


def test_integer_lookup_that_cannot_be_compiled_runs_before():
    layer = layers.IntegerLookup(vocabulary=[1], num_oov_indices=0)
    call = toolkit.function(layer)
    assert call(np.array([1])).tolist() == [0]
    with pytest.raises(ArgumentError, match=r"OOV values \[2\]"):
        call(np.array([2]))


def test_adapt_by_batches_of_a_py_dataset():
    class Batches(toolkit.utils.PyDataset):
        num_batches = 2

        def __getitem__(self, index):
            return np.full((2, 1), float(index)), np.zeros(2)

    layer = layers.Normalization()
    layer.adapt(Batches())
    assert layer(np.array([[0.0], [1.0]])).tolist() == [[-1.0], [1.0]]
