"""Tests of `tf.keras.preprocessing`: texts and series, with results of Keras."""

import random

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import ArgumentError, ArgumentTypeError

text = tf.keras.preprocessing.text
sequence = tf.keras.preprocessing.sequence

TEXTS = ["The cat sat, on the mat!", "A dog\tsat on THE log; the cat."]


def fitted(**arguments):
    tokenizer = text.Tokenizer(**arguments)
    tokenizer.fit_on_texts(TEXTS)
    return tokenizer


def test_words_are_numbered_by_their_counts():
    tokenizer = fitted()
    assert list(tokenizer.word_index) == "the cat sat on mat a dog log".split()
    assert list(tokenizer.word_index.values()) == list(range(1, 9))
    assert tokenizer.word_counts["the"] == 4 and tokenizer.word_docs["the"] == 2
    assert tokenizer.index_docs[1] == 2 and tokenizer.document_count == 2
    tokenizer.fit_on_texts([["LOG", "log"], ["log"]])
    assert tokenizer.word_index["log"] == 2 and tokenizer.document_count == 4


@pytest.mark.parametrize(
    "arguments, expected, words",
    [
        ({}, [1, 7, 4], "the dog on"),
        ({"num_words": 5}, [1, 4], "the on"),
        ({"oov_token": "?"}, [2, 8, 1, 5], "the dog ? on"),
        ({"oov_token": "?", "num_words": 5}, [2, 1, 1, 1], "the ? ? ?"),
        ({"lower": False}, [8, 3], "dog on"),
        ({"analyzer": lambda x: x.lower().split()}, [1, 7, 2], "the dog on"),
    ],
)
def test_texts_become_numbers_and_texts_again(arguments, expected, words):
    tokenizer = fitted(**arguments)
    assert tokenizer.texts_to_sequences(["thE dog zebra on"]) == [expected]
    assert tokenizer.texts_to_sequences([["thE", "dog", "zebra", "on"]]) == [expected]
    assert tokenizer.sequences_to_texts([expected]) == [words]


def test_characters():
    tokenizer = fitted(char_level=True)
    assert list(tokenizer.word_index)[:4] == [" ", "t", "a", "h"]
    assert tokenizer.texts_to_sequences(["At?"]) == [[3, 2]]


@pytest.mark.parametrize(
    "mode, row",
    [
        ("binary", [0, 1, 1, 0, 0]),
        ("count", [0, 2, 1, 0, 0]),
        ("freq", [0, 2 / 3, 1 / 3, 0, 0]),
        ("tfidf", [0, 0.86490, 0.51083, 0, 0]),
    ],
)
def test_matrices(mode, row):
    matrix = fitted(num_words=5).texts_to_matrix(["the cat the dog", ""], mode)
    np.testing.assert_allclose(matrix, [row, [0] * 5], atol=1e-5)
    assert fitted().texts_to_matrix([]).shape == (0, 9)


def test_rows_of_numbers_are_counted():
    tokenizer = text.Tokenizer(num_words=6)
    tokenizer.fit_on_sequences([[1, 2, 2], [2, 5]])
    assert tokenizer.index_docs == {1: 1, 2: 2, 5: 1}
    matrix = tokenizer.sequences_to_matrix([[2, 9]], "tfidf")
    np.testing.assert_allclose(matrix, [[0, 0, 0.51083, 0, 0, 0]], atol=1e-5)


def test_tokenizers_as_json():
    tokenizer = fitted(num_words=5, oov_token="?")
    same = text.tokenizer_from_json(tokenizer.to_json(indent=1))
    assert same.get_config() == tokenizer.get_config()
    assert same.texts_to_matrix(TEXTS, "tfidf").tolist() == (
        tokenizer.texts_to_matrix(TEXTS, "tfidf").tolist()
    )


def test_hashes():
    assert text.hashing_trick("a b C a", 50, "md5") == [15, 33, 1, 15]
    assert text.hashing_trick("a bb", 5, len) == [2, 3]
    numbers = text.one_hot("a b a", 9)
    assert numbers[0] == numbers[2] and set(numbers) <= set(range(1, 9))


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: text.Tokenizer(words=3), ArgumentTypeError),
        (lambda: text.Tokenizer().texts_to_matrix(["a"]), ArgumentError),
        (lambda: text.Tokenizer(3).texts_to_matrix(["a"], "tfidf"), ArgumentError),
        (lambda: fitted().texts_to_matrix(["a"], "counts"), ArgumentError),
        (lambda: text.hashing_trick("a", 1), ArgumentError),
        (lambda: text.hashing_trick("a", 9, "sha"), ArgumentError),
        (lambda: sequence.TimeseriesGenerator([1], [1, 2], 1), ArgumentError),
        (lambda: sequence.TimeseriesGenerator([1, 2], [1, 2], 2), ArgumentError),
    ],
)
def test_bad_arguments_are_refused(call, error):
    with pytest.raises(error):
        call()


def test_the_older_name_of_an_argument():
    with pytest.warns(UserWarning, match="num_words"):
        assert text.Tokenizer(nb_words=3).num_words == 3


SERIES = np.arange(20)


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"length": 17}, [([list(range(i, i + 17)) for i in range(3)], [17, 18, 19])]),
        (
            {"length": 3, "sampling_rate": 2, "stride": 5, "batch_size": 2},
            [([[0, 2], [5, 7]], [3, 8]), ([[10, 12], [15, 17]], [13, 18])],
        ),
        (
            {"length": 2, "start_index": 4, "end_index": 7, "reverse": True},
            [([[5, 4], [6, 5]], [6, 7])],
        ),
    ],
)
def test_windows_of_series(arguments, expected):
    windows = sequence.TimeseriesGenerator(SERIES, SERIES, **arguments)
    batches = [[x.tolist() for x in windows[i]] for i in range(len(windows))]
    assert batches == [[x, y] for x, y in expected]


def test_windows_at_random():
    windows = sequence.TimeseriesGenerator(
        *(SERIES.tolist(), SERIES.tolist(), 4), shuffle=True, batch_size=6
    )
    np.random.seed(3)
    x, y = windows[0]
    assert y.tolist() == (np.random.RandomState(3).randint(4, 20, size=6)).tolist()
    assert x.tolist() == [list(range(i - 4, i)) for i in y]


def test_models_learn_from_windows():
    windows = sequence.TimeseriesGenerator(SERIES / 20, SERIES / 20, 3, batch_size=4)
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    losses = model.fit(windows, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_pairs_of_words():
    random.seed(5)
    couples, labels = sequence.skipgrams([1, 2, 0, 3], 10, window_size=1, seed=4)
    near = [pair for pair, label in zip(couples, labels, strict=True) if label]
    assert sorted(near) == [[1, 2], [2, 1]] and labels.count(0) == 2
    assert all(0 < word < 10 for pair in couples for word in pair)
    _, labels = sequence.skipgrams([1, 2], 10, categorical=True, shuffle=False)
    assert labels == [[0, 1]] * 2 + [[1, 0]] * 2
    table = sequence.make_sampling_table(10, 1e-3)
    assert np.all(np.diff(table) >= 0) and 0 < table[0] < table[-1] <= 1
    none = sequence.skipgrams([1, 2, 3], 10, sampling_table=np.zeros(10))
    assert none == ([], [])
