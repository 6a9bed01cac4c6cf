"""Batches of the data arguments of `fit`, as arrays of NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from keras.src import tree
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.array_slicing import (
    NumpySliceable,
    convert_to_sliceable,
)
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.epoch_iterator import EpochIterator

from toolkit.data import Dataset


class BatchIterator(EpochIterator):
    """An iterator over the batches of an epoch, with fewer calls for NumPy arrays.

    A small model spends as much time in the slices of Keras as in its step.

    Args:
        x: also a `toolkit.data.Dataset`, whose elements are batches.
        y, sample_weight: must be None for a Dataset.
        class_weight: class -> weight of its samples.
        **options: the other arguments of `EpochIterator`.
    """

    def __init__(
        self,
        x: object,
        y: object = None,
        sample_weight: object = None,
        class_weight: object = None,
        **options: object,
    ) -> None:
        if isinstance(x, Dataset):
            for name, value in (("y", y), ("sample_weight", sample_weight)):
                if value is not None:
                    raise ValueError(
                        f"`{name}` must be None if `x` is a toolkit.data.Dataset, "
                        "whose elements are (x, y) or (x, y, sample_weight)"
                    )
            x = DatasetAdapter(x, class_weight)
        super().__init__(
            x=x,
            y=y,
            sample_weight=sample_weight,
            class_weight=class_weight,
            **options,
        )

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


class DatasetAdapter(DataAdapter):
    """An adapter for `toolkit.data.Dataset`.

    Args:
        dataset: its elements are batches.
        class_weight: class -> weight of its samples, or None.
    """

    batch_size = None
    has_partial_batch = None
    partial_batch_size = None

    def __init__(self, dataset: Dataset, class_weight: Any) -> None:
        self._dataset = dataset
        self._class_weight = class_weight

    @property
    def num_batches(self) -> int | None:
        """The number of batches, or None if it is unknown or infinite."""
        count = int(self._dataset.cardinality())
        return None if count < 0 else count

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Yield the elements, with the weights of their classes."""
        if self._class_weight is None:
            return iter(self._dataset)
        return map(self._add_weights, self._dataset)

    def _add_weights(self, batch: Any) -> Any:
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(batch)
        if sample_weight is not None:
            raise ValueError(
                "`class_weight` must be None if the Dataset has sample weights"
            )
        weights = data_adapter_utils.class_weight_to_sample_weights(
            y, self._class_weight
        )
        return x, y, weights


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
