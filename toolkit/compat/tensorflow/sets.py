"""`tf.sets`: rows of tensors as sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.modes import NeedsValues
from toolkit.compat.tensorflow.sparse_tensor import SparseTensor
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.strings import is_string
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentTypeError, ShapeError
from toolkit.type_aliases import DTypeLike, TensorLike

_DTYPES = "int8 int16 int32 int64 uint8 uint16 string".split()


def _rows_as_sets(
    function: str, x: TensorLike
) -> tuple[tuple[int, ...], dict[Any, set[Any]], Any]:
    """Return the leading shape, the set of each row, and the dtype."""
    if isinstance(x, SparseTensor):
        shape = tuple(x.extents)
        indices, values = x.index_array, x.values
    else:
        values = StringTensor(x) if is_string(x) else convert(x)
        shape = tuple(values.shape)
        indices = np.argwhere(np.ones(shape, bool))
    dtype = "string" if is_string(values) else str(values.dtype)
    if dtype not in _DTYPES:
        raise ArgumentTypeError(
            f"{function}: expected integers or strings; received {dtype}"
        )
    if len(shape) < 2:
        raise ShapeError(
            f"{function}: expected at least 2 axes; received shape {shape}"
        )
    if isinstance(values, Tensor) and values.static_value() is None:
        raise NeedsValues(f"tf.sets.{function}")
    array = np.asarray(values)
    sets: dict[Any, set[Any]] = {}
    for index, value in zip(indices.tolist(), array.ravel().tolist(), strict=True):
        sets.setdefault(tuple(index[:-1]), set()).add(value)
    return shape[:-1], sets, array.dtype


def _as_sparse(
    shape: tuple[int, ...], sets: dict[Any, set[Any]], dtype: DTypeLike
) -> SparseTensor:
    """Return the sorted elements of sets as the rows of a SparseTensor."""
    rows = {key: sorted(sets[key]) for key in sorted(sets)}
    index_rows = [(*key, i) for key, row in rows.items() for i in range(len(row))]
    values = np.array([v for row in rows.values() for v in row], dtype)
    widest = max(map(len, rows.values()), default=0)
    indices = np.array(index_rows, "int64").reshape(-1, len(shape) + 1)
    return SparseTensor(indices, values, (*shape, widest))


def _combine(
    function: str,
    a: TensorLike,
    b: TensorLike,
    combine: Callable[[set[Any], set[Any]], set[Any]],
) -> SparseTensor:
    shape, first, dtype = _rows_as_sets(function, a)
    other_shape, second, other_dtype = _rows_as_sets(function, b)
    if dtype != other_dtype:
        raise ArgumentTypeError(
            f"{function}: expected equal dtypes; received {dtype} and {other_dtype}"
        )
    if shape != other_shape:
        raise ShapeError(
            f"{function}: expected equal shapes before the last axis; received "
            f"{shape} and {other_shape}"
        )
    keys = {*first, *second}
    rows = {key: combine(first.get(key, set()), second.get(key, set())) for key in keys}
    return _as_sparse(shape, rows, dtype)


def intersection(
    a: TensorLike, b: TensorLike, validate_indices: bool = True
) -> SparseTensor:
    """Return the intersection of each pair of rows.

    Args:
        a, b: (..., n), tensors or SparseTensors of integers or strings, with equal
            leading shapes.
        validate_indices: has no effect: the order of indices does not matter.

    Returns:
        A SparseTensor whose rows are sorted.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> common = tf.sets.intersection([[1, 2, 3]], [[3, 1, 9]])
        >>> tf.sparse.to_dense(common).numpy().tolist()
        [[1, 3]]
    """
    return _combine("intersection", a, b, set.intersection)


def union(a: TensorLike, b: TensorLike, validate_indices: bool = True) -> SparseTensor:
    """Return the union of each pair of rows: see `intersection`.

    `validate_indices` has no effect.
    """
    return _combine("union", a, b, set.union)


def difference(
    a: TensorLike, b: TensorLike, aminusb: bool = True, validate_indices: bool = True
) -> SparseTensor:
    """Return the difference of each pair of rows: see `intersection`.

    Args:
        a, b: as for `intersection`.
        aminusb: whether to return a - b, or b - a.
        validate_indices: has no effect.
    """
    first, second = (a, b) if aminusb else (b, a)
    return _combine("difference", first, second, set.difference)


def size(a: SparseTensor, validate_indices: bool = True) -> Tensor:
    """Return the number of distinct elements of each row of a SparseTensor, int32.

    `validate_indices` has no effect.
    """
    if not isinstance(a, SparseTensor):
        raise ArgumentTypeError(f"size: expected a SparseTensor; received {a!r:.60}")
    shape, sets, _ = _rows_as_sets("size", a)
    counts = np.zeros(shape, "int32")
    for key, values in sets.items():
        counts[key] = len(values)
    return convert(counts)
