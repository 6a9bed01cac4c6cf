"""Test split_dataset on each kind of data set."""

import numpy as np
import pytest

from toolkit.core.tensor import Tensor
from toolkit.data import Dataset
from toolkit.errors import ArgumentError
from toolkit.utils import split_dataset

X, Y = np.arange(10.0).reshape(10, 1), np.arange(10)


class Indexed:
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return X[i], Y[i]


SETS = {
    "list": [X, Y],
    "tuple": (X, Y),
    "indexed": Indexed(),
    "iterable": zip(X, Y, strict=True),
    "samples": Dataset.from_tensor_slices((X, Y)),
}


@pytest.mark.parametrize("kind", SETS)
def test_kinds(kind):
    left, right = split_dataset(SETS[kind], left_size=0.3)
    assert (len(left), len(right)) == (3, 7)
    assert [int(y) for _, y in left] == [0, 1, 2]
    assert [(x.shape, int(y)) for x, y in right] == [((1,), i) for i in range(3, 10)]
    x, y = next(iter(right.batch(4)))
    assert (x.shape, y.tolist()) == ((4, 1), [3, 4, 5, 6])


@pytest.mark.parametrize("stage", ["batch", "padded_batch"])
def test_batches_are_not_split(stage):
    batches = getattr(Dataset.from_tensor_slices((X, Y)), stage)(3)
    left, right = split_dataset(batches, left_size=0.5)
    assert [y.tolist() for _, y in left] == [[0, 1, 2], [3, 4]]
    assert [x.shape for x, _ in right] == [(3, 1), (2, 1)]


def test_batches_in_later_stages_are_samples():
    batches = Dataset.from_tensor_slices(Y).batch(5).map(lambda y: y + 1)
    left, right = split_dataset(batches, left_size=1)
    assert [y.tolist() for y in left] == [[1, 2, 3, 4, 5]]
    assert [y.tolist() for y in right] == [[6, 7, 8, 9, 10]]


def test_structures():
    left, _ = split_dataset({"a": X, "b": (Y, Y)}, right_size=8)
    assert {k: np.shape(v) for k, v in left[1].items()} == {"a": (1,), "b": (2,)}


def test_shuffled():
    halves = split_dataset(Y, left_size=5, shuffle=True, seed=1)
    halves_again = split_dataset(Y, left_size=5, shuffle=True, seed=1)
    assert [list(p) for p in halves] == [list(p) for p in halves_again]
    assert sorted([*halves[0], *halves[1]]) == Y.tolist() != [*halves[0], *halves[1]]


@pytest.mark.parametrize(
    "sizes", [{}, {"left_size": 0}, {"left_size": 10}, {"right_size": 1.5}]
)
def test_sizes_out_of_range(sizes):
    with pytest.raises(ArgumentError, match="size"):
        split_dataset(Y, **sizes)


def test_inconsistent_sizes():
    with pytest.raises(ArgumentError, match="must not exceed the total"):
        split_dataset(Y, left_size=0.6, right_size=0.6)
    with pytest.raises(TypeError, match="left_size"):
        split_dataset(Y, left_size="3")


def test_splits_of_arrays_contain_tensors():
    (x, y), *_ = split_dataset((X, Y), left_size=2)[0]
    assert isinstance(x, Tensor) and isinstance(y, Tensor)
    x, _ = next(iter(split_dataset(SETS["samples"], left_size=2)[0]))
    assert isinstance(x, np.ndarray)
