"""Indexing of tensors: gather, scatter, and sort."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import check_within, dtype_name, extents
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import DTypeLike, Shape, TensorLike


class Unique(NamedTuple):
    """The distinct elements, and the index of each element among them."""

    y: Any
    idx: Any


UniqueWithCounts = namedtuple("UniqueWithCounts", "y idx count")


class IndexedSlices:
    """Rows of a tensor by their indices, for `Variable.scatter_add` and related
    methods.

    Gradients do not have this type: the gradient of a lookup is a tensor.

    Args:
        values: the rows, (number, ...).
        indices: of the rows; duplicates are allowed.
        dense_shape: of the whole tensor; only stored.
    """

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values: Tensor = convert(values)
        self.indices: Tensor = convert(indices)
        self.dense_shape: Any = dense_shape

    @property
    def dtype(self) -> Any:
        """Return the dtype of the rows."""
        return self.values.dtype


def where(
    condition: TensorLike,
    x: TensorLike | None = None,
    y: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Select x where a condition is true, else y; without x and y, return true indices.

    Returns:
        With x and y a tensor of their dtype; without, int64 indices of shape (number,
        rank).

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.where([True, False, True]).numpy().tolist()
        [[0], [2]]
    """
    if (x is None) != (y is None):
        raise ArgumentError("where: expected both x and y, or neither")
    if x is None:
        return convert(np.argwhere(convert(condition).numpy()))
    return ops.where(condition, x, y)


def gather(
    params: Any,
    indices: Any,
    validate_indices: bool | None = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Tensor:
    """Gather slices of params along an axis.

    Args:
        params: the source.
        indices: integers, at least 0 and below the extent; not checked in a trace.
        validate_indices: has no effect, as in TensorFlow.
        axis: batch_dims if None.
        batch_dims: the number of leading axes that params and indices share.
    """
    params, indices = convert(params), convert(indices)
    axis = batch_dims if axis is None else int(axis) % max(params.ndim, 1)
    check_within("gather", indices, params.shape[axis])
    if not batch_dims:
        return ops.take(params, indices, axis)
    moved = ops.moveaxis(params, axis, batch_dims)
    batch, tail = moved.shape[:batch_dims], moved.shape[batch_dims:]
    count = int(np.prod(batch, dtype=int))
    first = ops.reshape(
        np.arange(count, dtype="int32") * tail[0],
        (*batch, *[1] * (indices.ndim - batch_dims)),
    )
    rows = ops.reshape(moved, (count * tail[0], *tail[1:]))
    result = ops.take(rows, convert(indices, "int32") + first, 0)
    # The axes between the batch and the axis are after the indices: move them back.
    inner = indices.ndim
    for n in np.arange(axis - batch_dims):
        result = ops.moveaxis(result, inner + int(n), batch_dims + int(n))
    return result


def gather_nd(
    params: Any, indices: Any, batch_dims: int = 0, name: str | None = None
) -> Tensor:
    """Gather slices of params by index vectors: params[indices[..., :]].

    Args:
        params: the source.
        indices: integers, at least 0 and below the extents; not checked in a trace.
        batch_dims: the number of leading axes that params and indices share.
    """
    params, indices = convert(params), convert(indices)
    if batch_dims:
        batch = indices.shape[:batch_dims]
        grids = ops.meshgrid(*map(np.arange, batch), indexing="ij")
        wide = (*batch, *[1] * (indices.ndim - batch_dims - 1))
        leading_shape = indices.shape[:-1]
        first = [
            ops.broadcast_to(
                ops.cast(ops.reshape(p, wide), indices.dtype), leading_shape
            )
            for p in grids
        ]
        indices = ops.concatenate([ops.stack(first, -1), indices], -1)
    depth = indices.shape[-1]
    extent = params.shape[:depth]
    _check_vectors("gather_nd", indices, params.shape)
    strides = [int(np.prod(extent[i + 1 :], dtype=int)) for i in np.arange(depth)]
    flat = ops.reshape(params, (-1, *params.shape[depth:]))
    return ops.take(flat, ops.sum(indices * np.array(strides, "int32"), -1), 0)


def _check_vectors(function: str, indices: Any, shape: Any) -> None:
    """Check static index vectors against the extents of a tensor."""
    depth = indices.shape[-1]
    if depth > len(shape):
        raise ShapeError(
            f"{function}: expected index vectors of at most {len(shape)} elements, for "
            f"shape {tuple(shape)}; received {depth}"
        )
    if indices.constant is not None:
        for axis in np.arange(depth):
            check_within(function, convert(indices.constant[..., axis]), shape[axis])


def scatter_nd(
    indices: TensorLike, updates: TensorLike, shape: Shape, name: str | None = None
) -> Tensor:
    """Add updates to zeros at index vectors, which a trace does not check."""
    indices = convert(indices)
    _check_vectors("scatter_nd", indices, extents(shape))
    return ops.scatter(indices, updates, extents(shape))


def _make_scatter(reduction: str | None) -> Any:
    def scatter(
        tensor: Any, indices: TensorLike, updates: TensorLike, name: str | None = None
    ) -> Tensor:
        tensor, indices = convert(tensor), convert(indices)
        _check_vectors("tensor_scatter_nd", indices, tensor.shape)
        return ops.scatter_update(tensor, indices, updates, reduction)

    scatter.__doc__ = (
        f"The tensor with updates combined by {reduction} at index vectors."
    )
    return scatter


tensor_scatter_nd_update: Any = _make_scatter(None)
tensor_scatter_nd_add: Any = _make_scatter("add")
tensor_scatter_nd_max: Any = _make_scatter("max")
tensor_scatter_nd_min: Any = _make_scatter("min")


def tensor_scatter_nd_sub(
    tensor: Any, indices: TensorLike, updates: TensorLike, name: str | None = None
) -> Tensor:
    """Subtract updates at index vectors."""
    tensor, indices = convert(tensor), convert(indices)
    _check_vectors("tensor_scatter_nd_sub", indices, tensor.shape)
    return ops.scatter_update(tensor, indices, ops.negative(updates), "add")


def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: DTypeLike = "bool", name: str | None = None
) -> Tensor:
    """Return True for the first `length` elements of each row with `maxlen`
    elements."""
    lengths = convert(lengths)
    limit = int(np.max(lengths.numpy())) if maxlen is None else int(maxlen)
    mask = np.arange(limit, dtype="int32") < ops.expand_dims(lengths, -1)
    return ops.cast(mask, dtype_name(dtype))


