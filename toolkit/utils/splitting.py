"""split_dataset: split the samples of a data set into two parts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from toolkit import tree
from toolkit.arguments import is_int, is_real
from toolkit.data.batching import Batch, PaddedBatch
from toolkit.data.dataset import Dataset
from toolkit.data.rows import ItemRows, Rows
from toolkit.data.sources import FromRows
from toolkit.data.views import View
from toolkit.errors import ArgumentError, ArgumentTypeError, unknown_choice
from toolkit.type_aliases import IntOrInts
from toolkit.utils.dataset_tensors import to_tensor


class Samples(FromRows):
    """Some of the samples of a data set: a Dataset that also supports indexing.

    Args:
        get_sample: returns the sample with an index.
        indices: the indices of the samples.
        converter: converts each value for a loop over the samples, also in later
            stages.
    """

    _name = "samples"

    def __init__(
        self,
        get_sample: Callable[[int], Any],
        indices: Sequence[int],
        converter: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        self._get_sample, self._indices, self._shown = get_sample, indices, converter

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Any:
        return self._get_sample(self._indices[index])

    def _all(self) -> Rows:
        return ItemRows(self)


def split_dataset(
    dataset: Any,
    left_size: float | None = None,
    right_size: float | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
) -> tuple[Dataset, Dataset]:
    """Return the first and the last samples of a data set.

    Args:
        dataset: an array; a list, tuple or dict of arrays; an object with `__len__` and
            `__getitem__`; batches as from `image_dataset_from_directory`, whose samples
            are split; or an iterable of samples.
        left_size: the number of samples of the first part, or their fraction, in (0,
            1); None: the complement of `right_size`.
        right_size: the same for the last part.
        shuffle: whether to shuffle the samples before the split.
        seed: seed of the order.
        preferred_backend: "tensorflow" or "torch" in Keras; no effect.

    Returns:
        Two Datasets of samples, which also support indexing. If the last stage of
        `dataset` is `batch` or `padded_batch`, they contain batches of the same size.
        The elements are tensors, or arrays if `dataset` is a Dataset of arrays.

    Example:
        >>> import numpy as np
        >>> import toolkit
        >>> left, right = toolkit.utils.split_dataset(np.arange(5), left_size=0.6)
        >>> [int(x) for x in left], [int(x) for x in right]
        ([0, 1, 2], [3, 4])
    """
    if preferred_backend not in (None, "tensorflow", "torch"):
        choices = ("tensorflow", "torch")
        raise unknown_choice("split_dataset: backend", preferred_backend, choices)
    batch_size = None
    converter: Callable[[Any], Any] | None = to_tensor
    if isinstance(dataset, View):
        dataset = dataset.source
    elif isinstance(dataset, Dataset):
        converter = dataset._shown
    if isinstance(dataset, (Batch, PaddedBatch)):  # samples are split, not batches
        batch_size, dataset = dataset._size, dataset.unbatch()
    get_sample, total = _find_samples(dataset)
    left_count, right_count = _count_subsets(left_size, right_size, total)
    indices = list(range(total))
    if shuffle:
        random.Random(seed).shuffle(indices)
    first, last = (
        Samples(get_sample, subset_indices, converter)
        for subset_indices in (indices[:left_count], indices[-right_count:])
    )
    if batch_size is None:
        return first, last
    return first.batch(batch_size), last.batch(batch_size)


def _find_samples(dataset: Dataset) -> tuple[Callable[[int], Any], int]:
    """Return a function from an index to a sample, and the number of samples."""
    if isinstance(dataset, (np.ndarray, list, tuple, dict)):
        leaves = tree.flatten(dataset)
        if not all(np.ndim(leaf) for leaf in leaves):
            raise ArgumentError(
                "split_dataset: expected arrays; received a structure that contains "
                "numbers"
            )
        if len({len(leaf) for leaf in leaves}) != 1:
            raise ArgumentError(
                "split_dataset: expected arrays with the same number of samples; "
                f"received {[len(leaf) for leaf in leaves]}"
            )
        # In an element of a Dataset, a list is a value.
        nest = tuple(dataset) if isinstance(dataset, list) else dataset
        return lambda i: tree.map_structure(lambda x: x[i], nest), len(leaves[0])
    if isinstance(dataset, (str, bytes)) or not (
        hasattr(dataset, "__iter__") or hasattr(dataset, "__getitem__")
    ):
        raise ArgumentTypeError(
            "split_dataset: the `dataset` argument must be a data set, an array, or a "
            f"list/tuple of arrays; received {type(dataset).__name__}"
        )
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return dataset.__getitem__, len(dataset)
    is_dataset = isinstance(dataset, Dataset)  # the loop converts the samples
    samples = list(dataset.as_numpy_iterator() if is_dataset else dataset)
    return samples.__getitem__, len(samples)


def _count_subsets(left_size: Any, right_size: Any, total: int) -> tuple[int, int]:
    """Return the checked number of samples in each part."""
    if left_size is None and right_size is None:
        raise ArgumentError(
            "split_dataset: at least one of the `left_size` or `right_size` must be "
            "specified; received None for both"
        )
    counts = {
        name: _count_samples(name, size, total)
        for name, size in (("left_size", left_size), ("right_size", right_size))
    }
    first, last = cast("tuple[Any, Any]", tuple(counts.values()))
    first = total - last if first is None else first
    last = total - first if last is None else last
    if first + last > total or 0 in (first, last):
        raise ArgumentError(
            f"split_dataset: {total} samples cannot be split into {first} and "
            f"{last}: both parts need samples, and the sum of `left_size` and "
            "`right_size` must not exceed the total"
        )
    return first, last


def _count_samples(name: str, size: IntOrInts, total: int) -> int | None:
    if size is None:
        return None
    if isinstance(size, bool) or not is_real(size):
        raise ArgumentTypeError(
            f"split_dataset: invalid `{name}` type: expected an integer, a float or "
            f"None; received {type(size).__name__}"
        )
    if not 0 < size < (total if is_int(size) else 1):
        raise ArgumentError(
            f"split_dataset: `{name}` should be either a positive integer smaller than "
            f"{total}, or a float within the range (0, 1); received {size}"
        )
    return int(size) if is_int(size) else round(size * total)
