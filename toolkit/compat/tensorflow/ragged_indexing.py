"""Indexing of ragged rows: `rows[key]`."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.ragged_values import (
    concatenate_indices,
    gather_rows,
    gather_values,
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
    items = _expand_ellipsis(key if isinstance(key, tuple) else (key,), rows.ndim)
    if not items:
        return rows
    first, remaining = items[0], items[1:]
    if first is None:
        one = RaggedTensor.from_uniform_row_length(rows, rows.count, 1)
        return _get_inner(one, remaining)
    if isinstance(first, slice):
        picked = gather_rows(rows, np.arange(rows.count)[_to_integer_slice(first)])
        return _get_inner(picked, remaining)
    row = _get_row(rows, index(first))
    return row[tuple(remaining)] if remaining else row


def _get_row(rows: RaggedTensor, number: int) -> Any:
    if not -rows.count <= number < rows.count:
        raise OutOfRangeError(
            f"indexing: row {number} is out of range for a ragged tensor with "
            f"{rows.count} rows"
        )
    number %= rows.count
    first, last = int(rows.splits[number]), int(rows.splits[number + 1])
    return rows.values[first:last]


def _get_inner(rows: RaggedTensor, items: list[Any]) -> RaggedTensor:
    """Apply the parts of a key for the axes inside of rows."""
    if not items:
        return rows
    first, remaining = items[0], items[1:]
    if first is None:
        splits = np.arange(rows.count + 1)
        inner = _get_inner(rows, remaining)
        result = RaggedTensor(inner, splits, 1)
        return result
    if not isinstance(first, slice):
        return _get_column(rows, index(first), remaining)
    if first != slice(None):
        picked = [np.arange(a, b)[_to_integer_slice(first)] for a, b in _bounds(rows)]
        lengths = [len(row_indices) for row_indices in picked]
        values = gather_values(rows.values, concatenate_indices(picked))
        rows = RaggedTensor.from_row_lengths(values, lengths)
    if not remaining:
        return rows
    values = rows.values
    if isinstance(values, RaggedTensor):
        return rows.with_values(_get_inner(values, remaining))
    return rows.with_values(values[(slice(None), *remaining)])


def _get_column(rows: RaggedTensor, number: int, remaining: list[Any]) -> Any:
    """Return one value of each row, for rows with one length by construction."""
    length = rows.uniform_row_length
    if length is None:
        raise ArgumentError(
            "indexing: expected a slice for the axis of rows of different lengths; "
            f"received {number}: use to_tensor(), or a slice such as [:, :1]"
        )
    if not -length <= number < length:
        raise OutOfRangeError(
            f"indexing: value {number} is out of range for rows of {length} values"
        )
    values = gather_values(rows.values, rows.splits[:-1] + number % length)
    return values[(slice(None), *remaining)] if remaining else values


def _bounds(rows: RaggedTensor) -> Any:
    return zip(rows.splits[:-1].tolist(), rows.splits[1:].tolist(), strict=True)


def _expand_ellipsis(key: tuple[Any, ...], rank: int) -> list[Any]:
    """Replace the Ellipsis of a key by full slices."""
    positions = [i for i, item in enumerate(key) if item is Ellipsis]
    if not positions:
        return list(key)
    count = sum(item is not None and item is not Ellipsis for item in key)
    before, after = key[: positions[0]], key[positions[0] + 1 :]
    return [*before, *[slice(None)] * (rank - count), *after]


def _to_integer_slice(item: slice) -> slice:
    """Convert the tensors in a slice to integers."""
    numbers = (item.start, item.stop, item.step)
    return slice(*(None if n is None else index(n) for n in numbers))
