"""Tests of compressed records, sequence examples, sets, averages and boxes."""

import numpy as np
import pytest

import toolkit
import toolkit.compat.tensorflow as tf
from toolkit import data
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    MalformedDataError,
    ShapeError,
    UnsupportedError,
)

RECORDS = [b"one", b"", b"three" * 1000]


@pytest.mark.parametrize("compression", [None, "", "GZIP", "ZLIB"])
@pytest.mark.parametrize("level", [None, 0, 9])
def test_compressed_records_round_trip(tmp_path, compression, level):
    path = tmp_path / "records"
    options = tf.io.TFRecordOptions(compression, compression_level=level)
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in RECORDS:
            writer.write(record)
            writer.flush()
    read = tf.data.TFRecordDataset(str(path), compression_type=compression or None)
    assert list(read.as_numpy_iterator()) == RECORDS
    writer.close()  # a second time
    size = path.stat().st_size
    assert (size < 2000) == (bool(compression) and level != 0)


def test_compressions_without_a_name():
    with pytest.raises(ArgumentError, match="TFRecordWriter: options"):
        tf.io.TFRecordWriter("/nowhere/file", "LZ4")
    with pytest.raises(ArgumentError, match="compression_level from -1 to 9"):
        data.TFRecordWriter("/nowhere/file", "ZLIB", 12)
    with pytest.raises(ArgumentError, match="compression_type"):
        tf.io.decode_compressed("a", "LZ4")
    with pytest.raises(MalformedDataError, match="decode_compressed"):
        tf.io.decode_compressed("no zlib", "ZLIB")


# --- sequences ------------------------------------------------------------------------

MESSAGE = data.make_sequence_example(
    {"n": [3]}, {"x": [[1, 2], [3, 4]], "w": [[b"a", b"b"], [b"c"]]}
)
STEPS = tf.io.FixedLenSequenceFeature([2], tf.int64)


def test_messages_round_trip():
    context, lists = data.read_sequence_example(MESSAGE)
    assert context["n"].tolist() == [3]
    assert [step.tolist() for step in lists["x"]] == [[1, 2], [3, 4]]
    example = tf.train.SequenceExample.FromString(MESSAGE)
    assert example == tf.train.SequenceExample.FromString(example.SerializeToString())
    assert 'key: "w"' in str(example)


def test_sequences_of_the_core_are_arrays():
    features = {"x": data.examples.FixedLenSequenceFeature((2,), "int64")}
    ragged = {"w": data.VarLenFeature("string")}
    _, steps = data.parse_single_sequence_example(MESSAGE, {}, features | ragged)
    assert steps["x"].tolist() == [[1, 2], [3, 4]]
    assert steps["w"].values.tolist() == [b"a", b"b", b"c"]
    assert steps["w"].row_splits.tolist() == [0, 2, 3]


def test_sequences_in_a_data_set():
    def parse(message):
        _, steps = tf.io.parse_single_sequence_example(message, None, {"x": STEPS})
        return steps["x"]

    dataset = tf.data.Dataset.from_tensors(MESSAGE).map(parse)
    assert next(iter(dataset)).numpy().tolist() == [[1, 2], [3, 4]]


SEQUENCES = {
    "single(MESSAGE)": (ArgumentError, "context_features or sequence_features"),
    "single(b'\\xff', None, {'x': STEPS})": (
        MalformedDataError,
        "not a SequenceExample",
    ),
    "single(MESSAGE, None, {'z': STEPS})": (MalformedDataError, "no feature list 'z'"),
    "single(MESSAGE, None, {'w': STEPS})": (DTypeError, "expected 'w' of dtype int64"),
    "single(MESSAGE, {'z': one})": (MalformedDataError, "no feature 'z'"),
    "single(MESSAGE, None, {'x': one})": (ArgumentError, "FixedLenSequenceFeature"),
    "single(MESSAGE, None, {'x': three})": (
        ShapeError,
        r"steps of 'x' of shape \(3,\)",
    ),
    "batch([MESSAGE], None, {'w': words})": (
        UnsupportedError,
        "one sequence at a time",
    ),
}


@pytest.mark.parametrize("call", SEQUENCES)
def test_refusals_of_sequences(call):
    error, message = SEQUENCES[call]
    names = {
        "MESSAGE": MESSAGE,
        "STEPS": STEPS,
        "one": tf.io.FixedLenFeature([], tf.int64),
        "three": tf.io.FixedLenSequenceFeature([3], tf.int64),
        "words": tf.io.VarLenFeature(tf.string),
        "single": tf.io.parse_single_sequence_example,
        "batch": tf.io.parse_sequence_example,
    }
    with pytest.raises(error, match=message):
        eval(call, names)


