"""Reorder, reshape, split and concatenate sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.arguments import extents
from toolkit.compat.tensorflow.boundary import wrap_module_results
from toolkit.compat.tensorflow.ragged_values import as_values, gather_values
from toolkit.compat.tensorflow.sparse_tensor import SparseTensor, static_int64
from toolkit.compat.tensorflow.string_tensors import StringTensor
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.type_aliases import Array, IntOrInts, Shape, TensorLike


def flat_offsets(indices: Any, shape: Any) -> Any:
    """Return the flat row-major offset of each index."""
    return np.ravel_multi_index(tuple(indices.T), tuple(shape))


def reorder(sp_input: SparseTensor, name: str | None = None) -> SparseTensor:
    """Sort the values in row-major order."""
    return _sort_indices(sp_input.index_array, sp_input.values, sp_input.extents)


def _sort_indices(indices: Array, values: Tensor, shape: Shape) -> SparseTensor:
    order = np.lexsort(indices.T[::-1])
    return SparseTensor(indices[order], gather_values(as_values(values), order), shape)


def transpose(
    sp_input: SparseTensor, perm: TensorLike | None = None, name: str | None = None
) -> SparseTensor:
    """Permute the axes; reverse them if perm is None."""
    axes = (
        list(range(sp_input.ndim))[::-1]
        if perm is None
        else static_int64(perm).tolist()
    )
    shape = [sp_input.extents[n] for n in axes]
    return _sort_indices(sp_input.index_array[:, axes], sp_input.values, shape)


def reshape(
    sp_input: SparseTensor, shape: Shape, name: str | None = None
) -> SparseTensor:
    """Reshape a sparse tensor; one extent can be -1."""
    new_shape = np.zeros(sp_input.extents, bool).reshape(extents(shape)).shape
    flat = flat_offsets(sp_input.index_array, sp_input.extents)
    indices = np.stack(np.unravel_index(flat, new_shape), 1)
    return SparseTensor(indices, sp_input.values, new_shape)


def expand_dims(
    sp_input: SparseTensor, axis: int | None = None, name: str | None = None
) -> SparseTensor:
    """Insert an axis of one element, by default the last."""
    position = (-1 if axis is None else int(axis)) % (sp_input.ndim + 1)
    shape = [*sp_input.extents[:position], 1, *sp_input.extents[position:]]
    indices = np.insert(sp_input.index_array, position, 0, axis=1)
    return SparseTensor(indices, sp_input.values, shape)


def reset_shape(sp_input: SparseTensor, new_shape: Shape | None = None) -> SparseTensor:
    """Set another shape, by default the smallest one that contains the values."""
    minimum = np.max(sp_input.index_array, axis=0, initial=-1) + 1
    shape = minimum if new_shape is None else np.asarray(extents(new_shape))
    if (shape < minimum).any():
        raise ShapeError(
            f"reset_shape: expected extents of {minimum.tolist()} or more; received "
            f"{shape.tolist()}"
        )
    return SparseTensor(sp_input.index_array, sp_input.values, shape)


def retain(sp_input: SparseTensor, to_retain: Any) -> SparseTensor:
    """Return the values where a vector of booleans is true."""
    is_kept = np.flatnonzero(np.asarray(to_retain))
    values = gather_values(sp_input.values, is_kept)
    return SparseTensor(sp_input.index_array[is_kept], values, sp_input.extents)


def slice(
    sp_input: SparseTensor, start: Any, size: IntOrInts, name: str | None = None
) -> Any:
    """Return a slice: `size` elements from `start` on along each axis."""
    first, count = static_int64(start), static_int64(size)
    last = np.minimum(first + count, sp_input.extents)
    is_in = ((sp_input.index_array >= first) & (sp_input.index_array < last)).all(
        axis=1
    )
    result = retain(sp_input, is_in)
    shape = np.maximum(last - first, 0)
    return SparseTensor(result.index_array - first, result.values, shape)


def split(
    sp_input: Any = None,
    num_split: Any = None,
    axis: Any = None,
    name: str | None = None,
) -> list[SparseTensor]:
    """Split along an axis; the first parts are larger if they cannot be equal."""
    axis, count = int(axis) % sp_input.ndim, int(num_split)
    sizes = [
        len(chunk) for chunk in np.array_split(np.arange(sp_input.extents[axis]), count)
    ]
    starts = np.zeros((count, sp_input.ndim), int)
    starts[:, axis] = np.cumsum([0, *sizes[:-1]])
    shapes = np.tile(sp_input.extents, (count, 1))
    shapes[:, axis] = sizes
    return [slice(sp_input, a, n) for a, n in zip(starts, shapes, strict=True)]


def concat(
    axis: int,
    sp_inputs: Sequence[SparseTensor],
    expand_nonconcat_dims: bool = False,
    name: str | None = None,
) -> SparseTensor:
    """Concatenate tensors along an axis.

    Args:
        axis: the axis.
        sp_inputs: sparse tensors.
        expand_nonconcat_dims: whether other extents can differ: the largest applies.
    """
    axis = int(axis) % sp_inputs[0].ndim
    shapes = np.array([x.extents for x in sp_inputs])
    largest = shapes.max(axis=0)
    other_extents = np.delete(shapes, axis, axis=1)
    if not expand_nonconcat_dims and (other_extents != other_extents[0]).any():
        raise ShapeError(
            f"sparse.concat: expected equal extents except along axis {axis}; "
            f"received {shapes.tolist()}"
        )
    largest[axis] = shapes[:, axis].sum()
    starts = np.zeros_like(shapes)
    starts[:, axis] = np.cumsum([0, *shapes[:-1, axis]])
    index_arrays = [
        x.index_array + start for x, start in zip(sp_inputs, starts, strict=True)
    ]
    return _sort_indices(
        np.concatenate(index_arrays), concatenate_values(sp_inputs), largest
    )


def concatenate_values(tensors: Sequence[SparseTensor]) -> Any:
    """Concatenate the values of sparse tensors."""
    values = [tensor.values for tensor in tensors]
    if isinstance(values[0], StringTensor):
        return StringTensor(np.concatenate([np.asarray(x) for x in values]))
    return ops.concatenate(values, 0)


def fill_empty_rows(
    sp_input: SparseTensor, default_value: TensorLike, name: str | None = None
) -> Any:
    """Add a value in the first column of each empty row.

    Returns:
        The sparse tensor, and booleans: whether the row was empty.
    """
    count = sp_input.extents[0]
    is_empty = np.bincount(sp_input.index_array[:, 0], minlength=count)[:count] == 0
    rows = np.flatnonzero(is_empty)
    indices = np.zeros((len(rows), sp_input.ndim), "int64")
    indices[:, 0] = rows
    if isinstance(sp_input.values, StringTensor):
        text = np.asarray(StringTensor(default_value))[()]
        fills: Any = StringTensor(np.full(len(rows), text, object))
    else:
        fills = ops.cast(ops.full((len(rows),), default_value), sp_input.dtype)
    tensors = (sp_input, SparseTensor(indices, fills, sp_input.extents))
    all_indices = np.concatenate([tensor.index_array for tensor in tensors])
    return _sort_indices(
        all_indices, concatenate_values(tensors), sp_input.extents
    ), convert(is_empty)


wrap_module_results(__name__)
