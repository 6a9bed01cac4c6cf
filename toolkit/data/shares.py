"""Local shards of batches in distributed training.

Positions count the elements of global batches, so that they are independent of the
number of processes. A marker replaces each element that is not computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from toolkit.data.structure import map_leaves

# Maps the number of rows of a batch to the rows of the local shard.
RowsOf: TypeAlias = Callable[[int], range]

ABSENT = object()  # replaces an element that another process computes


class Share:
    """Some rows of a batch.

    Args:
        value: a batch of these rows.
        rows: the number of rows of the global batch.
    """

    def __init__(self, value: Any, rows: int) -> None:
        self.value = value
        self.rows = rows


def taken(rows: range) -> range:
    """Return the rows to read; an empty shard reads the first row for its shape."""
    return rows or range(1)


def share(whole: int, rows: range, made: Any) -> Share:
    """Return the local shard, from a batch of the rows that were read."""
    if not rows:
        made = map_leaves(lambda values: values[:0], made)
    return Share(made, whole)


class Selection(NamedTuple):
    """Selection of the elements that become rows of the local shard.

    Attributes:
        size: the number of elements in a batch.
        total: the total number of elements.
        rows: the function that selects rows of a batch.
    """

    size: int
    total: int
    rows: RowsOf

    def __contains__(self, number: object) -> bool:
        """Return whether this process computes the element of an index."""
        assert isinstance(number, int)
        first = number - number % self.size
        whole = min(self.size, self.total - first)
        return number - first in taken(self.rows(whole))


def but_absent(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that skips ABSENT elements."""

    def call(element: Any) -> Any:
        return element if element is ABSENT else function(element)

    return call
