"""Tests that read files of TensorFlow: see fixtures/make_tfrecords.py."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from toolkit.data import (
    FixedLenFeature,
    TFRecordDataset,
    TFRecordWriter,
    VarLenFeature,
    make_example,
    parse_example,
    parse_single_example,
    read_example,
)

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
EXAMPLES = json.loads((FIXTURES / "examples.json").read_text("utf-8"))
DTYPES = {"int64": np.int64, "float": np.float32}


def as_values(kind, values):
    """Return a feature of the fixture as read values."""
    if kind == "bytes":
        return [value.encode() for value in values]
    return np.array(values, DTYPES[kind]).tolist()


@pytest.mark.parametrize(
    ("name", "compression"), [("examples", None), ("examples_gzip", "GZIP")]
)
def test_examples_of_tensorflow_are_read(name, compression):
    dataset = TFRecordDataset(FIXTURES / f"{name}.tfrecord", compression)
    for data, expected in zip(dataset, EXAMPLES, strict=True):
        example = read_example(data)
        assert example.keys() == expected.keys()
        for feature_name, (kind, values) in expected.items():
            assert example[feature_name].tolist() == as_values(kind, values)
            if kind != "bytes":
                assert example[feature_name].dtype == DTYPES[kind]


def test_examples_of_tensorflow_are_parsed():
    records = TFRecordDataset(FIXTURES / "examples.tfrecord")
    features = {
        "n": VarLenFeature("int64"),
        "x": FixedLenFeature((), "float32", default_value=-1.0),
        "image": FixedLenFeature((), "string", default_value=b""),
    }
    record, *remaining = list(records)
    with pytest.raises(ValueError, match="'x'.*3 values"):
        parse_single_example(record, features)
    batch = parse_example(remaining, features)
    assert batch["n"].to_list() == [[], [7], []]
    assert batch["x"].tolist() == [1.5, -1.0, -1.0]
    assert batch["image"].tolist() == [b"", b"ab\0" * 60, b""]


def test_records_of_tensorflow_have_its_checksums(tmp_path):
    records = list(TFRecordDataset(FIXTURES / "records.tfrecord"))
    assert [len(record) for record in records] == [0, 1, 511, 512, 700]
    assert all(
        record == bytes(i % 251 for i in range(len(record))) for record in records
    )
    path = tmp_path / "again.tfrecord"
    with TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    assert path.read_bytes() == (FIXTURES / "records.tfrecord").read_bytes()
    compressed = tmp_path / "again.gz"
    with TFRecordWriter(compressed, "GZIP") as writer:
        for record in records:
            writer.write(record)
    assert gzip.decompress(compressed.read_bytes()) == path.read_bytes()


def test_examples_keep_the_kinds_of_empty_arrays():
    arrays = {
        "n": np.zeros(0, np.int64),
        "x": np.zeros(0, np.float32),
        "s": np.zeros(0, object),
        "b": [True, False],
        "t": ("a", b"b"),
        "none": [],
    }
    example = read_example(make_example(arrays))
    kinds = {name: values.dtype.kind for name, values in example.items()}
    assert kinds == {"n": "i", "x": "f", "s": "O", "b": "i", "t": "O"}
    assert example["t"].tolist() == [b"a", b"b"]
