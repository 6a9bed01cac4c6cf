"""Rows of different lengths as one value: padded or ragged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from toolkit.data.encoding import encodes
from toolkit.data.structure import (
    TensorSpec,
    all_instances,
    object_array,
)
from toolkit.errors import ArgumentError, OutOfRangeError, ShapeError
from toolkit.type_aliases import Array


def pad(values: Sequence[Any], shape: Any, fill: Any) -> Any:
    """Return values padded to a shape and stacked, or None if all are None.

    Args:
        shape: the padded shape. None or -1 pads an extent to the longest value; None
            as the whole shape does this for all extents.
        fill: the padding value. None pads with 0 or the empty string.
    """
    if all_instances(type(None), values):
        return None
    arrays = [np.asarray(value) for value in values]
    if isinstance(values[0], bytes):
        arrays = [np.asarray(value, object) for value in values]
    ranks = {array.ndim for array in arrays}
    if len(ranks) != 1:
        raise ShapeError(
            f"padded_batch: expected values of one rank; received {sorted(ranks)}"
        )
    extents = np.array([array.shape for array in arrays]).reshape(len(arrays), -1)
    longest = extents.max(axis=0) if extents.size else []
    target_extents = [None] * len(longest) if shape is None else list(shape)
    if len(target_extents) != len(longest):
        raise ShapeError(
            f"padded_batch: expected padded_shapes of the rank {len(longest)} of the "
            f"values; received {tuple(target_extents)}"
        )
    target = [
        int(length) if extent in (None, -1) else int(extent)
        for extent, length in zip(target_extents, longest, strict=True)
    ]
    if any(length > extent for length, extent in zip(longest, target, strict=True)):
        raise ShapeError(
            f"padded_batch: expected values of at most the shape {tuple(target)}; "
            f"received one of {tuple(int(n) for n in longest)}"
        )
    dtype = np.result_type(*arrays)
    if fill is None:
        fill = "" if dtype.kind in "US" else (b"" if dtype.kind == "O" else 0)
    dtype = _padded_dtype(dtype, fill)
    out = np.full((len(arrays), *target), fill, dtype)
    for row, array in enumerate(arrays):
        region: Any = (row, *map(slice, array.shape))
        out[region] = array[()]  # the object itself, not a 0-d array of it
    return out


def _padded_dtype(dtype: np.dtype[Any], fill: Any) -> np.dtype[Any]:
    """Return the dtype of padded values, wide enough for a text fill value."""
    value = np.asarray(fill)
    is_text = dtype.kind in "USO"
    fits = value.ndim == 0 and is_text == (value.dtype.kind in "USO")
    if fits and dtype.kind in "iub":
        fits = bool(value.astype(dtype) == value)
    if not fits:
        raise ArgumentError(
            f"padded_batch: expected padding_values with the dtype {dtype} of the "
            f"values; received {fill!r:.60}"
        )
    return np.promote_types(dtype, value.dtype) if dtype.kind in "US" else dtype


class Ragged:
    """Ragged array: the values of rows of different lengths, and the row splits.

    Args:
        values: the concatenated values of all rows.
        row_splits: the start offset of each row, and the end offset of the last: one
            more than the number of rows.

    Example:
        >>> import numpy as np
        >>> from toolkit.data import Ragged
        >>> rows = Ragged(np.array([1, 2, 3]), np.array([0, 1, 3]))
        >>> rows.to_list(), rows.to_padded().tolist()
        ([[1], [2, 3]], [[1, 0], [2, 3]])
    """

    def __init__(self, values: Array, row_splits: Array) -> None:
        self.values: Array = values
        self.row_splits: Array = row_splits

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, row: int) -> Array:
        if not -len(self) <= row < len(self):
            raise OutOfRangeError(f"row {row} of a Ragged with {len(self)} rows")
        row %= len(self)
        return self.values[self.row_splits[row] : self.row_splits[row + 1]]

    def __iter__(self) -> Iterator[Array]:
        return (self[row] for row in range(len(self)))

    @property
    def spec(self) -> TensorSpec:
        """Return the TensorSpec, with None for the row length."""
        return TensorSpec((len(self), *self.row_spec.shape), self.values.dtype)

    @property
    def row_spec(self) -> Any:
        """Return the TensorSpec of a row."""
        return TensorSpec((None, *self.values.shape[1:]), self.values.dtype)

    @property
    def nbytes(self) -> int:
        """Return the size of the values and row splits in bytes."""
        return int(self.values.nbytes + self.row_splits.nbytes)

    def to_list(self) -> list[Any]:
        """Return the rows as lists."""
        return [row.tolist() for row in self]

    def to_padded(self, fill: Any = None) -> Array:
        """Return the rows padded to the longest.

        Args:
            fill: the padding value; None: 0, False or b"".
        """
        return pad(list(self), None, fill)

    def __repr__(self) -> str:
        return f"Ragged({self.to_list()})"


def as_ragged(values: Sequence[Any], splits: Any = "int64") -> Any:
    """Return values of different lengths as a Ragged, and scalars as an array.

    None stays None.

    Args:
        splits: the dtype of the row splits.
    """
    if all_instances(type(None), values):
        return None
    arrays = [np.asarray(value) for value in values]
    if isinstance(values[0], (str, bytes)):
        return object_array(values)
    if arrays[0].ndim == 0:
        return np.stack(arrays)
    ends = np.cumsum([0, *map(len, arrays)], dtype=splits)
    return Ragged(np.concatenate(arrays), ends)


class RaggedRow(np.ndarray[Any, np.dtype[Any]]):
    """Row of a Ragged as an element; a batch of such rows is a Ragged again.

    Results of operations on it are plain arrays.
    """

    _is_whole = False

    @classmethod
    def of(cls, row: Array) -> RaggedRow:
        """Return a view of a row in its Ragged."""
        view = row.view(cls)
        view._is_whole = True
        return view

    @property
    def stacked(self) -> Any:
        """Return the function that batches such rows, or None for a derived array."""
        return as_ragged if self._is_whole else None

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar or not plain.ndim else plain


encodes(
    "ragged",
    Ragged,
    lambda ragged: (ragged.values, ragged.row_splits),
    lambda arrays: Ragged(*arrays),
)
