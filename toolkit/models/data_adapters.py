"""Batches from whatever `fit` and its kin are given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import numpy as np

from toolkit import data
from toolkit.errors import ArgumentError, ToolkitError, unknown_choice
from toolkit.models.arrays import (
    PARTS,
    ArraySource,
    as_tensor,
    batch_tensors,
    is_arrays,
    shuffle_generator,
    trimmed,
    weights_of_classes,
)
from toolkit.models.py_dataset import PyDataset
from toolkit.tracebacks import shorten


def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """(x, y, sample_weight) of a batch given as x, (x,), (x, y) or all three.

    Example:
        >>> unpack_x_y_sample_weight(("x", "y"))
        ('x', 'y', None)
    """
    if not isinstance(data, (tuple, list)):
        return data, None, None
    if not 1 <= len(data) <= 3:
        raise ArgumentError(
            "batch: expected x, (x,), (x, y) or (x, y, sample_weight); received "
            f"{len(data)} parts"
        )
    x, y, sample_weight = (*data, None, None)[:3]
    return x, y, sample_weight


def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """A batch as `fit` takes it: x alone, (x, y) or (x, y, sample_weight)."""
    if y is None:
        return (x,) if isinstance(x, (tuple, list)) else x
    return (x, y) if sample_weight is None else (x, y, sample_weight)


class named:
    """Puts the name of the method that was called in front of errors from inside."""

    def __init__(self, caller: str) -> None:
        self._caller = caller

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, ToolkitError):
            error.args = (f"{self._caller}: {error}",)
        if isinstance(error, Exception):
            shorten(error)


class BatchSource:
    """Batches that come ready made: from an iterable, an iterator or a sequence.

    Args:
        batches: a Python iterator; an object with `__getitem__` and `__len__`, or
            `num_batches`, that returns whole batches; or any other iterable.
        class_weight: class -> weight of its samples.
        shuffle: whether to visit the batches of a sequence in a new order each epoch.
    """

    def __init__(
        self, batches: Any, class_weight: dict[int, float] | None, shuffle: bool | str
    ) -> None:
        self._batches = batches
        self._class_weight = class_weight
        self._shuffle = bool(shuffle)
        self.is_iterator = hasattr(batches, "__next__")
        self.batch_size = None
        self.num_batches = None if self.is_iterator else _count_batches(batches)
        countable = self.num_batches is not None or not hasattr(batches, "__iter__")
        self._is_sequence = countable and hasattr(batches, "__getitem__")
        if self.num_batches == 0:
            raise ArgumentError(
                "expected at least one batch; received an empty data set"
            )

    def epoch(self, steps: int | None = None) -> Iterator[Any]:
        """The batches of one epoch, as tuples of tensors.

        Args:
            steps: how many to take at most of an iterator, which cannot go back.
        """
        _notify(self._batches, "on_epoch_begin")
        count = steps if self.is_iterator else None
        with data.prefetched(self._one_pass(), count) as batches:
            for batch in batches:
                yield self._convert(batch)
        _notify(self._batches, "on_epoch_end")

    def _one_pass(self) -> Iterable[Any]:
        if not self._is_sequence:
            return self._batches  # type: ignore[no-any-return]
        if self.num_batches is None:
            return self._endless()
        order = np.arange(self.num_batches)
        if self._shuffle:
            order = shuffle_generator().permutation(self.num_batches)
        if isinstance(self._batches, PyDataset):
            return self._batches.fetch(order)
        return (self._batches[int(i)] for i in order)

    def _endless(self) -> Iterator[Any]:
        if isinstance(self._batches, PyDataset):
            yield from self._batches.fetch(count())
        for i in count():
            yield self._batches[i]

    def _convert(self, batch: Any) -> Any:
        if not isinstance(batch, (tuple, list)):
            batch = (batch,)
        x, y, weights = unpack_x_y_sample_weight(tuple(batch))
        given = zip(PARTS, (x, y, weights), strict=True)
        x, y, weights = (batch_tensors(part, name) for name, part in given)
        if self._class_weight is not None:
            weights = as_tensor(weights_of_classes(y, weights, self._class_weight))
        return trimmed(x, y, weights)


def _count_batches(batches: Any) -> int | None:
    """The number of batches of an epoch; None where it is unknown or endless."""
    count = getattr(batches, "num_batches", None)
    if count is None and hasattr(batches, "__len__"):
        try:
            count = len(batches)
        except TypeError:  # a data set that does not know its length
            count = None
    return None if count is None else int(count)


def _notify(batches: Any, hook: str) -> None:
    method = getattr(batches, hook, None)
    if callable(method):
        method()


def make_source(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: bool | str = False,
    class_weight: dict[int, float] | None = None,
) -> ArraySource | BatchSource:
    """The batches of whatever `x` is."""
    if shuffle not in (True, False, "batch"):
        raise unknown_choice("shuffle", shuffle, (True, False, "batch"))
    if x is None:
        raise ArgumentError("expected data `x`; received None")
    if is_arrays(x):
        return ArraySource(
            x, y, sample_weight, batch_size, steps, shuffle, class_weight
        )
    if isinstance(x, (str, bytes)) or not (
        hasattr(x, "__iter__") or hasattr(x, "__getitem__")
    ):
        raise ArgumentError(
            "expected x to be arrays, a generator, or an object with `__iter__`, or "
            f"`__getitem__` and `__len__`, that returns batches; received {x!r:.60} of "
            f"type {type(x).__name__}"
        )
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ArgumentError(
                f"expected `{name}` to be part of the batches that x "
                f"({type(x).__name__}) returns; received it beside x"
            )
    if batch_size is not None:
        raise ArgumentError(
            "expected batch_size=None, because x returns whole batches; received "
            f"{batch_size}"
        )
    return BatchSource(x, class_weight, shuffle)
