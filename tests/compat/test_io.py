"""Tests of `tf.io`: bytes of tensors, rows of CSV files, features."""

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf
from tests.compat.io_calls import CALLS
from tests.compat.shown import mistakes
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    DatasetError,
    DTypeError,
    UnsupportedError,
)


def names():
    """Return the names that the calls may use."""
    train = tf.train
    lists = {
        "int64": train.Int64List,
        "float": train.FloatList,
        "bytes": train.BytesList,
    }

    def message(values, kind="int64"):
        feature = train.Feature(**{f"{kind}_list": lists[kind](value=values)})
        features = train.Features(feature={"a": feature})
        return train.Example(features=features).SerializeToString()

    def parsed(feature, kind="int64", values=(1, 2, 3, 4)):
        return tf.io.parse_single_example(message(values, kind), {"a": feature})

    def batch(rows, feature):
        return tf.io.parse_example(list(map(message, rows)), {"a": feature})

    namespace = {"tf": tf, "np": np, "I": tf.io, "C": tf.constant}
    return namespace | {"parsed": parsed, "batch": batch}


@pytest.mark.parametrize("group", CALLS)
def test_results_match_tensorflow(group):
    assert not mistakes(CALLS[group], names())


def test_bad_arguments_are_refused():
    cut = tf.io.serialize_tensor(tf.ones([3])).numpy()[:-4]
    with pytest.raises(DatasetError, match="parse_tensor: "):
        tf.io.parse_tensor(cut, tf.float32)
    huge = b"\x08\x01\x12\x0c\x12\x0a\x08" + b"\xff" * 8 + b"\x7f"
    with pytest.raises(DatasetError, match="parse_tensor: expected .* bytes"):
        tf.io.parse_tensor(huge, tf.float32)
    with pytest.raises(DTypeError, match="expected a tensor of int32; it has float32"):
        tf.io.parse_tensor(tf.io.serialize_tensor(1.0), tf.int32)
    with pytest.raises(ArgumentError, match="decode_csv: expected 1 fields"):
        tf.io.decode_csv(["1,2"], [[0]])
    for row in ('a"b,1', '"a"b,1', '"a,1'):
        with pytest.raises(ArgumentError, match="quotes around a full field"):
            tf.io.decode_csv(row, [[""], [0]])
    with pytest.raises(ArgumentError, match="select_cols: expected 2 rising"):
        tf.io.decode_csv("1,2,3", [[0], [0]], select_cols=[0])
    with pytest.raises(ArgumentError, match="field_delim: expected one character"):
        tf.io.decode_csv("1", [[0]], field_delim=",,")
    with pytest.raises(DTypeError, match="numeric dtype"):
        tf.io.decode_raw("abc", tf.string)
    with pytest.raises(ArgumentTypeError, match=r"Int64List: expected integers.*1\.5"):
        tf.train.Int64List(value=[1.5])
    features = {"x": tf.io.FixedLenSequenceFeature([], tf.int64)}
    with pytest.raises(UnsupportedError, match="expected allow_missing=True for 'x'"):
        tf.io.parse_single_example(tf.train.Example().SerializeToString(), features)


def test_features_are_sorted_by_name():
    one = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
    features = tf.train.Features(feature={"b": one, "a": one})
    message = tf.train.Example(features=features).SerializeToString()
    feature_specs = {name: tf.io.FixedLenFeature([], tf.int64) for name in "ba"}
    assert list(tf.io.parse_single_example(message, feature_specs)) == ["a", "b"]
    assert list(tf.io.parse_example([message], feature_specs)) == ["a", "b"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_tables_with_different_line_ends(tmp_path, end):
    path = tmp_path / "x.csv"
    path.write_bytes(end.join(["a,b", "1,1_000", "2,2_000", ""]).encode())
    dataset = tf.data.experimental.make_csv_dataset(
        str(path), 2, num_epochs=1, shuffle=False
    )
    (batch,) = list(dataset)
    assert np.asarray(batch["a"]).tolist() == [1, 2]
    assert [bytes(x) for x in np.asarray(batch["b"])] == [b"1_000", b"2_000"]


@pytest.mark.parametrize("text", ["1_000", "١٢", "1_0.5"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_non_numeric_strings_are_refused(tmp_path, text, dtype):
    with pytest.raises(ValueError, match="shows a number"):
        tf.strings.to_number(text, getattr(tf, dtype))
    with pytest.raises(ValueError):
        tf.io.decode_csv([text], [tf.constant([], getattr(tf, dtype))])
    path = tmp_path / "x.txt"
    path.write_text(f"a\t{text}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="number"):
        tf.lookup.TextFileInitializer(
            str(path), tf.string, 0, getattr(tf, dtype.replace("32", "64")), 1
        )
