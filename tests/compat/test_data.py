"""Data sets under TensorFlow's names."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.compat.data_calls import CALLS
from tests.compat.shown import mistakes
from toolkit.errors import UnsupportedError


def names():
    """What the calls may use."""
    dataset = tf.data.Dataset

    def generated(generator, args, dtype):
        spec = tf.TensorSpec([], dtype)
        return dataset.from_generator(generator, output_signature=spec, args=args)

    return {
        "tf": tf,
        "np": np,
        "C": tf.constant,
        "D": dataset,
        "E": tf.data.experimental,
        "doubles": dataset.from_tensor_slices(np.array([1.5, 2.5])),
        "generated": generated,
        "one": dataset.range(1),
        "rows": dataset.range(1, 4).map(lambda x: tf.fill([x], x)),
        "three": dataset.range(3),
        "words": dataset.from_tensor_slices(["a", "b"]),
    }


@pytest.mark.parametrize("group", CALLS)
def test_results_are_tensorflows(group):
    assert not mistakes(CALLS[group], names())


def test_saved_strings_and_readers(tmp_path):
    path = tf.constant(str(tmp_path / "saved"))
    tf.data.Dataset.from_tensor_slices({"a": ["x", "y"], "b": [1.0, 2.0]}).save(path)
    loaded = tf.data.Dataset.load(path)
    assert [(e["a"].numpy(), float(e["b"])) for e in loaded] == [(b"x", 1), (b"y", 2)]
    assert loaded.element_spec["a"] == tf.TensorSpec([], tf.string)
    assert loaded.element_spec["a"].dtype == tf.string

    def reader(datasets):
        return datasets.flat_map(lambda dataset: dataset).map(lambda e: e["a"])

    assert list(tf.data.Dataset.load(path, reader_func=reader).as_numpy_iterator()) == [
        b"x",
        b"y",
    ]


def test_names_of_files_are_tensors(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n", encoding="utf-8")
    for pattern in (tmp_path / "*", [tmp_path / "a", tmp_path / "b"]):
        pattern = tf.constant(
            list(map(str, pattern)) if type(pattern) is list else str(pattern)
        )
        files = tf.data.Dataset.list_files(pattern, shuffle=False)
        assert [x.numpy() for x in files] == [
            str(tmp_path / name).encode() for name in "ab"
        ]
    lines = files.interleave(tf.data.TextLineDataset, cycle_length=2)
    assert list(lines.as_numpy_iterator()) == [b"a1", b"b1", b"a2", b"b2"]
    assert lines.element_spec == tf.TensorSpec([], tf.string)


def test_what_is_none_is_told_in_the_spec():
    dataset = tf.data.Dataset.range(2).map(lambda x: (x, None))
    number, nothing = dataset.element_spec
    assert number == tf.TensorSpec([], tf.int64) and repr(nothing) == "NoneTensorSpec()"
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    inputs = tf.data.Dataset.from_tensor_slices(np.ones((4, 2), "float32"))
    pairs = inputs.map(lambda x: (x, None)).batch(2)
    assert model.predict(pairs, verbose=0).shape == (4, 1)


def test_sparse_tensors_are_refused():
    with pytest.raises(UnsupportedError, match=r"Dataset: sparse tensors are no elem"):
        tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense([[0, 1]]))


def test_lines_of_any_encoding(tmp_path):
    (tmp_path / "a").write_bytes(b"\xff\xfe\nok\n")
    lines = tf.data.TextLineDataset(str(tmp_path / "a"))
    assert list(lines.as_numpy_iterator()) == [b"\xff\xfe", b"ok"]
    assert [line.numpy() for line in lines] == [b"\xff\xfe", b"ok"]


def test_strings_are_padded_as_they_are():
    words = tf.data.Dataset.from_tensor_slices(["a", "bb", "c"]).padded_batch(2)
    found = [batch.tolist() for batch in words.as_numpy_iterator()]
    assert found == [[b"a", b"bb"], [b"c"]]
    assert [batch.numpy().tolist() for batch in words] == found
