"""Batches of arrays in memory, in the order that Keras defines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from keras.src import tree
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.array_slicing import (
    NumpySliceable,
    convert_to_sliceable,
)
from keras.src.trainers.epoch_iterator import EpochIterator


class BatchIterator(EpochIterator):
    """An iterator over the batches of an epoch, with fewer calls for NumPy arrays.

    A small model spends as much time in the slices of Keras as in its step.
    """

    def _get_iterator(self) -> Iterator[Any]:
        # Keras asks for an iterator after the last batch, too: convert no array before
        # the first batch.
        adapter = self.data_adapter
        if type(adapter) is ArrayDataAdapter:
            inputs = convert_to_sliceable(adapter._inputs, target_backend="numpy")
            leaves = tree.flatten(inputs)
            if all(leaf is None or type(leaf) is NumpySliceable for leaf in leaves):
                arrays = [leaf if leaf is None else leaf.array for leaf in leaves]
                yield from _iterate_batches(arrays, inputs, _batch_rows(adapter))
                return
        yield from super()._get_iterator()


def _batch_rows(adapter: Any) -> Iterator[Any]:
    """Return the rows of each batch, with the random numbers that Keras draws."""
    count, size, shuffle = adapter._num_samples, adapter._batch_size, adapter._shuffle
    starts = range(0, count, size)
    if shuffle == "batch":
        for start in starts:
            yield np.random.permutation(min(size, count - start)) + start
    elif shuffle:
        order = np.random.permutation(count)
        for start in starts:
            yield order[start : start + size]
    else:
        for start in starts:
            yield slice(start, start + size)


def _iterate_batches(
    arrays: list[Any], structure: Any, rows: Iterator[Any]
) -> Iterator[Any]:
    """Yield the given rows of arrays and None, in a structure like `structure`."""
    is_flat = type(structure) is tuple and not any(map(tree.is_nested, structure))
    for selected in rows:
        if type(selected) is slice:
            leaves = [None if x is None else x[selected] for x in arrays]
        else:
            leaves = [None if x is None else x.take(selected, 0) for x in arrays]
        yield tuple(leaves) if is_flat else tree.pack_sequence_as(structure, leaves)
