"""Datasets of elements that are computed from their index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.data.dataset import Dataset
from toolkit.data.rows import Indices, Rows, as_index_array
from toolkit.data.sources import FromRows
from toolkit.data.structure import map_leaves
from toolkit.errors import ArgumentError
from toolkit.type_aliases import Array

Make = Callable[[Array], Any]


class ComputedElements(FromRows):
    """Elements that a function computes in groups from their indices.

    Args:
        count: the number of elements.
        make: a function from an integer array of indices to the elements, stacked along
            a first axis: an array, or a structure of tuples and dicts of arrays.

    Example:
        >>> from toolkit.data.computed import ComputedElements
        >>> squares = ComputedElements(5, lambda numbers: numbers**2)
        >>> [batch.tolist() for batch in squares.batch(2)]
        [[0, 1], [4, 9], [16]]
    """

    _name = "computed"

    def __init__(self, count: int, make: Make) -> None:
        super().__init__()
        self._made = _ComputedRows(count, make)

    def _all(self) -> Rows:
        return self._made


class _ComputedRows(Rows):
    def __init__(self, length: int, make: Make) -> None:
        super().__init__(length)
        self._make = make

    def __getitem__(self, number: int) -> Any:
        return map_leaves(lambda values: values[0], self._make(np.array([number])))

    def stacked(self, numbers: Indices) -> Any:
        return self._make(as_index_array(numbers))


def compute_batches(
    count: int,
    make: Make,
    batch_size: int | None,
    shuffle: bool,
    seed: int | None,
    shown: Callable[[Any], Any] | None = None,
) -> Dataset:
    """Return computed elements in batches, or separately, as `keras.utils` does.

    Args:
        count, make: as for ComputedElements.
        batch_size: the batch size. None returns single elements.
        shuffle: whether to reshuffle for each pass.
        seed: the shuffle seed.
        shown: a function that converts each value for loops over this data set and its
            later stages.
    """
    dataset: Dataset = ComputedElements(count, make)
    dataset._shown = shown
    if shuffle:
        dataset = dataset.shuffle(None, seed)
    return dataset if batch_size is None else dataset.batch(batch_size)


def check_format(caller: str, format: str) -> None:
    """Raise an error unless `format` is one of Keras's data set formats.

    The toolkit has one kind of data set for both formats.
    """
    if format not in ("tf", "grain"):
        raise ArgumentError(
            f'{caller}: `format` should be either "tf" or "grain"; received {format!r}'
        )
