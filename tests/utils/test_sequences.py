"""Test windows of a time series, and padded sequences."""

import re

import numpy as np
import pytest

import toolkit
from toolkit import utils
from toolkit.errors import ArgumentError, ShapeError


@pytest.mark.parametrize("batch_size", [None, 2])
def test_windows(batch_size):
    data = np.arange(40).reshape(20, 2)
    arguments = {"sequence_length": 3, "sequence_stride": 2, "sampling_rate": 2}
    windows = utils.timeseries_dataset_from_array(
        data,
        data[:, 0] * 10,
        start_index=4,
        end_index=15,
        batch_size=batch_size,
        **arguments,
    )
    starts = range(4, 11, 2)
    pairs = list(windows)
    if batch_size:
        pairs = [pair for x, y in pairs for pair in zip(x, y, strict=True)]
    assert len(pairs) == len(starts)
    for start, (x, y) in zip(starts, pairs, strict=True):
        np.testing.assert_array_equal(x, data[[start, start + 2, start + 4]])
        assert y == data[start, 0] * 10


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data,
        lambda data: data.map(lambda x, y: (x * 2, y)),
        lambda data: data.shuffle(4).prefetch(1).take(2),
        lambda data: type(data).zip((data.map(lambda x, y: x), data)),
    ],
)
def test_loops_receive_tensors(change):
    data = utils.timeseries_dataset_from_array(np.arange(9.0), np.arange(9), 3)
    data = change(data)
    element = next(iter(data))
    leaves = toolkit.tree.flatten(element)
    assert all(type(x) is toolkit.Tensor and len(x.numpy()) == 7 for x in leaves)
    arrays = toolkit.tree.flatten(next(data.as_numpy_iterator()))
    assert all(type(x) is np.ndarray for x in arrays)


def test_windows_in_random_order():
    windows = utils.timeseries_dataset_from_array(
        np.arange(50), None, sequence_length=1, shuffle=True, seed=1, batch_size=50
    )
    first, second = (next(iter(windows)).numpy().ravel() for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(50))
    assert list(first) != list(range(50)) and list(first) != list(second)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start_index": -1}, "`start_index` must be 0 or"),
        ({"start_index": 5, "end_index": 4}, "`end_index` must be higher than `sta"),
        ({"end_index": 50}, "`end_index` must be lower"),
        ({"sampling_rate": 0}, "`sampling_rate` must be higher"),
        ({"sequence_stride": 50}, "`sequence_stride` must be lower"),
        ({"format": "list"}, "format"),
    ],
)
def test_windows_are_checked(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        utils.timeseries_dataset_from_array(np.arange(20), None, 3, **arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [[0, 0, 1], [2, 3, 4], [0, 0, 0]]),
        ({"padding": "post", "value": 9}, [[1, 9, 9], [2, 3, 4], [9, 9, 9]]),
        ({"maxlen": 2}, [[0, 1], [3, 4], [0, 0]]),
        ({"maxlen": 2, "truncating": "post"}, [[0, 1], [2, 3], [0, 0]]),
    ],
)
def test_pad_sequences(arguments, expected):
    padded = utils.pad_sequences([[1], [2, 3, 4], []], **arguments)
    assert padded.tolist() == expected and padded.dtype == "int32"


def test_pad_sequences_of_vectors_and_strings():
    vectors = utils.pad_sequences([[[1, 2]], [[3, 4], [5, 6]]], dtype="float64")
    assert vectors.tolist() == [[[0, 0], [1, 2]], [[3, 4], [5, 6]]]
    words = utils.pad_sequences([["a"], ["bc", "d"]], dtype=object, value="-")
    assert words.tolist() == [["-", "a"], ["bc", "d"]]
    with pytest.raises(ArgumentError, match="dtype"):
        utils.pad_sequences([[1]], value="-")
    with pytest.raises(ShapeError, match="different"):
        utils.pad_sequences([[[1]], [[1, 2]]])
    with pytest.raises(ArgumentError, match="list of iterables"):
        utils.pad_sequences([1, 2])


def test_windows_of_python_numbers():
    data = utils.timeseries_dataset_from_array([0.5, 1.5, 2.5], [1, 2, 3], 2)
    x, y = next(iter(data))
    assert (x.dtype, y.dtype) == ("float32", "int32")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"sequence_length": 11},
            "length=11 covers 11 steps; the data has 10 (10 rows)",
        ),
        (
            {"sequence_length": 4, "sampling_rate": 4},
            "covers 13 steps; the data has 10 (10 rows, sampling_rate=4). Use a "
            "sequence_length of at most 3",
        ),
        (
            {"sequence_length": 6, "start_index": 2, "end_index": 7},
            "the data has 5 (10 rows, start_index=2, end_index=7). Use a "
            "sequence_length of at most 5",
        ),
        ({"sequence_length": 0}, "`sequence_length` must be higher than 0"),
        ({"sequence_length": 2, "targets": []}, "received 0 targets for 10 steps"),
        (
            {"sequence_length": 2, "targets": np.arange(3), "start_index": 5},
            "expected targets from step 5 on; received 3 targets",
        ),
    ],
)
def test_windows_that_do_not_fit_are_refused(options, words):
    targets = options.pop("targets", None)
    with pytest.raises(ArgumentError, match=re.escape(words)):
        utils.timeseries_dataset_from_array(np.arange(10), targets, **options)


def test_the_longest_window_fits():
    (batch,) = utils.timeseries_dataset_from_array(
        np.arange(10), None, 4, sampling_rate=3
    )
    assert np.asarray(batch).tolist() == [[0, 3, 6, 9]]
