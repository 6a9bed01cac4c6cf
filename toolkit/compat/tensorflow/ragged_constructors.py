"""Construction of ragged tensors from values, and row splits or row lengths."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from toolkit.compat.tensorflow.arguments import dtype_name
from toolkit.compat.tensorflow.ragged_values import (
    as_values,
    concatenate_indices,
    count_values,
    gather_values,
    reshape_values,
    static_integers,
    to_padding,
    unpadded_lengths,
)
from toolkit.errors import ShapeError
from toolkit.type_aliases import Array, DTypeLike, TensorLike


class RaggedConstructors:
    """The class methods that create a RaggedTensor.

    Args:
        values: the values of all rows.
        row_splits: the start of each row and the end of the last one.
        uniform_row_length: the length of each row, if it is the same by construction.
    """

    def __init__(
        self, values: Any, row_splits: Any, uniform_row_length: int | None = None
    ) -> None:
        self.values: Any = as_values(values)
        self.splits: Array = row_splits
        self.uniform_row_length = uniform_row_length

    @classmethod
    def from_row_splits(
        cls,
        values: TensorLike,
        row_splits: TensorLike,
        name: str | None = None,
        validate: bool = True,
    ) -> Self:
        """Split values into rows.

        `validate` has no effect: the numbers are always checked.
        """
        values, splits = as_values(values), static_integers(row_splits, "row_splits")
        right = splits.ndim == 1 and len(splits) and splits[0] == 0
        if (
            not right
            or splits[-1] != count_values(values)
            or (np.diff(splits) < 0).any()
        ):
            raise ShapeError(
                "from_row_splits: expected increasing numbers from 0 to "
                f"{count_values(values)}, the number of values; received "
                f"{splits.tolist()[:8]}"
            )
        return cls(values, splits)

    @classmethod
    def from_row_lengths(
        cls,
        values: TensorLike,
        row_lengths: TensorLike,
        name: str | None = None,
        validate: bool = True,
    ) -> Self:
        """Return rows of these lengths; `validate` has no effect."""
        lengths = static_integers(row_lengths, "row_lengths")
        zero = np.zeros(1, lengths.dtype)
        splits = np.concatenate([zero, np.cumsum(lengths, dtype=lengths.dtype)])
        return cls.from_row_splits(values, splits)

    @classmethod
    def from_value_rowids(
        cls,
        values: TensorLike,
        value_rowids: TensorLike,
        nrows: Any = None,
        name: str | None = None,
        validate: bool = True,
    ) -> Self:
        """Create rows from the row index of each value.

        Args:
            values: the values, in the order of rows.
            value_rowids: the row index of each value, in nondecreasing order.
            nrows: the number of rows; by default the last index plus 1.
            validate: has no effect: the indices are always checked.
        """
        ids = static_integers(value_rowids, "value_rowids")
        last = int(ids.max()) + 1 if ids.size else 0
        count = last if nrows is None else int(nrows)
        if (np.diff(ids) < 0).any() or count < last:
            raise ShapeError(
                "from_value_rowids: expected nondecreasing numbers below nrows; "
                f"received {ids.tolist()[:8]} and nrows={count}"
            )
        return cls.from_row_lengths(values, np.bincount(ids, minlength=count))

    @classmethod
    def from_row_starts(
        cls,
        values: TensorLike,
        row_starts: TensorLike,
        name: str | None = None,
        validate: bool = True,
    ) -> Self:
        """Create rows from the start of each; `validate` has no effect."""
        values, starts = as_values(values), static_integers(row_starts, "row_starts")
        return cls.from_row_splits(values, np.append(starts, count_values(values)))

    @classmethod
    def from_row_limits(
        cls,
        values: TensorLike,
        row_limits: TensorLike,
        name: str | None = None,
        validate: bool = True,
    ) -> Self:
        """Create rows from the end of each; `validate` has no effect."""
        limits = static_integers(row_limits, "row_limits")
        return cls.from_row_splits(values, np.append(limits[:1] * 0, limits))

    @classmethod
    def from_uniform_row_length(
        cls,
        values: Any,
        uniform_row_length: Any,
        nrows: Any = None,
        validate: bool = True,
        name: str | None = None,
    ) -> Self:
        """Return rows of one length; `validate` has no effect."""
        values, length = as_values(values), int(uniform_row_length)
        count = count_values(values) // length if nrows is None else int(nrows)
        rows = cls.from_row_splits(values, np.arange(count + 1) * length)
        rows.uniform_row_length = length
        return rows

    @classmethod
    def from_nested_row_splits(
        cls,
        flat_values: Any,
        nested_row_splits: Any,
        name: str | None = None,
        validate: bool = True,
    ) -> Self:
        """Create nested rows from the splits of each axis, the outermost first.

        `validate` has no effect.
        """
        values = flat_values
        for splits in reversed(list(nested_row_splits)):
            values = cls.from_row_splits(values, splits)
        return values

    @classmethod
    def from_nested_row_lengths(
        cls,
        flat_values: Any,
        nested_row_lengths: Any,
        name: str | None = None,
        validate: bool = True,
    ) -> Self:
        """Create nested rows from the lengths in each axis, the outermost first.

        `validate` has no effect.
        """
        values = flat_values
        for lengths in reversed(list(nested_row_lengths)):
            values = cls.from_row_lengths(values, lengths)
        return values

    @classmethod
    def from_tensor(
        cls,
        tensor: TensorLike,
        lengths: TensorLike | None = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: DTypeLike = "int64",
    ) -> Self:
        """Return the rows of a tensor without their padding.

        Args:
            tensor: (rows, steps, ...).
            lengths: the number of valid steps of each row.
            padding: the value of the padding at the ends of rows.
            ragged_rank: the number of ragged axes after the first.
            row_splits_dtype: int32 or int64.
        """
        values = as_values(tensor)
        rows, steps, *inner_shape = values.shape
        if ragged_rank > 1:
            inner = reshape_values(values, (rows * steps, *inner_shape))
            nested = cls.from_tensor(inner, None, None, ragged_rank - 1)
            full_rows = cls.from_uniform_row_length(nested, steps, rows)
        else:
            flat = reshape_values(values, (rows * steps, *inner_shape))
            full_rows = cls.from_uniform_row_length(flat, steps, rows)
        full_rows.splits = full_rows.splits.astype(dtype_name(row_splits_dtype))
        if lengths is None and padding is None:
            return full_rows
        if lengths is None:
            array = np.asarray(values)
            lengths = unpadded_lengths(array, to_padding(array, padding))
        counts = np.clip(static_integers(lengths, "lengths"), 0, steps)
        indices = [np.arange(n) + row * steps for row, n in enumerate(counts)]
        return cls.from_row_lengths(
            gather_values(full_rows.values, concatenate_indices(indices)), counts
        )

    @classmethod
    def from_sparse(
        cls,
        st_input: Any,
        name: str | None = None,
        row_splits_dtype: DTypeLike = "int64",
    ) -> Self:
        """Return the rows of a sparse tensor of two axes."""
        indices = np.asarray(st_input.indices)
        count = int(np.asarray(st_input.dense_shape)[0])
        rows = cls.from_value_rowids(st_input.values, indices[:, 0], count)
        rows.splits = rows.splits.astype(dtype_name(row_splits_dtype))
        return rows