def reverse_sequence(
    input: TensorLike,
    seq_lengths: TensorLike,
    seq_axis: int = 1,
    batch_axis: int = 0,
    name: str | None = None,
) -> Tensor:
    """Reverse the first `length` elements of each row."""
    x = ops.moveaxis(input, (batch_axis, seq_axis), (0, 1))
    lengths = ops.expand_dims(ops.cast(seq_lengths, "int32"), 1)
    order = np.arange(x.shape[1], dtype="int32")[None]
    positions = ops.where(order < lengths, lengths - 1 - order, order)
    positions = ops.reshape(positions, (*positions.shape, *[1] * (x.ndim - 2)))
    result = ops.take_along_axis(x, ops.broadcast_to(positions, x.shape), 1)
    return ops.moveaxis(result, (0, 1), (batch_axis, seq_axis))


def dynamic_partition(
    data: Any, partitions: Any, num_partitions: Any, name: str | None = None
) -> list[Tensor]:
    """Partition the data by the number in `partitions`; not in a trace."""
    data, partitions = convert(data), np.asarray(partitions)
    if tuple(data.shape[: partitions.ndim]) != partitions.shape:
        raise ShapeError(
            "dynamic_partition: expected partitions of the first extents of data, "
            f"{tuple(data.shape)}; received shape {partitions.shape}"
        )
    check_within("dynamic_partition", convert(partitions), int(num_partitions))
    rows = ops.reshape(data, (-1, *data.shape[partitions.ndim :]))
    flat = partitions.ravel()
    return [
        ops.take(rows, np.flatnonzero(flat == number), 0)
        for number in range(int(num_partitions))
    ]


