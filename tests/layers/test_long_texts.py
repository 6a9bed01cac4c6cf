"""Test that one long string among many does not need a rectangle of memory."""

import numpy as np
import pytest

import toolkit as tk
from tests.helpers import allocated_by
from toolkit import layers
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.preprocessing.host import blocks_of

ROWS, LENGTH = 3_000, 100_000
NAIVE = 4 * ROWS * LENGTH  # bytes, if all strings had the longest length
MOST = 100 << 20
WORDS = [f"w{i % 7}" for i in range(ROWS)]
LONG_WORD = "x" * LENGTH
MANY_WORDS = "w1 w2 " * (LENGTH // 6)


def upper(texts):
    assert texts.dtype.kind == "U"
    return np.char.upper(texts)


def at_spaces(texts):
    assert texts.dtype.kind == "U" and texts.ndim == 1
    return [text.split(" ") for text in texts]


def vectorization(**options):
    return layers.TextVectorization(vocabulary=["w1", "w2", "W1", "W2"], **options)


LAYERS = {
    "texts": lambda: vectorization(output_sequence_length=3),
    "codes": lambda: vectorization(output_mode="count"),
    "weighted codes": lambda: vectorization(
        output_mode="tf_idf", idf_weights=[1.0, 2.0, 3.0, 4.0]
    ),
    "n-grams": lambda: vectorization(output_mode="multi_hot", ngrams=2),
    "standardized": lambda: vectorization(standardize=upper, output_sequence_length=3),
    "split": lambda: vectorization(
        standardize=upper, split=at_spaces, output_mode="count"
    ),
    "lookup": lambda: layers.StringLookup(vocabulary=["w1", "w2"]),
    "hashed lookup": lambda: layers.StringLookup(num_oov_indices=3, vocabulary=["w1"]),
    "hashing": lambda: layers.Hashing(10),
    "masked hashing": lambda: layers.Hashing(10, mask_value="w1", salt=3),
}
FORMS = {
    "list": lambda texts: texts,
    "column": lambda texts: [[text] for text in texts],
    "objects": lambda texts: np.array(texts, object),
    "bytes": lambda texts: [text.encode() for text in texts],
    "tensor": tk.ops.convert_to_tensor,
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("input_form", FORMS)
@pytest.mark.one_in(4)
def test_layers(name, input_form):
    long = LONG_WORD[: LENGTH // 10] if "masked" in name else MANY_WORDS
    texts = [*WORDS[:10], long, *WORDS[10:]]
    layer = LAYERS[name]()
    result, peak = allocated_by(lambda: layer(FORMS[input_form](texts)))
    assert peak < MOST < NAIVE / 10
    result = np.asarray(result)
    for row in (0, 1, 9, 10, 11, 500, ROWS):
        single = np.asarray(layer(FORMS[input_form]([texts[row]])))
        np.testing.assert_array_equal(result[row], single[0])


@pytest.mark.parametrize("name", ["texts", "codes", "lookup"])
def test_models_need_memory_for_actual_lengths(name):
    inputs = tk.Input((1,), dtype="string")
    model = tk.Model(inputs, LAYERS[name]()(inputs))
    texts = np.array([*WORDS[:10], MANY_WORDS, *WORDS[10:]], object)[:, None]
    result, peak = allocated_by(
        lambda: model.predict(texts, batch_size=4096, verbose=0)
    )
    assert peak < MOST
    np.testing.assert_array_equal(result, LAYERS[name]()(texts))


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.StringLookup(),
        lambda: layers.TextVectorization(),
        lambda: layers.TextVectorization(standardize=upper, split=at_spaces),
    ],
)
def test_adapting(make):
    layer = make()
    _, peak = allocated_by(lambda: layer.adapt([*WORDS, LONG_WORD]))
    assert peak < MOST
    assert len(layer.get_vocabulary()[-1]) == LENGTH
    assert layer.vocabulary_size() in (9, 10)


def test_long_word_in_a_vocabulary():
    words = [*map(str, range(ROWS)), LONG_WORD]
    layer, peak = allocated_by(lambda: layers.StringLookup(vocabulary=words))
    assert peak < MOST
    assert layer.get_config()["vocabulary"] == words
    assert layer([LONG_WORD]).tolist() == [ROWS + 1]


def test_ragged_lists_are_refused():
    for x in ([["a"], ["b", "c"]], ["a", ["b"]]):
        with pytest.raises(ArgumentError, match="rows of equal length"):
            layers.StringLookup(vocabulary=["a"])(x)


def test_split_that_loses_texts_is_refused():
    layer = layers.TextVectorization(split=lambda texts: [["a"]], vocabulary=["a"])
    with pytest.raises(ShapeError, match="each of 2 texts; received 1"):
        layer(["a", "b"])


@pytest.mark.parametrize("columns", [1, 2])
def test_rows_of_several_texts_are_standardized(columns):
    words = ["w1", "w2", LONG_WORD] + ["w3"] * (ROWS - 3)
    texts = np.array(words, object).reshape(-1, columns)
    layer = vectorization(standardize=upper, split=None)
    result, peak = allocated_by(lambda: layer(texts))
    assert peak < MOST
    expected = [{"w1": 4, "w2": 5}.get(word, 1) for word in words]
    assert np.asarray(result).reshape(-1).tolist() == expected


@pytest.mark.parametrize("options", [{}, {"output_mode": "count"}])
def test_no_texts(options):
    layer = vectorization(**options)
    empty = np.asarray(layer(np.zeros(0, object)))
    assert len(empty) == 0 and empty.ndim == 2


LENGTHS = {
    "usual": [3, 1, 2],
    "none": [],
    "all empty": [0] * 5,
    "one long": [10] * 1000 + [1 << 24] + [10] * 1000,
    "several long": [1 << 22, 5, 1 << 21, 7, 1 << 21],
    "growing": [1 << i for i in range(24)],
    "even": [1 << 12] * 5000,
}


@pytest.mark.parametrize("name", LENGTHS)
def test_blocks(name):
    blocks = blocks_of(LENGTHS[name])
    lengths = np.array(LENGTHS[name], "int64")
    assert sorted(np.concatenate(blocks).tolist()) == list(range(len(lengths)))
    filled = [lengths[rows].max(initial=0) * len(rows) for rows in blocks]
    assert all(n <= max(1 << 22, lengths.max(initial=0)) for n in filled)
    if name in ("usual", "none", "all empty"):
        assert len(blocks) == 1 and (np.diff(blocks[0]) == 1).all()
