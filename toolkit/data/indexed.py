"""Datasets of elements that are computed from their index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.data.dataset import Dataset
from toolkit.data.rows import Numbers, Rows, as_array
from toolkit.data.sources import FromRows
from toolkit.data.structure import map_leaves
from toolkit.errors import ArgumentError

Make = Callable[[np.ndarray[Any, Any]], Any]


class Made(FromRows):
    """Elements that a function computes in groups from their indices.

    Args:
        count: the number of elements.
        make: a function from an integer array of indices to the elements, stacked along
            a first axis: an array, or a structure of tuples and dicts of arrays.

    Example:
        >>> from toolkit.data.indexed import Made
        >>> squares = Made(5, lambda numbers: numbers**2)
        >>> [batch.tolist() for batch in squares.batch(2)]
        [[0, 1], [4, 9], [16]]
    """

    _name = "made"

    def __init__(self, count: int, make: Make) -> None:
        super().__init__()
        self._made = _MadeRows(count, make)

    def _all(self) -> Rows:
        return self._made


class _MadeRows(Rows):
    def __init__(self, length: int, make: Make) -> None:
        super().__init__(length)
        self._make = make

    def __getitem__(self, number: int) -> Any:
        return map_leaves(lambda values: values[0], self._make(np.array([number])))

    def stacked(self, numbers: Numbers) -> Any:
        return self._make(as_array(numbers))


def made_batches(
    count: int,
    make: Make,
    batch_size: int | None,
    shuffle: bool,
    seed: int | None,
    shown: Callable[[Any], Any] | None = None,
) -> Dataset:
    """Return computed elements in batches, or separately, as `keras.utils` does.

    Args:
        count, make: as for Made.
        batch_size: the batch size. None returns single elements.
        shuffle: whether to reshuffle for each pass.
        seed: the shuffle seed.
        shown: a function that converts each value for loops over this data set and its
            later stages.
    """
    dataset: Dataset = Made(count, make)
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