def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Tensor:
    """Put the rows of the data at their indices; for duplicates the last row counts.

    A missing index has a row of zeros.
    """
    flat_indices = np.concatenate([np.ravel(np.asarray(i)) for i in indices])
    rows = [
        ops.reshape(x, (-1, *x.shape[np.ndim(i) :]))
        for i, x in zip(indices, map(convert, data), strict=True)
    ]
    every = ops.concatenate(rows, 0)
    if flat_indices.size:
        check_within(
            "dynamic_stitch", convert(flat_indices), int(flat_indices.max()) + 1
        )
    named, last = np.unique(flat_indices[::-1], return_index=True)
    sources = len(flat_indices) - 1 - last
    if named.size and named.size <= named[-1]:  # there are gaps
        every = ops.concatenate([every, ops.zeros_like(every[:1])], 0)
        sources, gaps = np.full(named[-1] + 1, len(flat_indices)), sources
        sources[named] = gaps
    return ops.take(every, sources, 0)


def histogram_fixed_width(
    values: Any,
    value_range: Any,
    nbins: Any = 100,
    dtype: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """Count the values in bins of equal width; the outer bins include outliers."""
    values = convert(values)
    low, high = (convert(v, values.dtype) for v in ops.unstack(convert(value_range)))
    count = int(nbins)
    bins = ops.floor((values - low) / (high - low) * count)
    bins = ops.cast(ops.clip(bins, 0, count - 1), "int32")
    return ops.cast(
        ops.bincount(ops.reshape(bins, (-1,)), minlength=count), dtype_name(dtype)
    )


def unravel_index(indices: Any, dims: ShapeLike, name: str | None = None) -> Tensor:
    """Return the coordinates, one row per axis, of flat indices into a shape."""
    indices, shape = convert(indices), extents(dims)
    check_within("unravel_index", indices, int(np.prod(shape, dtype=int)))
    steps = [int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape))]
    rows = [indices // step % n for step, n in zip(steps, shape, strict=True)]
    return ops.stack(rows, 0)


# --- order ----------------------------------------------------------------------------


def sort(
    values: TensorLike,
    axis: int = -1,
    direction: str = "ASCENDING",
    name: str | None = None,
) -> Tensor:
    """Sort the values along an axis."""
    result = ops.sort(values, axis)
    return ops.flip(result, axis) if _descending(direction) else result


def argsort(
    values: TensorLike,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the int32 indices that sort the values along an axis.

    `stable` has no effect: the sort is always stable.
    """
    if not _descending(direction):
        return ops.argsort(values, axis)
    # Two reversals keep the order of equal values.
    flipped = ops.flip(ops.argsort(ops.flip(values, axis), axis), axis)
    return convert(values).shape[axis] - 1 - flipped


def _descending(direction: str) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ArgumentError(
            "direction: expected ASCENDING or DESCENDING; received " + repr(direction)
        )
    return direction == "DESCENDING"


def searchsorted(
    sorted_sequence: TensorLike,
    values: TensorLike,
    side: str = "left",
    out_type: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """Return the insertion positions of values in a sorted vector, or in sorted
    rows."""
    rows, values = convert(sorted_sequence), convert(values)
    if rows.ndim == 1:
        result = ops.searchsorted(rows, values, side)
    else:
        compare = ops.less if side == "left" else ops.less_equal
        before = compare(ops.expand_dims(rows, -2), ops.expand_dims(values, -1))
        result = ops.sum(ops.cast(before, "int32"), -1)
    return ops.cast(result, dtype_name(out_type))


def unique(x: TensorLike, out_idx: Any = "int32", name: str | None = None) -> Unique:
    """Return the distinct values in order of appearance, and the index of each
    element."""
    y, idx, _ = unique_with_counts(x, out_idx)
    return Unique(y, idx)


def unique_with_counts(x: Any, out_idx: Any = "int32", name: str | None = None) -> Any:
    """Return the results of `unique` and the count of each value."""
    x = convert(x)
    values, first, inverse, counts = np.unique(
        dtypes.to_sortable(x.numpy()),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    order = np.argsort(first)
    rank_of = np.argsort(order)
    dtype = dtype_name(out_idx)
    return UniqueWithCounts(
        convert(values[order], x.dtype),
        convert(rank_of[inverse], dtype),
        convert(counts[order], dtype),
    )


make_operations(__name__)
