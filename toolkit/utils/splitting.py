"""split_dataset: the samples of a data set in two parts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from toolkit import tree
from toolkit.data.batches import Batches
from toolkit.errors import ArgumentError, ArgumentTypeError, unknown_choice


class Samples:
    """Some of the samples of a data set, one by one.

    Args:
        get: from the number of a sample to the sample.
        numbers: which samples there are.
    """

    def __init__(self, get: Callable[[int], Any], numbers: Sequence[int]) -> None:
        self._get, self._numbers = get, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Any:
        return self._get(self._numbers[index])

    def __iter__(self) -> Iterator[Any]:
        return map(self._get, self._numbers)

    def batch(self, batch_size: int) -> Batches:
        """The samples in batches, as `fit` takes them."""

        def make(rows: Any) -> Any:
            samples = [self[int(i)] for i in rows]
            return tree.map_structure(lambda *xs: np.stack(xs), *samples)

        return Batches(len(self), make, batch_size)


def split_dataset(
    dataset: Any,
    left_size: float | None = None,
    right_size: float | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
) -> tuple[Samples, Samples]:
    """The first and the last samples of a data set.

    Args:
        dataset: an array; a list, tuple or dict of arrays; an object with `__len__`
            and `__getitem__`; batches as from `image_dataset_from_directory`; or an
            iterable of samples.
        left_size: the number of samples of the first part, or the part of all of them,
            in (0, 1); None: what the other leaves.
        right_size: the same for the last part.
        shuffle: whether to mix the samples before.
        seed: of their order.
        preferred_backend: "tensorflow" or "torch" in Keras; of no effect.

    Returns:
        Two data sets of samples, with `len`, indices and `batch(batch_size)`.

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
    get, total = _samples(dataset)
    left, right = _sizes(left_size, right_size, total)
    numbers = list(range(total))
    if shuffle:
        random.Random(seed).shuffle(numbers)
    return Samples(get, numbers[:left]), Samples(get, numbers[-right:])


def _samples(dataset: Any) -> tuple[Callable[[int], Any], int]:
    """What gets a sample by its number, and how many there are."""
    if isinstance(dataset, (np.ndarray, list, tuple, dict)):
        leaves = tree.flatten(dataset)
        if len({len(leaf) for leaf in leaves}) != 1:
            raise ArgumentError(
                "split_dataset: expected arrays with the same number of samples; "
                f"received {[len(leaf) for leaf in leaves]}"
            )
        return lambda i: tree.map_structure(lambda x: x[i], dataset), len(leaves[0])
    if isinstance(dataset, (str, bytes)) or not (
        hasattr(dataset, "__iter__") or hasattr(dataset, "__getitem__")
    ):
        raise ArgumentTypeError(
            "split_dataset: the `dataset` argument must be a data set, an array, or a "
            f"list/tuple of arrays; received {type(dataset).__name__}"
        )
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return dataset.__getitem__, len(dataset)
    samples = list(dataset)
    if getattr(dataset, "batch_size", None) is not None:
        samples = [sample for batch in samples for sample in _rows(batch)]
    return samples.__getitem__, len(samples)


def _rows(batch: Any) -> list[Any]:
    """The samples of a batch."""
    count = len(tree.flatten(batch)[0])
    return [tree.map_structure(lambda x, i=i: x[i], batch) for i in range(count)]


def _sizes(left: Any, right: Any, total: int) -> tuple[int, int]:
    """The number of samples in each part, checked."""
    if left is None and right is None:
        raise ArgumentError(
            "split_dataset: at least one of the `left_size` or `right_size` must be "
            "specified; received None for both"
        )
    counts = {
        name: _count(name, size, total)
        for name, size in (("left_size", left), ("right_size", right))
    }
    first, last = counts.values()
    first = total - last if first is None else first  # type: ignore[operator]
    last = total - first if last is None else last
    if first + last > total or 0 in (first, last):
        raise ArgumentError(
            f"split_dataset: {total} samples cannot be split into {first} and {last}: "
            "no part may be empty, and the sum of `left_size` and `right_size` must "
            "not be greater than all"
        )
    return first, last


def _count(name: str, size: Any, total: int) -> int | None:
    if size is None:
        return None
    if type(size) not in (int, float):
        raise ArgumentTypeError(
            f"split_dataset: invalid `{name}` type: expected an integer, a float or "
            f"None; received {type(size).__name__}"
        )
    if not 0 < size < (total if isinstance(size, int) else 1):
        raise ArgumentError(
            f"split_dataset: `{name}` should be either a positive integer smaller than "
            f"{total}, or a float within the range (0, 1); received {size}"
        )
    return size if isinstance(size, int) else round(size * total)
