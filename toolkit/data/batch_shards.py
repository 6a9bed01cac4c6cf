"""Local shards of batches in distributed training.

Positions count the elements of global batches, so that they are independent of the
number of processes. A marker replaces each element that is not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

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
        ends: the first and the last element of the global batch, if all processes
            compute all elements.
    """

    def __init__(self, value: Any, rows: int, ends: object = None) -> None:
        self.value = value
        self.rows = rows
        self.ends = ends


class LocalRows(np.ndarray[Any, Any]):
    """The rows of a global batch that a process computes, for custom training loops.

    Attributes:
        global_count: the number of rows of the global batch; None for an array that is
            computed from such rows.
        checksum: of the data that all processes must have.
    """

    global_count: int | None = None
    checksum = 0

    def __array_finalize__(self, source: object) -> None:
        self.global_count = None


# Elements of an array that processes compare, at equal distances.
_COMPARED_ELEMENTS = 2048


def checksum_of_arrays(arrays: Iterable[object], checksum: int = 0) -> int:
    """Return a checksum of some elements of arrays, to detect different data.

    Args:
        arrays: arrays, or values of elements.
        checksum: of other data, which the result contains.
    """
    for value in arrays:
        array = np.asarray(value)
        flat = array.reshape(-1)
        some = flat[:: max(1, flat.size // _COMPARED_ELEMENTS)]
        is_numeric = array.dtype.kind not in "OT"  # no references, and no StringDType
        data = some.tobytes() if is_numeric else repr(some.tolist()).encode()
        checksum = crc32(data, checksum)
    return checksum


def mark_local_rows(array: Array, global_count: int, checksum: int = 0) -> Array:
    """Return rows of a batch as `LocalRows`; an array without rows stays as it is."""
    if not np.ndim(array):
        return array
    rows = np.asarray(array).view(LocalRows)
    rows.global_count, rows.checksum = global_count, checksum
    return rows


def rows_to_read(rows: range) -> range:
    """Return the rows to read; an empty shard reads the first row for its shape."""
    return rows or range(1)


def shard_of_batch(
    batch_size: int, rows: range, value: Any, ends: object = None
) -> BatchShard:
    """Return the local shard, from a batch of the rows that were read."""
    if not rows:
        value = map_leaves(lambda values: values[:0], value)
    return BatchShard(value, batch_size, ends)


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
