"""Indexing of ragged rows: `rows[key]`."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.ragged_values import (
    joined,
    taken,
    taken_rows,
)
from toolkit.errors import ArgumentError, OutOfRangeError


def get_item(rows: RaggedTensor, key: Any) -> Any:
    """Return a row, or parts of all rows.

    Args:
        rows: the ragged rows.
        key: integers, slices, None or Ellipsis. An integer is allowed for the first
            axis and after the ragged axes.

    Raises:
        ArgumentError: an integer for an axis of rows of different lengths.
    """
    parts = _expanded(key if isinstance(key, tuple) else (key,), rows.ndim)
    if not parts:
        return rows
    first, rest = parts[0], parts[1:]
    if first is None:
        one = RaggedTensor.from_uniform_row_length(rows, rows.count, 1)
        return _inner(one, rest)
    if isinstance(first, slice):
        picked = taken_rows(rows, np.arange(rows.count)[_plain(first)])
        return _inner(picked, rest)
    row = _row(rows, index(first))
    return row[tuple(rest)] if rest else row


def _row(rows: RaggedTensor, number: int) -> Any:
    if not -rows.count <= number < rows.count:
        raise OutOfRangeError(
            f"indexing: row {number} of a ragged tensor with {rows.count} rows"
        )
    number %= rows.count
    first, last = int(rows.splits[number]), int(rows.splits[number + 1])
    return rows.values[first:last]


def _inner(rows: RaggedTensor, parts: list[Any]) -> Any:
    """Apply the parts of a key for the axes inside of rows."""
    if not parts:
        return rows
    first, rest = parts[0], parts[1:]
    if first is None:
        splits = np.arange(rows.count + 1)
        inner = _inner(rows, rest)
        made = RaggedTensor(inner, splits, 1)
        return made
    if not isinstance(first, slice):
        return _column(rows, index(first), rest)
    if first != slice(None):
        picked = [np.arange(a, b)[_plain(first)] for a, b in _bounds(rows)]
        lengths = [len(places) for places in picked]
        values = taken(rows.values, joined(picked))
        rows = RaggedTensor.from_row_lengths(values, lengths)
    if not rest:
        return rows
    values = rows.values
    if isinstance(values, RaggedTensor):
        return rows.with_values(_inner(values, rest))
    return rows.with_values(values[(slice(None), *rest)])


def _column(rows: RaggedTensor, number: int, rest: list[Any]) -> Any:
    """Return one value of each row, for rows with one length by construction."""
    length = rows.uniform_row_length
    if length is None:
        raise ArgumentError(
            "indexing: expected a slice for the axis of rows of different lengths; "
            f"received {number}: use to_tensor(), or a slice such as [:, :1]"
        )
    if not -length <= number < length:
        raise OutOfRangeError(f"indexing: value {number} of rows of {length} values")
    values = taken(rows.values, rows.splits[:-1] + number % length)
    return values[(slice(None), *rest)] if rest else values


def _bounds(rows: RaggedTensor) -> Any:
    return zip(rows.splits[:-1].tolist(), rows.splits[1:].tolist(), strict=True)


def _expanded(key: tuple[Any, ...], rank: int) -> list[Any]:
    """Replace the Ellipsis of a key by full slices."""
    places = [i for i, part in enumerate(key) if part is Ellipsis]
    if not places:
        return list(key)
    given = sum(part is not None and part is not Ellipsis for part in key)
    before, after = key[: places[0]], key[places[0] + 1 :]
    return [*before, *[slice(None)] * (rank - given), *after]


def _plain(part: slice) -> slice:
    """Convert the tensors in a slice to integers."""
    numbers = (part.start, part.stop, part.step)
    return slice(*(None if n is None else index(n) for n in numbers))
