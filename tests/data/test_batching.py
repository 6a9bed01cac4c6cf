"""Tests of batches of every kind: their content, number and shapes."""

import json
import math

import numpy as np
import pytest

from toolkit.data import Dataset, Ragged
from toolkit.data.structure import NoneSpec
from toolkit.errors import ArgumentError, ShapeError

STRUCTURES = {
    "number": lambda n: n,
    "tuple": lambda n: (n, 10 * n),
    "dict": lambda n: {"a": n, "b": 10 * n},
}


def to_lists(batches):
    def plain(x):
        if isinstance(x, dict):
            return {key: plain(value) for key, value in x.items()}
        if isinstance(x, tuple):
            return tuple(map(plain, x))
        return x.to_list() if hasattr(x, "to_list") else np.asarray(x).tolist()

    return [plain(batch) for batch in batches]


def rows(count=4):
    """Return elements of 1, 2, ... numbers."""
    return Dataset.range(1, count + 1).map(lambda n: np.full(n, n))


KINDS = {
    "batch": lambda d, n, **options: d.batch(n, **options),
    "padded_batch": lambda d, n, **options: d.padded_batch(n, **options),
    "ragged_batch": lambda d, n, **options: d.ragged_batch(n, **options),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("count", [0, 1, 5, 6, 7])
def test_number_of_batches(kind, drop_remainder, count):
    batches = KINDS[kind](Dataset.range(count), 3, drop_remainder=drop_remainder)
    expected = [[*range(i, min(i + 3, count))] for i in range(0, count, 3)]
    expected = [batch for batch in expected if len(batch) == 3 or not drop_remainder]
    assert to_lists(batches) == expected
    assert batches.cardinality() == len(expected)
    assert batches.element_spec.shape == ((3,) if drop_remainder else (None,))
    filtered = KINDS[kind](Dataset.range(count).filter(lambda x: True), 3)
    assert filtered.cardinality() < 0
    repeated = KINDS[kind](Dataset.range(3).repeat(), 3)
    assert repeated.cardinality() == Dataset.range(3).repeat().cardinality()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_has_an_element(kind, size):
    with pytest.raises(ArgumentError, match=f"batch_size >= 1; received {size}"):
        KINDS[kind](Dataset.range(3), size)
    assert to_lists(KINDS[kind](Dataset.range(2), 1)) == [[0], [1]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_batches_have_the_structure_of_their_elements(kind, structure):
    dataset = Dataset.range(3).map(lambda x: STRUCTURES[structure](int(x)))
    actual = to_lists(KINDS[kind](dataset, 2))
    numbers = [[0, 1], [2]]
    expected = {
        "number": numbers,
        "tuple": [(n, [10 * i for i in n]) for n in numbers],
        "dict": [{"a": n, "b": [10 * i for i in n]} for n in numbers],
    }
    assert actual == expected[structure]


# --- padded ---------------------------------------------------------------------------


def pairs():
    return rows(2).map(lambda x: (x, x + 1))


def named():
    return rows(2).map(lambda x: {"a": x, "b": x + 1})


@pytest.mark.parametrize(
    "make, options, expected",
    [
        (rows, {}, [[1, 0], [2, 2]]),
        (rows, {"padding_values": 9}, [[1, 9], [2, 2]]),
        (rows, {"padded_shapes": (3,)}, [[1, 0, 0], [2, 2, 0]]),
        (rows, {"padded_shapes": (None,)}, [[1, 0], [2, 2]]),
        (rows, {"padded_shapes": (-1,), "padding_values": 7}, [[1, 7], [2, 2]]),
        (pairs, {}, ([[1, 0], [2, 2]], [[2, 0], [3, 3]])),
        (pairs, {"padding_values": 9}, ([[1, 9], [2, 2]], [[2, 9], [3, 3]])),
        (pairs, {"padding_values": (8, 9)}, ([[1, 8], [2, 2]], [[2, 9], [3, 3]])),
        (
            pairs,
            {"padded_shapes": ((3,), None)},
            ([[1, 0, 0], [2, 2, 0]], [[2, 0], [3, 3]]),
        ),
        (named, {}, {"a": [[1, 0], [2, 2]], "b": [[2, 0], [3, 3]]}),
        (
            named,
            {"padding_values": {"a": 8, "b": 9}},
            {"a": [[1, 8], [2, 2]], "b": [[2, 9], [3, 3]]},
        ),
        (
            named,
            {"padding_values": 5, "padded_shapes": {"a": (3,), "b": (2,)}},
            {"a": [[1, 5, 5], [2, 2, 5]], "b": [[2, 5], [3, 3]]},
        ),
    ],
)
def test_values_are_padded(make, options, expected):
    dataset = make().take(2).padded_batch(2, **options)
    assert to_lists(dataset) == [expected]


def test_padded_shapes_are_known():
    assert rows().padded_batch(2, (5,)).element_spec.shape == (None, 5)
    assert rows().padded_batch(2, (5,), drop_remainder=True).element_spec.shape == (
        2,
        5,
    )
    assert rows().padded_batch(2).element_spec.shape == (None, None)
    with pytest.raises(ShapeError, match="."):
        to_lists(rows().padded_batch(4, (2,)))


# --- ragged ---------------------------------------------------------------------------


@pytest.mark.parametrize("splits", ["int32", "int64"])
def test_rows_may_differ_in_length(splits):
    dataset = rows().ragged_batch(2, row_splits_dtype=splits)
    assert to_lists(dataset) == [[[1], [2, 2]], [[3, 3, 3], [4, 4, 4, 4]]]
    assert next(iter(dataset)).row_splits.dtype == splits
    assert dataset.element_spec.shape == (None, None)
    full = Dataset.from_tensor_slices(np.ones((4, 5))).ragged_batch(2, True)
    assert full.element_spec.shape == (2, None)
    three_axes = Dataset.from_tensor_slices(np.ones((4, 5, 3))).ragged_batch(2)
    assert three_axes.element_spec.shape == (None, None, 3)
    assert Dataset.range(4).ragged_batch(2).element_spec.shape == (None,)


def test_row_splits_are_integers():
    with pytest.raises(ArgumentError, match="row_splits_dtype.*'float32'"):
        rows().ragged_batch(2, row_splits_dtype="float32")


# --- unbatch --------------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES)
def test_unbatch_returns_rows_in_order(structure):
    dataset = Dataset.range(5).map(lambda x: STRUCTURES[structure](int(x)))
    assert to_lists(dataset.batch(2).unbatch()) == to_lists(dataset)
    spec = Dataset.from_tensor_slices(np.ones((4, 5))).batch(2).unbatch().element_spec
    assert spec.shape == (5,)


def test_unbatch_splits_ragged_rows():
    assert to_lists(rows().ragged_batch(3).unbatch()) == to_lists(rows())


def test_unbatch_needs_rows():
    with pytest.raises(ShapeError, match="received a scalar"):
        to_lists(Dataset.range(3).unbatch())
    unequal_lengths = Dataset.from_items([(np.ones(2), np.ones(3))])
    with pytest.raises(ShapeError, match=r"same number of rows; received \[2, 3\]"):
        to_lists(unequal_lengths.unbatch())
    mixed_ranks = Dataset.from_items([(np.ones(2), np.float32(1))])
    with pytest.raises(ShapeError, match="received a scalar"):
        to_lists(mixed_ranks.unbatch())


@pytest.mark.parametrize(
    "size, drop_remainder, expected",
    [
        (2, False, [[0, 1], [2, 3], [4]]),
        (2, True, [[0, 1], [2, 3]]),
        (5, True, [[0, 1, 2, 3, 4]]),
        (9, False, [[0, 1, 2, 3, 4]]),
        (9, True, []),
        ([1, 3], False, [[0], [1, 2, 3], [4]]),
        ([1, 3], True, [[0], [1, 2, 3], [4]]),
        ([1, 2, 3], False, [[0], [1, 2], [3, 4]]),
        ((3, 1), True, [[0, 1, 2], [3]]),
    ],
)
def test_rebatch_changes_sizes(size, drop_remainder, expected):
    dataset = Dataset.range(5).batch(4).rebatch(size, drop_remainder)
    assert to_lists(dataset) == expected
    is_known = drop_remainder and isinstance(size, int)
    assert dataset.element_spec.shape == ((size,) if is_known else (None,))
    for position in range(len(expected)):
        iterator = iter(dataset)
        for _ in range(position):
            next(iterator)
        resumed = iter(dataset)
        resumed.set_state(json.loads(json.dumps(iterator.get_state())))
        assert to_lists(resumed) == expected[position:]


def test_equal_sizes_are_known():
    batches = Dataset.range(8).batch(4)
    assert batches.rebatch([2, 2], True).element_spec.shape == (2,)
    assert batches.rebatch([2, 3], True).element_spec.shape == (None,)
    for value in (0, [2, 0]):
        with pytest.raises(ArgumentError, match="rebatch: expected batch_size >= 1"):
            batches.rebatch(value)


@pytest.mark.parametrize("position", range(5))
def test_started_batch_is_resumed(position):
    dataset = Dataset.range(4).filter(lambda x: True).batch(3).unbatch()
    iterator = iter(dataset)
    for _ in range(position):
        next(iterator)
    resumed = iter(dataset)
    resumed.set_state(iterator.get_state())
    assert to_lists(resumed) == [*range(position, 4)]


@pytest.mark.parametrize("workers", [None, 1, 2])
@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_parallel_batches(workers, numbered, drop_remainder):
    dataset = Dataset.range(7)
    if not numbered:
        dataset = dataset.filter(lambda x: True)
    batches = dataset.batch(
        3, drop_remainder=drop_remainder, num_parallel_calls=workers
    )
    expected = [[0, 1, 2], [3, 4, 5], [6]][: 2 if drop_remainder else 3]
    assert to_lists(batches) == expected
    unordered = dataset.batch(
        3,
        drop_remainder=drop_remainder,
        num_parallel_calls=workers,
        deterministic=False,
    )
    assert sorted(to_lists(unordered)) == expected


@pytest.mark.parametrize("value", [0, -2, "many"])
def test_batch_refuses_invalid_worker_counts(value):
    with pytest.raises((ArgumentError, TypeError), match="num_parallel_calls"):
        Dataset.range(3).batch(2, num_parallel_calls=value)


def test_rows_of_a_ragged_array_batch_to_a_ragged_array():
    rows = Ragged(np.array([1, 2, 3, 4]), np.array([0, 1, 3, 4]))
    data = Dataset.from_tensor_slices({"rows": rows, "n": np.arange(3)})
    first, last = data.batch(2)
    assert isinstance(first["rows"], Ragged) and first["n"].tolist() == [0, 1]
    assert first["rows"].to_list() == [[1], [2, 3]] and last["rows"].to_list() == [[4]]
    (filtered,) = data.filter(lambda row: row["n"] != 1).batch(2)
    assert filtered["rows"].to_list() == [[1], [4]]


def test_none_component_stays_none():
    data = Dataset.range(3).map(lambda x: (x, None)).batch(2)
    assert [(x.tolist(), none) for x, none in data] == [
        ([0, 1], None),
        ([2], None),
    ]
    assert isinstance(data.element_spec[1], NoneSpec)


def test_none_with_arrays_unbatches_and_batches():
    data = Dataset.from_tensor_slices({"x": np.arange(3), "y": None})
    assert [element["y"] for element in data.shuffle(3)] == [None] * 3
    for batches in (data.batch(2), data.padded_batch(2), data.ragged_batch(2)):
        actual = [(batch["x"].tolist(), batch["y"]) for batch in batches]
        assert actual == [([0, 1], None), ([2], None)]
        assert batches.element_spec["y"] == NoneSpec((), object)
        assert data.element_spec["y"] == NoneSpec((), object)
    with pytest.raises(ShapeError, match="arrays with rows"):
        Dataset.from_tensor_slices((None, None))


def test_none_in_an_element_is_kept():
    data = Dataset.from_tensors((np.arange(2), None))
    ((values, none),) = data
    assert values.tolist() == [0, 1] and none is None
    assert data.element_spec[1] == NoneSpec((), object)


def test_strings_keep_their_type_when_padded():
    for words in ([b"a", b"bb", b"c"], ["a", "bb", "c"]):
        first, second = Dataset.from_tensor_slices(words).padded_batch(2)
        assert [first.tolist(), second.tolist()] == [words[:2], words[2:]]
    rows = Dataset.from_items(
        [np.array([b"a", b"bb"], object), np.array([b"c"], object)]
    )
    (padded,) = rows.padded_batch(2)
    assert padded.tolist() == [[b"a", b"bb"], [b"c", b""]]


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_unbatched_elements_are_counted(drop_remainder):
    batches = Dataset.range(7).batch(3, drop_remainder=drop_remainder)
    assert (
        len(batches.unbatch())
        == len(list(batches.unbatch()))
        == (6 if drop_remainder else 7)
    )
    assert Dataset.range(7).repeat().batch(3).unbatch().cardinality() == -1
    assert batches.map(lambda x: x[:1]).unbatch().cardinality() == -2


def test_remaining_groups_are_ordered_by_key():
    numbers = Dataset.from_tensor_slices(np.array([5, -1, 5, 3, -1]))
    groups = numbers.group_by_window(lambda x: x, lambda key, group: group.batch(9), 9)
    assert to_lists(groups) == [[-1, -1], [3], [5, 5]]


@pytest.mark.parametrize("values", [["x", math.nan, "y"], [math.nan, "x"], ["x", 3]])
@pytest.mark.parametrize("stages", ["slices", "map", "filter"])
def test_missing_values_next_to_text_are_not_converted(values, stages):
    dataset = Dataset.from_tensor_slices(np.array(values, object))
    if stages == "map":
        dataset = dataset.map(lambda value: value)
    if stages == "filter":
        dataset = dataset.filter(lambda value: True)
    batch = next(iter(dataset.batch(3)))
    assert [type(value) for value in batch.tolist()] == [*map(type, values)]
