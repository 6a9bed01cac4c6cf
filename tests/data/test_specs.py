"""Tests that `element_spec` is valid for every element and has no side effects."""

import numpy as np
import pytest

from toolkit.data import Dataset, Options, Ragged, TensorSpec
from toolkit.errors import ArgumentError


def rows(*lengths):
    return Dataset.from_items([np.zeros(n, "float32") for n in lengths])


def tens(count):
    return Dataset.from_tensor_slices(np.zeros((count, 3), "float32"))


def spec_of(*shape, dtype="float32"):
    return TensorSpec(shape, dtype)


CASES = {  # name: (data set, its element_spec)
    "batch": (tens(5).batch(2), spec_of(None, 3)),
    "whole batches": (tens(5).batch(2, drop_remainder=True), spec_of(2, 3)),
    "rebatch": (tens(7).batch(4).rebatch(3), spec_of(None, 3)),
    "rebatch by turns": (
        tens(7).batch(4).rebatch([3, 1], drop_remainder=True),
        spec_of(None, 3),
    ),
    "rebatch of whole ones": (
        tens(7).batch(4).rebatch(3, drop_remainder=True),
        spec_of(3, 3),
    ),
    "padded": (rows(1, 2, 3, 1).padded_batch(2), spec_of(None, None)),
    "padded to a shape": (
        rows(1, 2, 3, 1).padded_batch(2, [4], drop_remainder=True),
        spec_of(2, 4),
    ),
    "padded in part": (
        Dataset.zip(rows(1, 2, 3), tens(3)).padded_batch(2, ([None], [5])),
        (spec_of(None, None), spec_of(None, 5)),
    ),
    "ragged": (rows(2, 2, 3, 1).ragged_batch(2), spec_of(None, None)),
    "items of other lengths": (rows(1, 2, 3), spec_of(None)),
    "map of other lengths": (
        Dataset.range(4).map(lambda n: np.zeros(n, "float32")),
        spec_of(None),
    ),
    "map of batches": (tens(5).batch(3).map(lambda x: x * 2), spec_of(None, 3)),
    "maps of batches": (
        tens(5).batch(3).map(lambda x: x.T).map(lambda x: {"x": x[:2]}),
        {"x": spec_of(2, None)},
    ),
    "map to one number": (tens(5).batch(3).map(lambda x: x.sum()), spec_of()),
    "map that is flat": (tens(5).batch(3).map(np.ravel), spec_of(None)),
    "map that is particular": (
        tens(6).batch(3).map(lambda x: x.reshape(3, 3)),
        spec_of(None, None),
    ),
    "parallel map": (
        tens(5).batch(3).map(lambda x: x * 2, num_parallel_calls=2),
        spec_of(None, 3),
    ),
    "windows": (
        tens(7).window(3).flat_map(lambda window: window.batch(3)),
        spec_of(None, 3),
    ),
    "whole windows": (
        tens(7).window(3).flat_map(lambda w: w.batch(3, drop_remainder=True)),
        spec_of(3, 3),
    ),
    "windows of rows of other lengths": (
        tens(7).batch(2).window(2).flat_map(lambda w: w.batch(1)),
        spec_of(None, None, 3),
    ),
    "windows of pairs": (
        Dataset.zip(tens(5), Dataset.range(5))
        .window(2)
        .flat_map(lambda a, b: Dataset.zip(a.batch(2), b.batch(2))),
        (spec_of(None, 3), spec_of(None, dtype="int64")),
    ),
    "groups": (
        tens(7).group_by_window(lambda x: 0, lambda _, g: g.batch(3), window_size=3),
        spec_of(None, 3),
    ),
    "groups of lists": (
        tens(7).group_by_window(
            lambda x: 0,
            lambda _, g: Dataset.from_tensors(np.stack(list(g))),
            window_size=3,
        ),
        spec_of(None, 3),
    ),
    "buckets": (
        rows(1, 2, 5, 6).bucket_by_sequence_length(len, [3], [2, 2]),
        spec_of(None, None),
    ),
    "buckets of whole batches": (
        rows(1, 2, 5, 6).bucket_by_sequence_length(
            len, [3], [2, 2], drop_remainder=True
        ),
        spec_of(2, None),
    ),
    "flat_map": (
        rows(1, 2, 3).flat_map(Dataset.from_tensors),
        spec_of(None),
    ),
    "flat_map of what is empty at first": (
        Dataset.range(4).flat_map(lambda n: rows(*range(n))),
        spec_of(None),
    ),
    "interleave": (
        tens(5).batch(3).interleave(Dataset.from_tensors, 2, num_parallel_calls=2),
        spec_of(None, 3),
    ),
    "concatenate": (tens(4).batch(2).concatenate(rows(3).batch(1)), spec_of(None, 3)),
    "concatenate of other extents": (
        rows(2).map(np.negative).concatenate(rows(3)),
        spec_of(None),
    ),
    "concatenate with nothing": (rows().concatenate(rows(3)), spec_of(3)),
    "choose": (
        Dataset.choose_from_datasets([rows(2), rows(3)], Dataset.range(2)),
        spec_of(None),
    ),
    "sample": (Dataset.sample_from_datasets([rows(2), rows(3)], seed=1), spec_of(None)),
    "scan": (
        rows(1, 2, 3).scan(np.zeros(2), lambda s, x: (s, np.concatenate([s, x]))),
        spec_of(None, dtype="float64"),
    ),
    "scan that grows": (
        Dataset.range(3).scan(
            np.zeros(1), lambda s, x: (np.append(s, x), np.append(s, x))
        ),
        spec_of(None, dtype="float64"),
    ),
    "resampled": (
        tens(9).batch(2).rejection_resample(lambda x: 0, [1.0], seed=1),
        (spec_of(dtype="int64"), spec_of(None, 3)),
    ),
    "without errors": (
        tens(5).batch(3).map(lambda x: x[: 6 // len(x)]).ignore_errors(log=str),
        spec_of(None, 3),
    ),
    "unbatched": (
        tens(5).batch(3).batch(2, drop_remainder=True).unbatch(),
        spec_of(None, 3),
    ),
    "generator": (
        Dataset.from_generator(lambda: iter([np.zeros(2, "float32")])),
        spec_of(None),
    ),
    "threads": (
        rows(1, 2, 3).with_options(Options(threads=1)).prefetch(1).cache(),
        spec_of(None),
    ),
}
RAISES = (
    "unbatched",
    "windows of rows of other lengths",
)  # iteration fails


@pytest.mark.parametrize("name", CASES)
def test_spec_shows_variable_extents(name):
    dataset, spec = CASES[name]
    assert dataset.element_spec == spec
    for element in [] if name in RAISES else dataset:
        assert matches_spec(element, spec)


def matches_spec(element, spec):
    if isinstance(spec, TensorSpec):
        is_ragged = isinstance(element, Ragged)
        shape = element.spec.shape if is_ragged else np.shape(element)
        return spec.accepts([0 if n is None else n for n in shape])
    if isinstance(spec, dict):
        return all(matches_spec(element[key], spec[key]) for key in spec)
    return all(map(matches_spec, element, spec))


def test_element_spec_does_not_count_as_a_pass():
    def make():
        return Dataset.range(12).shuffle(12, seed=4).filter(lambda x: x > 2).batch(4)

    dataset, mapped = make(), make().map(lambda x: x)
    for _ in range(3):
        assert mapped.element_spec == spec_of(None, dtype="int64")
        assert [x.tolist() for x in dataset] == [x.tolist() for x in mapped]
    iterator = iter(mapped)
    first = next(iterator).tolist()
    assert mapped.element_spec == spec_of(None, dtype="int64")
    assert [first, *(x.tolist() for x in iterator)] == [x.tolist() for x in dataset]


def test_element_spec_reads_the_first_pass():
    def make(seed):
        selected = Dataset.range(8).shuffle(8, seed=seed).take(1)
        return selected.filter(lambda x: x > 3).map(lambda x: np.zeros(3))

    nonempty = next(make(seed) for seed in range(99) if list(make(seed)))
    for _ in range(12):
        assert nonempty.element_spec == spec_of(3, dtype="float64")
        list(nonempty)  # it is empty in some of these passes
    empty = next(make(seed) for seed in range(99) if not list(make(seed)))
    while not list(empty):
        pass
    empty._passes -= 1  # the next pass has an element
    assert empty.element_spec == spec_of(3, dtype="float64")


def test_element_spec_keeps_statistics():
    dataset = Dataset.range(5).map(lambda x: x + 1)
    list(dataset)
    before = dataset.stats().rows[-1]["elements"]
    _ = dataset.element_spec
    assert dataset.stats().rows[-1]["elements"] == before == 5


def test_errors_of_functions_name_the_element():
    def fails(x):
        raise KeyError("none")

    with pytest.raises(KeyError) as error:
        _ = Dataset.range(3).map(fails).element_spec
    assert "element 0" in "".join(error.value.__notes__)


def test_empty_data_set_has_no_spec():
    with pytest.raises(ValueError, match="empty data set"):
        _ = rows().map(lambda x: x).element_spec


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_stream_without_rows_is_batched_by_several_workers(deterministic):
    stream = Dataset.range(5).filter(lambda x: x >= 0)
    batches = stream.batch(2, num_parallel_calls=2, deterministic=deterministic)
    elements = sorted(batch.tolist() for batch in batches)
    assert elements == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("workers", [0, -3, 1.5])
def test_numbers_of_workers_of_batches_are_checked(workers):
    with pytest.raises(ArgumentError, match="num_parallel_calls"):
        Dataset.range(5).batch(2, num_parallel_calls=workers)
