"""Local shards of batches in distributed training.

Positions count the elements of global batches, so that they are independent of the
number of processes. A marker replaces each element that is not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from toolkit.data.structure import map_leaves
from toolkit.type_aliases import Array

# Maps the number of rows of a batch to the rows of the local shard.
RowSelector: TypeAlias = Callable[[int], range]

ABSENT = object()  # replaces an element that another process computes


class BatchShard:
    """Some rows of a batch.

    Args:
        value: a batch of these rows.
        rows: the number of rows of the global batch.
    """

    def __init__(self, value: Any, rows: int) -> None:
        self.value = value
        self.rows = rows


class LocalRows(np.ndarray[Any, Any]):
    """The rows of a global batch that a process computes, for custom training loops.

    Attributes:
        global_count: the number of rows of the global batch; None for an array that is
            computed from such rows.
    """

    global_count: int | None = None

    def __array_finalize__(self, source: object) -> None:
        self.global_count = None


def mark_local_rows(array: Array, global_count: int) -> Array:
    """Return rows of a batch as `LocalRows`; an array without rows stays as it is."""
    if not np.ndim(array):
        return array
    rows = np.asarray(array).view(LocalRows)
    rows.global_count = global_count
    return rows


def rows_to_read(rows: range) -> range:
    """Return the rows to read; an empty shard reads the first row for its shape."""
    return rows or range(1)


def shard_of_batch(batch_size: int, rows: range, value: Any) -> BatchShard:
    """Return the local shard, from a batch of the rows that were read."""
    if not rows:
        value = map_leaves(lambda values: values[:0], value)
    return BatchShard(value, batch_size)


class Selection(NamedTuple):
    """Selection of the elements that become rows of the local shard.

    Attributes:
        size: the number of elements in a batch.
        total: the total number of elements.
        rows: the function that selects rows of a batch.
    """

    size: int
    total: int
    rows: RowSelector

    def ranges(self, start: int) -> Iterator[tuple[range, range]]:
        """Yield the numbers in each batch, and of them those that are selected.

        Args:
            start: the number of the first element.
        """
        for first in range(start - start % self.size, self.total, self.size):
            batch_size = min(self.size, self.total - first)
            rows = rows_to_read(self.rows(batch_size))
            numbers = range(max(start, first), first + batch_size)
            yield numbers, range(first + rows.start, first + rows.stop)


def skip_absent(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that skips ABSENT elements."""

    def call(element: Any) -> Any:
        return element if element is ABSENT else function(element)

    return call
