"""Tests of `tf.lookup` with results of TensorFlow 2.21."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from toolkit.errors import ArgumentError, DTypeError

Contents = tf.lookup.KeyValueTensorInitializer
WORDS = Contents(["a", "b", "é"], [5, 6, 7])


def values_of(x):
    return x.numpy().tolist()


def test_strings_as_keys():
    table = tf.lookup.StaticHashTable(WORDS, -1)
    indices = table.lookup(tf.constant([["b", "z"], ["é", "a"]]))
    assert values_of(indices) == [[6, -1], [7, 5]] and indices.dtype == tf.int32
    assert int(table[tf.constant("a")]) == 5 and int(table.size()) == 3
    keys, values = table.export()
    assert values_of(values) == [5, 6, 7] and values_of(keys)[0] == b"a"
    data = tf.data.Dataset.from_tensor_slices(["a", "q"]).map(table.lookup)
    assert [int(x) for x in data] == [5, -1]


def test_integers_as_keys():
    table = tf.lookup.StaticHashTable(Contents([3, 1, 9], [0.5, 1.5, 2.5]), 0.0)
    assert values_of(table.lookup(tf.constant([[9, 1], [0, 3]]))) == [
        [2.5, 1.5],
        [0, 0.5],
    ]
    traced = tf.function(lambda x: table.lookup(x) + 1.0)
    assert values_of(traced(tf.constant([9, 7]))) == [3.5, 1.0]
    assert traced.trace_count == 1
    empty = tf.lookup.StaticHashTable(Contents(np.zeros(0, "int64"), []), 4.0)
    assert values_of(empty.lookup(tf.constant([1, 2]))) == [4.0, 4.0]


def test_strings_as_values():
    table = tf.lookup.StaticHashTable(Contents([3, 1], ["x", "y"]), "?")
    assert values_of(table.lookup(tf.constant([1, 2]))) == [b"y", b"?"]
    traced = tf.function(lambda x: table.lookup(x))
    with pytest.warns(UserWarning, match="calls a lookup of strings"):
        assert values_of(traced(tf.constant([3]))) == [b"x"]


def test_vocabularies():
    words = Contents(["a", "b", "c"], tf.constant([0, 1, 2], tf.int64))
    table = tf.lookup.StaticVocabularyTable(words, 5)
    indices = table.lookup(tf.constant(["a", "zz", "yy", "hello world", "c", ""]))
    assert values_of(indices) == [0, 5, 5, 4, 2, 6] and indices.dtype == tf.int64
    assert int(table.size()) == 8
    numbers = Contents([10, 20], tf.constant([0, 1], tf.int64))
    table = tf.lookup.StaticVocabularyTable(numbers, 7)
    keys = tf.constant([10, 20, 30, -4, 12345], tf.int64)
    assert values_of(table.lookup(keys)) == [0, 1, 2, 5, 8]
    none = tf.lookup.StaticVocabularyTable(None, 2)
    assert set(values_of(none.lookup(tf.constant(["a", "b", "c"])))) <= {0, 1}


def test_files(tmp_path):
    path, index = tmp_path / "words.txt", tf.lookup.TextFileIndex
    path.write_text("one\t1\ntwo\t2\n", "utf-8")

    def table(*columns, **options):
        contents = tf.lookup.TextFileInitializer(str(path), *columns, **options)
        return tf.lookup.StaticHashTable(contents, -1)

    columns = table(tf.string, 0, tf.int64, 1)
    assert values_of(columns.lookup(tf.constant(["two", "x"]))) == [2, -1]
    lines = table(tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
    assert values_of(lines.lookup(tf.constant(["two\t2", "two"]))) == [1, -1]
    with pytest.raises(ArgumentError, match="expected 3 lines"):
        table(tf.string, 0, tf.int64, 1, vocab_size=3)
    with pytest.raises(ArgumentError, match="more than 2 columns; line 0 has 2"):
        table(tf.string, 0, tf.int64, 2)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: Contents(["a", "b"], [1]), ArgumentError),
        (lambda: Contents(["a", "a"], [1, 2]), ArgumentError),
        (lambda: tf.lookup.StaticVocabularyTable(WORDS, 2), ArgumentError),
        (lambda: tf.lookup.StaticVocabularyTable(None, 0), ArgumentError),
        (
            lambda: tf.lookup.StaticHashTable(WORDS, -1).lookup(tf.constant([1])),
            DTypeError,
        ),
    ],
)
def test_bad_arguments_are_refused(call, error):
    with pytest.raises(error):
        call()


def test_layers_return_tensors_of_tensorflow():
    layers = tf.keras.layers
    words, numbers = tf.constant(["a", "b"]), tf.constant([1, 2])
    results = (
        layers.StringLookup(vocabulary=["a"])(words),
        layers.StringLookup(vocabulary=["a"], output_mode="one_hot")(words),
        layers.IntegerLookup(vocabulary=[1])(numbers),
        layers.Hashing(3)(words),
        layers.HashedCrossing(3)((words, numbers)),
        layers.TextVectorization(vocabulary=["a"])(words),
    )
    assert all(x.dtype is tf.int64 for x in results)
