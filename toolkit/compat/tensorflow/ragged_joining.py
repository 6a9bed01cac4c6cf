"""Concatenation, stacking and masks of ragged rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.ragged_values import (
    as_values,
    concatenate_indices,
    count_values,
    gather_rows,
    gather_values,
    reshape_values,
)
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.errors import ShapeError
from toolkit.type_aliases import Axis, TensorLike

_Function = Callable[..., Any]


def _concat(
    function: _Function, values: Sequence[Any], axis: int, **names: object
) -> RaggedTensor:
    rank = max(len(as_values(x).shape) for x in values)
    return concatenate_rows(function, list(values), int(axis) % rank)


def concatenate_rows(function: _Function, values: list[Any], axis: int) -> Any:
    """Concatenate rows, or the values in each row."""
    first = next((x for x in values if isinstance(x, RaggedTensor)), None)
    if first is None:
        return function(values, axis)
    rows = [_with_rank(x, first.ragged_rank) for x in values]
    if axis > 1:
        for other in rows[1:]:
            if not np.array_equal(other.splits, first.splits):
                raise ShapeError("concat: expected rows of the same lengths")
        values_list = [x.values for x in rows]
        return rows[0].with_values(concatenate_rows(function, values_list, axis - 1))
    combined = concatenate_rows(function, [x.values for x in rows], 0)
    if axis == 0:
        lengths = np.concatenate([x.lengths for x in rows])
        return RaggedTensor.from_row_lengths(combined, lengths)
    if len({x.count for x in rows}) != 1:
        raise ShapeError(
            "concat: expected the same number of rows; received "
            f"{', '.join(str(x.count) for x in rows)}"
        )
    starts = np.cumsum([0, *(count_values(x.values) for x in rows)])
    indices = [
        np.arange(x.splits[row], x.splits[row + 1]) + start
        for row in range(rows[0].count)
        for x, start in zip(rows, starts, strict=False)
    ]
    lengths = sum(x.lengths for x in rows)
    return RaggedTensor.from_row_lengths(
        gather_values(combined, concatenate_indices(indices)), lengths
    )


def _with_rank(x: TensorLike, ragged_rank: int) -> RaggedTensor:
    if isinstance(x, RaggedTensor):
        return x
    return RaggedTensor.from_tensor(x, ragged_rank=ragged_rank)


def _stack(
    function: _Function, values: Any, axis: int = 0, **names: object
) -> RaggedTensor:
    rank = max(len(as_values(x).shape) for x in values)
    axis = int(axis) % (rank + 1)
    values_list = [insert_axis(as_values(x), axis) for x in values]
    return concatenate_rows(_concatenated, values_list, axis)


def _concatenated(values: list[Any], axis: int) -> Any:
    if isinstance(values[0], StringTensor):
        return StringTensor(np.concatenate([np.asarray(x) for x in values], axis))
    return ops.concatenate(values, axis)


def insert_axis(x: Any, axis: int) -> Any:
    """Insert an axis of one element into a tensor or ragged rows."""
    if not isinstance(x, RaggedTensor):
        shape = tuple(x.shape)
        return reshape_values(x, (*shape[:axis], 1, *shape[axis:]))
    if axis == 0:
        return RaggedTensor.from_uniform_row_length(x, x.count, 1)
    if axis == 1:
        return RaggedTensor.from_uniform_row_length(x, 1, x.count)
    return x.with_values(insert_axis(x.values, axis - 1))


def _expand_dims(function: _Function, input: Any, axis: int, **names: object) -> Any:
    return insert_axis(input, int(axis) % (input.ndim + 1))


def _squeeze(
    function: _Function, input: Any, axis: Axis | None = None, **names: object
) -> Any:
    axes = [int(n) % input.ndim for n in np.atleast_1d([] if axis is None else axis)]
    if not axes:
        axes = [i for i, n in enumerate(input.shape) if n == 1]
    for axis_index in sorted(axes, reverse=True):
        input = _without_axis(input, axis_index)
    return input


def _without_axis(x: TensorLike, axis: int) -> Any:
    if not isinstance(x, RaggedTensor):
        return ops.squeeze(x, axis)
    if axis == 0:
        return x[0]
    if axis > 1:
        return x.with_values(_without_axis(x.values, axis - 1))
    if (x.lengths != 1).any():
        raise ShapeError("squeeze: expected rows of one value along axis 1")
    return x.values


def stack_rows(rows: Sequence[Any]) -> RaggedTensor:
    """Stack tensors or rows as the rows of a RaggedTensor."""
    values_list = [as_values(row) for row in rows]
    combined = concatenate_rows(_concatenated, values_list, 0)
    return RaggedTensor.from_row_lengths(
        combined, [count_values(row_values) for row_values in values_list]
    )


def _gather(
    function: _Function,
    params: Any,
    indices: TensorLike,
    validate_indices: bool | None = None,
    axis: Axis | None = None,
    batch_dims: int = 0,
    **names: object,
) -> RaggedTensor:
    if isinstance(indices, RaggedTensor) and not batch_dims and not axis:
        if isinstance(params, RaggedTensor):
            return indices.with_flat_values(gather_rows(params, _array(indices)))
        return indices.with_flat_values(function(params, indices.flat_values))
    if batch_dims == 1 and isinstance(params, RaggedTensor):
        rows = _with_rank(indices, 1)
        flat_indices = _array(rows) + params.splits[:-1][rows.rowids()]
        return rows.with_values(gather_values(params.values, flat_indices))
    if axis or batch_dims:
        raise ShapeError("gather: only axis=0 is supported for ragged rows")
    flat_indices = np.asarray(convert(indices))
    return (
        gather_rows(params, flat_indices)
        if flat_indices.ndim
        else params[int(flat_indices)]
    )


def _array(rows: RaggedTensor) -> Any:
    return np.asarray(rows.flat_values)


def _gather_nd(
    function: _Function, params: Any, indices: TensorLike, *args: object
) -> Any:
    indices_array = np.asarray(convert(indices))
    rows = [
        params[tuple(map(int, key))]
        for key in indices_array.reshape(-1, indices_array.shape[-1])
    ]
    return ops.reshape(ops.stack(rows), (*indices_array.shape[:-1], *rows[0].shape))


def _embedding_lookup(function: _Function, params: Any, ids: Any, *args: Any) -> Any:
    return ids.with_flat_values(function(params, ids.flat_values, *args))


def _tile(
    function: _Function, input: TensorLike, multiples: TensorLike, **names: object
) -> Any:
    concat = _concatenated
    for axis, count in enumerate(np.asarray(convert(multiples)).tolist()):
        input = concatenate_rows(concat, [input] * count, axis) if count != 1 else input
    return input


def _reverse(
    function: _Function, tensor: RaggedTensor, axis: Axis, **names: object
) -> RaggedTensor:
    for axis_index in np.atleast_1d(axis):
        key = [slice(None)] * tensor.ndim
        key[int(axis_index)] = slice(None, None, -1)
        tensor = tensor[tuple(key)]
    return tensor


def _split(
    function: _Function,
    value: Any,
    num_or_size_splits: Any,
    axis: int = 0,
    **names: object,
) -> list[Any]:
    if int(axis):
        raise ShapeError("split: only axis=0 is supported for ragged rows")
    sizes = num_or_size_splits
    if not np.ndim(sizes):
        sizes = [value.count // int(sizes)] * int(sizes)
    ends = np.cumsum([0, *map(int, sizes)])
    if ends[-1] != value.count:
        raise ShapeError(f"split: expected sizes that add up to {value.count} rows")
    return [value[a:b] for a, b in zip(ends, ends[1:], strict=False)]


def boolean_mask(data: TensorLike, mask: Any, name: str | None = None) -> Any:
    """Return the values where a mask is true, in the original rows.

    Args:
        data: a tensor or ragged rows.
        mask: booleans of the first axes of data; a mask with one axis selects rows.
    """
    mask, data = as_values(mask), as_values(data)
    if len(mask.shape) == 1:
        return gather_values(data, np.flatnonzero(np.asarray(mask)))
    if not isinstance(mask, RaggedTensor):
        mask = RaggedTensor.from_tensor(mask, ragged_rank=len(mask.shape) - 1)
    if not isinstance(data, RaggedTensor):
        data = RaggedTensor.from_tensor(data, ragged_rank=mask.ragged_rank)
    if isinstance(mask.values, RaggedTensor):
        return data.with_values(boolean_mask(data.values, mask.values))
    selection = np.asarray(mask.values)
    indices, ids = np.flatnonzero(selection), data.rowids()
    lengths = np.bincount(ids[indices], minlength=data.count)
    return RaggedTensor.from_row_lengths(gather_values(data.values, indices), lengths)


OPERATIONS: dict[str, _Function] = {
    "boolean_mask": lambda f, tensor, mask, *args, **names: boolean_mask(tensor, mask),
    "concat": _concat,
    "embedding_lookup": _embedding_lookup,
    "expand_dims": _expand_dims,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "reverse": _reverse,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "tile": _tile,
}
