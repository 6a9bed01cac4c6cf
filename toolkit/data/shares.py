"""Batches of which one process of a job makes its rows only.

Positions count the elements of whole batches, so that they are those of any number of
processes: what is not made leaves a mark in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from toolkit.data.structure import map_leaves

# From the number of rows of a batch to those that are made.
RowsOf: TypeAlias = Callable[[int], range]

ABSENT = object()  # in the place of an element that another process makes


class Share:
    """Some rows of a batch.

    Args:
        value: a batch of them.
        rows: how many rows the whole batch has.
    """

    def __init__(self, value: Any, rows: int) -> None:
        self.value = value
        self.rows = rows


def taken(rows: range) -> range:
    """The rows that are read: without any, the first shows what rows are like."""
    return rows or range(1)


def share(whole: int, rows: range, made: Any) -> Share:
    """The share of a batch, from a batch of the rows that were read."""
    if not rows:
        made = map_leaves(lambda values: values[:0], made)
    return Share(made, whole)


class Selection(NamedTuple):
    """Which elements become rows of a share.

    Attributes:
        size: elements of a batch.
        total: elements in all.
        rows: of each batch.
    """

    size: int
    total: int
    rows: RowsOf

    def __contains__(self, number: object) -> bool:
        """Whether this process makes the element of a number."""
        assert isinstance(number, int)
        first = number - number % self.size
        whole = min(self.size, self.total - first)
        return number - first in taken(self.rows(whole))


def but_absent(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, for elements that are there."""

    def call(element: Any) -> Any:
        return element if element is ABSENT else function(element)

    return call