# --- sets -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["union", "intersection", "difference"])
def test_sets_match_python(name):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (2, 5, 3, 4))
    result = getattr(tf.sets, name)(a, b)
    assert tuple(result.shape)[:2] == (5, 3)
    rows = {}
    for (i, j, _), value in zip(
        result.indices.numpy(), result.values.numpy(), strict=True
    ):
        rows.setdefault((i, j), []).append(value)
    for index in np.ndindex(5, 3):
        expected = getattr(set, name)(set(a[index].tolist()), set(b[index].tolist()))
        assert rows.get(index, []) == sorted(expected)


SETS = {
    "tf.sets.union([1, 2], [2, 3])": (ShapeError, "at least 2 axes"),
    "tf.sets.union([[1, 2]], [[2], [3]])": (ShapeError, "equal shapes"),
    "tf.sets.union([[1]], tf.constant([[1]], tf.int64))": (TypeError, "equal dtypes"),
    "tf.sets.union([[1.0]], [[1.0]])": (TypeError, "integers or strings"),
    "tf.sets.size([[1]])": (TypeError, "expected a SparseTensor"),
}


@pytest.mark.parametrize("call", SETS)
def test_refusals_of_sets(call):
    error, message = SETS[call]
    with pytest.raises(error, match=message):
        eval(call)


# --- moving averages ------------------------------------------------------------------


def test_averages_approach_values():
    averages = tf.train.ExponentialMovingAverage(0.9)
    v, w = tf.Variable(1.0), tf.Variable([2.0, 3.0])
    assert averages.average(v) is None
    averages.apply([v, w])
    v.assign(2.0)
    averages.apply([v, w])
    assert float(averages.average(v)) == pytest.approx(1.1)
    assert averages.average(w).numpy().tolist() == [2, 3]
    assert not averages.average(v).trainable
    names = averages.variables_to_restore([v])
    assert list(names) == [averages.average_name(v)] and names.popitem()[1] is v


def test_the_decay_grows_with_the_number_of_updates():
    averages = tf.train.ExponentialMovingAverage(0.9, num_updates=3)
    v = tf.Variable(2.0)
    averages.apply([v])
    v.assign(5.0)
    averages.apply([v])
    assert float(averages.average(v)) == pytest.approx(4.076923)


def test_averages_update_in_functions():
    v = tf.Variable(1.0)
    averages = tf.train.ExponentialMovingAverage(0.5)
    step = tf.function(lambda: averages.apply([v]))
    step()
    v.assign(2.0)
    step()
    step()
    assert float(averages.average(v)) == 1.75
    assert step.experimental_get_tracing_count() <= 2


def test_averages_are_of_floating_variables():
    averages = tf.train.ExponentialMovingAverage(0.9)
    with pytest.raises(ArgumentTypeError, match="floating dtypes"):
        averages.apply([tf.Variable(1)])
    with pytest.raises(ArgumentTypeError, match="expected Variables"):
        averages.apply([tf.constant(1.0)])


# --- boxes ----------------------------------------------------------------------------

BOXES = {
    "padded(np.ones((2, 3, 4)), np.ones((2, 3)), 2)": "batches need pad_to_max",
    "padded(np.ones((3, 4)), np.ones(2), 2)": "non_max_suppression_padded",
    "overlaps(np.ones((3, 4)), np.ones(3), 2)": "non_max_suppression_overlaps",
    "combined(np.ones((1, 3, 2, 4)), np.ones((1, 3, 3)), 1, 1)": "combined_non_max",
    "combined(np.ones((1, 3, 4)), np.ones((1, 3, 3)), 1, 1)": "combined_non_max",
}


@pytest.mark.parametrize("call", BOXES)
def test_refusals_of_boxes(call):
    names = {
        "np": np,
        "padded": tf.image.non_max_suppression_padded,
        "overlaps": tf.image.non_max_suppression_overlaps,
        "combined": tf.image.combined_non_max_suppression,
    }
    with pytest.raises(ShapeError, match=BOXES[call]):
        eval(call, names)


def test_no_box_is_selected():
    boxes = tf.image.combined_non_max_suppression(
        np.zeros((2, 3, 1, 4), "float32"),
        np.zeros((2, 3, 2), "float32"),
        2,
        3,
        0.5,
        0.5,
    )
    assert boxes.valid_detections.numpy().tolist() == [0, 0]
    assert boxes.nmsed_boxes.shape == (2, 3, 4)
    assert toolkit.ops.sum(boxes.nmsed_scores) == 0
