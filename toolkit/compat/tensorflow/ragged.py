"""`tf.ragged`: rows of different lengths, from and to lists and padded tensors.

Nothing computes with a RaggedTensor: `to_tensor` makes a tensor of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.arguments import dtype_name, refuse
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.types import (
    TensorShape,
    as_dtype,
    string as string_dtype,
)
from toolkit.compat.tensorflow.views import convert
from toolkit.core.strings import is_string
from toolkit.core.tensor import Tensor
from toolkit.data import Ragged
from toolkit.errors import ArgumentError, ShapeError, UnsupportedError


class RaggedTensor(Ragged):
    """Rows of different lengths; made by `tf.ragged.constant` and `from_...`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> rows = tf.ragged.constant([[1, 2, 3], [], [4]])
        >>> rows.to_tensor().numpy().tolist(), rows.row_lengths().numpy().tolist()
        ([[1, 2, 3], [0, 0, 0], [4, 0, 0]], [3, 0, 1])
    """

    ragged_rank = 1

    @classmethod
    def from_row_splits(
        cls, values: Any, row_splits: Any, name: Any = None, validate: bool = True
    ) -> RaggedTensor:
        """From all values, and where each row begins and the last one ends.

        `validate` has no effect: the numbers are checked in any case.
        """
        values = _array(values)
        splits = np.asarray(convert(row_splits)).astype("int64")
        right = splits.ndim == 1 and len(splits) and splits[0] == 0
        if not right or splits[-1] != len(values) or (np.diff(splits) < 0).any():
            raise ShapeError(
                f"from_row_splits: expected numbers that rise from 0 to {len(values)}, "
                f"the number of values; received {splits.tolist()[:8]}"
            )
        return cls(values, splits)

    @classmethod
    def from_row_lengths(
        cls, values: Any, row_lengths: Any, name: Any = None, validate: bool = True
    ) -> RaggedTensor:
        """From all values, and how many each row has.

        `validate` has no effect: the numbers are checked in any case.
        """
        lengths = np.asarray(convert(row_lengths)).astype("int64")
        return cls.from_row_splits(values, np.cumsum([0, *lengths]))

    @classmethod
    def from_tensor(
        cls,
        tensor: Any,
        lengths: Any = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: Any = None,
        row_splits_dtype: Any = "int64",
    ) -> RaggedTensor:
        """From the rows of a tensor.

        Args:
            tensor: (rows, steps, ...).
            lengths: how many steps of each row count.
            padding: the value that fills rows up at their ends.
            ragged_rank: only 1.
            row_splits_dtype: only int64.
        """
        _only_one_rank("from_tensor", ragged_rank, row_splits_dtype)
        array = _array(tensor)
        if lengths is None:
            full = np.full(len(array), array.shape[1])
            lengths = full if padding is None else _unpadded(array, padding)
        lengths = np.asarray(lengths)
        rows = [row[:n] for row, n in zip(array, lengths, strict=True)]
        return cls.from_row_lengths(np.concatenate([array[:0, 0], *rows]), lengths)

    def to_tensor(
        self, default_value: Any = None, name: Any = None, shape: Any = None
    ) -> Any:
        """A tensor of all rows, filled up to the longest with `default_value`, or 0.

        Args:
            shape: its extents, None where they are as they come; rows longer than the
                second are cut.
        """
        rows = self._rows()
        count, length = (*(shape or ()), None, None)[:2]
        if count not in (None, len(rows)):
            raise ShapeError(f"to_tensor: expected {count} rows; there are {len(rows)}")
        longest = max(map(len, rows), default=0) if length is None else length
        fill = default_value
        if fill is None:
            fill = b"" if self.values.dtype == object else 0
        rest = self.values.shape[1:]
        dense = np.full((len(rows), longest, *rest), fill, self.values.dtype)
        for target, row in zip(dense, rows, strict=True):
            target[: len(row)] = row[:longest]
        return _tensor(dense)

    @property
    def shape(self) -> TensorShape:
        return TensorShape([len(self), None, *self.values.shape[1:]])

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        is_text = self.values.dtype == object
        return string_dtype if is_text else as_dtype(self.values.dtype.name)

    @property
    def flat_values(self) -> Any:
        """The values of all rows, as a tensor."""
        return _tensor(self.values)

    def nrows(self, out_type: Any = "int64", name: Any = None) -> Tensor:
        """How many rows there are."""
        return convert(len(self), dtype_name(out_type))

    def row_lengths(self, axis: int = 1, name: Any = None) -> Tensor:
        """How many values each row has; `axis` is 1."""
        if axis not in (1, -1):
            raise UnsupportedError(f"row_lengths: expected axis=1; received {axis}")
        return convert(np.diff(self.row_splits))

    def bounding_shape(self, axis: int | None = None, name: Any = None) -> Tensor:
        """The shape of `to_tensor()`."""
        longest = max(np.diff(self.row_splits), default=0)
        shape = convert(np.array([len(self), longest, *self.values.shape[1:]], "int64"))
        return shape if axis is None else shape[axis]

    def numpy(self) -> Any:
        """The rows as an array of arrays, or one array if they are of one length."""
        rows = self._rows()
        if len(set(map(len, rows))) <= 1:
            return np.array(rows)
        found = np.empty(len(rows), object)
        found[:] = rows
        return found

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return _from_rows(self._rows()[row], self.values[:0])
        return _tensor(super().__getitem__(int(row)))

    def __iter__(self) -> Any:
        return map(_tensor, self._rows())

    def _rows(self) -> list[Any]:
        """The rows as arrays."""
        return [Ragged.__getitem__(self, row) for row in range(len(self))]

    def __repr__(self) -> str:
        return f"<tf.RaggedTensor {self.to_list()}>"


def _array(values: Any) -> Any:
    return np.asarray(StringTensor(values) if is_string(values) else convert(values))


def _tensor(array: Any) -> Any:
    return StringTensor(array) if array.dtype == object else convert(array)


def _unpadded(array: Any, padding: Any) -> Any:
    """The length of each row without the padding at its end."""
    filled = array != padding
    after = np.argmax(filled[:, ::-1], axis=1)
    return np.where(filled.any(axis=1), array.shape[1] - after, 0)


def _only_one_rank(function: str, ragged_rank: Any, row_splits_dtype: Any) -> None:
    splits = dtype_name(row_splits_dtype)
    refuse(function, ragged_rank=(ragged_rank, 1), row_splits_dtype=(splits, "int64"))


def _from_rows(rows: Sequence[Any], empty: Any) -> RaggedTensor:
    lengths = [len(row) for row in rows]
    return RaggedTensor.from_row_lengths(np.concatenate([empty, *rows]), lengths)


def constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: Any = None,
    row_splits_dtype: Any = "int64",
) -> RaggedTensor:
    """A RaggedTensor of a list of lists; their elements may be lists of one length.

    Args:
        pylist: the rows.
        dtype: of the values.
        ragged_rank: only 1, which None means too.
        inner_shape: the shape of an element, checked.
        row_splits_dtype: only int64.
    """
    _only_one_rank("ragged.constant", ragged_rank or 1, row_splits_dtype)
    if not all(isinstance(row, (list, tuple, np.ndarray)) for row in pylist):
        raise ArgumentError("ragged.constant: expected a list of lists")
    values = [value for row in pylist for value in row]
    inner = tuple(inner_shape or ())
    if values:
        array = _array(values)
    else:
        array = np.zeros((0, *inner), "float32")
    if inner and array.shape[1:] != inner:
        raise ShapeError(
            f"ragged.constant: expected elements of shape {inner}; received "
            f"{array.shape[1:]}"
        )
    if dtype is not None and array.dtype != object:
        array = np.asarray(convert(array, dtype_name(dtype)))
    return RaggedTensor.from_row_lengths(_tensor(array), list(map(len, pylist)))


def stack(values: Sequence[Any], axis: int = 0, name: Any = None) -> RaggedTensor:
    """Tensors of one axis or more as the rows of a RaggedTensor."""
    refuse("ragged.stack", axis=(axis, 0))
    rows = [_array(value) for value in values]
    return _from_rows(rows, rows[0][:0])


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"tf.ragged.{name} is not supported: make a tensor by to_tensor()"
    )
