"""`tf.ragged`: rows of different lengths, from lists, tensors and ranges."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit.compat.tensorflow import sparse
from toolkit.compat.tensorflow.arguments import dtype_name
from toolkit.compat.tensorflow.boundary import wrap_module_results
from toolkit.compat.tensorflow.ragged_joining import (
    boolean_mask as boolean_mask,
    stack_rows,
)
from toolkit.compat.tensorflow.ragged_layers import call_layer as _call_layer
from toolkit.compat.tensorflow.ragged_operations import map_flat
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor as RaggedTensor
from toolkit.compat.tensorflow.ragged_values import (
    as_values,
    gather_values,
    static_integers,
)
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.composites import register_ragged
from toolkit.core.tensor import Tensor
from toolkit.dtypes import STRING
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import DTypeLike, TensorLike

_LISTS = (list, tuple, np.ndarray)


register_ragged(RaggedTensor)
RaggedTensor.operations["call_layer"] = _call_layer


def constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = "int64",
) -> Any:
    """Convert nested lists to a RaggedTensor; a single number to a tensor.

    Args:
        pylist: the rows.
        dtype: of the values.
        ragged_rank: the number of ragged axes after the first; the default is all, or
            all before `inner_shape`.
        inner_shape: the shape of an innermost value.
        row_splits_dtype: int32 or int64.

    Raises:
        ArgumentError: the lists have different depths.
    """
    depth = _depth(pylist)
    inner = tuple(inner_shape or ())
    rank = ragged_rank
    if rank is None:
        rank = max(0, depth - 1 - len(inner))
    rows, splits = list(pylist) if depth else pylist, []
    for _ in builtins.range(rank):
        lengths = [len(row) for row in rows]
        splits.append(np.cumsum([0, *lengths]).astype(dtype_name(row_splits_dtype)))
        rows = [value for row in rows for value in row]
    values = _constant_values(rows, dtype, inner)
    return RaggedTensor.from_nested_row_splits(values, splits) if splits else values


def _depth(x: TensorLike) -> int:
    """Return the depth of nested lists.

    Raises:
        ArgumentError: the depth varies.
    """
    if not isinstance(x, _LISTS) or (isinstance(x, np.ndarray) and not x.ndim):
        return 0
    is_list = [isinstance(item, _LISTS) for item in x]
    if any(is_list) and not all(is_list):
        raise ArgumentError(
            "ragged.constant: expected all numbers at the same depth of the lists"
        )
    return 1 + max((_depth(item) for item in x), default=0)


def _constant_values(
    values: TensorLike, dtype: DTypeLike | None, inner: tuple[int, ...]
) -> Any:
    if isinstance(values, list) and not values:
        if dtype is not None and dtype_name(dtype) == STRING:
            return StringTensor(np.zeros((0, *inner), object))
        return convert(np.zeros((0, *inner), dtype_name(dtype) or "float32"))
    result = as_values(values)
    if dtype is not None and not isinstance(result, StringTensor):
        result = convert(result, dtype_name(dtype))
    if inner and tuple(result.shape)[1:] != inner:
        raise ShapeError(
            f"ragged.constant: expected elements of shape {inner}; received "
            f"{tuple(result.shape)[1:]}"
        )
    return result


def stack(
    values: Sequence[Any], axis: int = 0, name: str | None = None
) -> RaggedTensor:
    """Stack tensors or ragged tensors along a new axis.

    Args:
        values: tensors whose rows can have different lengths.
        axis: the new axis.
    """
    if axis == 0:
        return stack_rows(values)
    rows = [x if _is_ragged(x) else RaggedTensor.from_tensor(x) for x in values]
    return RaggedTensor.operations["stack"](stack, rows, axis)


def _is_ragged(x: TensorLike) -> bool:
    return isinstance(x, RaggedTensor)


def map_flat_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with the innermost values of its ragged arguments.

    Args:
        op: the function; it keeps the number of values.
        args, kwargs: its arguments. Ragged ones need rows of the same lengths.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.ragged.map_flat_values(tf.square, tf.ragged.constant([[1, 2], [3]]))
        <tf.RaggedTensor [[1, 4], [9]]>
    """
    if not any(map(_is_ragged, (*args, *kwargs.values()))):
        return op(*args, **kwargs)
    return map_flat(op, args, kwargs)


def range(
    starts: TensorLike,
    limits: TensorLike | None = None,
    deltas: TensorLike = 1,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    row_splits_dtype: DTypeLike = "int64",
) -> RaggedTensor:
    """Return rows that count from starts to limits, or from 0 to starts.

    Args:
        starts, limits, deltas: a number for each row, or one for all.
        dtype: of the numbers.
        row_splits_dtype: int32 or int64.
    """
    if limits is None:
        starts, limits = 0, starts
    bounds = np.broadcast_arrays(
        *(np.asarray(convert(x)) for x in (starts, limits, deltas))
    )
    kind = dtype_name(dtype) or np.result_type(*bounds)
    rows = [
        np.arange(*row).astype(kind)
        for row in zip(*map(np.atleast_1d, bounds), strict=True)
    ]
    result = RaggedTensor.from_row_lengths(
        np.concatenate([np.zeros(0, kind), *rows]), [len(row) for row in rows]
    )
    return result.with_row_splits_dtype(row_splits_dtype)


def row_splits_to_segment_ids(
    splits: Any, name: str | None = None, out_type: DTypeLike | None = None
) -> Tensor:
    """Convert row splits to the row index of each value."""
    static_splits = static_integers(splits, "splits")
    ids = np.repeat(np.arange(len(static_splits) - 1), np.diff(static_splits))
    return convert(ids.astype(dtype_name(out_type) or static_splits.dtype))


def segment_ids_to_row_splits(
    segment_ids: TensorLike,
    num_segments: TensorLike | None = None,
    out_type: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Convert the row index of each value to row splits."""
    ids = static_integers(segment_ids, "segment_ids")
    rows = RaggedTensor.from_value_rowids(ids, ids, num_segments)
    return convert(rows.splits.astype(dtype_name(out_type) or "int64"))


def stack_dynamic_partitions(
    data: TensorLike,
    partitions: TensorLike,
    num_partitions: Any,
    name: str | None = None,
) -> RaggedTensor:
    """Return the values of each partition as a row."""
    ids = static_integers(partitions, "partitions")
    order = np.argsort(ids, kind="stable")
    values = gather_values(as_values(data), order)
    return RaggedTensor.from_value_rowids(values, ids[order], int(num_partitions))


def cross(inputs: Sequence[Any], name: str | None = None) -> RaggedTensor:
    """Return the combinations of the values in each row, joined by "_X_".

    Args:
        inputs: ragged, sparse or plain tensors of strings or integers with two axes.
    """
    return RaggedTensor.from_sparse(sparse.cross(inputs))


wrap_module_results(__name__)


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"tf.ragged.{name} is not supported: create a tensor by to_tensor()"
    )
