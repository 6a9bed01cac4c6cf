"""Encoding of integers: one-hot codes, counts, and segment reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert, operands
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ops.checks import known_values, normalize_axis, unknown_extent
from toolkit.ops.creation import arange, full, zeros
from toolkit.ops.elementwise import equal, floor, greater_equal, less, where
from toolkit.ops.index import as_indices, put_along_axis_p, scatter_p
from toolkit.ops.numeric import logical_and
from toolkit.ops.reduce import max
from toolkit.ops.shape import broadcast_to, expand_dims, reshape, slice_axis
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import Array, DTypeLike, Shape, TensorLike


def _no_sparse(op: str, sparse: bool) -> None:
    if sparse:
        raise ArgumentError(
            f"{op}: sparse tensors are unsupported; received sparse=True"
        )


def whole_indices(op: str, x: Tensor, otherwise: int) -> Tensor:
    """Convert numbers of any dtype to indices, int32 or int64.

    Args:
        op: name of the caller in messages.
        x: any shape.
        otherwise: the index for a fraction, if values are known only at run time.

    Raises:
        ArgumentError: the values are known, and one of them is a fraction.
    """
    integer = "int64" if x.dtype in ("int64", "uint32", "uint64") else "int32"
    if not dtypes.is_float(x.dtype):
        return convert(x, integer)
    if isinstance(x._array, np.ndarray):
        values = x._array.astype("float64")
        fractions = values[values % 1 != 0]
        if fractions.size:
            raise ArgumentError(
                f"{op}: expected indices, whole numbers; received {fractions[0]:g}"
            )
        return convert(x, integer)
    return where(equal(floor(x), x), convert(x, integer), otherwise)


@operation
def one_hot(
    x: TensorLike,
    num_classes: int,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    sparse: bool = False,
) -> Tensor:
    """Return 1 at the index in x, 0 elsewhere.

    Args:
        x: integers; integers outside [0, num_classes) give zeros only. Floats must be
            whole numbers; a fraction in a compiled function gives zeros too.
        num_classes: the extent of the new axis.
        axis: index of the new axis in the result.
        dtype: dtype of the result; floatx if None.
        sparse: must be False; there are no sparse tensors.
    """
    _no_sparse("one_hot", sparse)
    if num_classes < 0:
        raise ArgumentError(
            f"one_hot: expected num_classes >= 0; received {num_classes}"
        )
    x = whole_indices("one_hot", convert(x), -1)
    axis = normalize_axis("one_hot", axis, x.ndim + 1)
    classes = arange(num_classes, dtype=x.dtype)
    classes = reshape(classes, (num_classes, *(1,) * (x.ndim - axis)))
    codes = equal(expand_dims(x, axis), classes)
    return convert(codes, dtypes.standardize(dtype))


@operation
def multi_hot(
    inputs: TensorLike,
    num_classes: int | None = None,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    sparse: bool = False,
    num_tokens: int | None = None,
) -> Tensor:
    """Return 1 at each of the indices along the last axis, 0 elsewhere.

    Args:
        inputs: integers, (n,) or (batch, n).
        num_classes: the extent of the axis of the code.
        axis: index of that axis in the one-hot codes that are combined.
        dtype: dtype of the result; floatx if None.
        sparse: must be False; there are no sparse tensors.
        num_tokens: a deprecated name of num_classes.
    """
    _no_sparse("multi_hot", sparse)
    num_classes = num_tokens if num_classes is None else num_classes
    if num_classes is None:
        raise ArgumentError("multi_hot: Argument `num_classes` must be specified.")
    inputs = convert(inputs)
    codes = one_hot(inputs, num_classes, axis=axis, dtype=dtype)
    return max(codes, axis=1 if inputs.ndim > 1 else 0)


@operation
def bincount(
    x: TensorLike,
    weights: TensorLike | None = None,
    minlength: int = 0,
    sparse: bool = False,
) -> Tensor:
    """Count the occurrences of 0, 1, 2, ..., in each row if x has two axes.

    Args:
        x: integers >= 0, (n,) or (batch, n).
        weights: has x's shape: the weight of each occurrence; 1 if None.
        minlength: the minimum extent of the result. Inside a traced function, where the
            largest value is unknown, it is the extent of the result.
        sparse: must be False; there are no sparse tensors.

    Returns:
        (length,) or (batch, length), int32, or the common dtype of x and weights.
    """
    _no_sparse("bincount", sparse)
    dtype = "int32" if weights is None else operands(x, weights)[1]
    x = as_indices("bincount", x)
    if x.ndim not in (1, 2):
        raise ShapeError(f"bincount: expected 1 or 2 axes; received {x.shape}")
    counted = broadcast_to(convert(1 if weights is None else weights, dtype), x.shape)
    length = _count_of_bins(x, minlength)
    # Negative numbers would index from the end; an index past it raises an error.
    slots = where(less(x, 0), length, x)
    blank = zeros((*x.shape[:-1], length), counted.dtype)
    return bind(put_along_axis_p, blank, slots, counted, axis=x.ndim - 1, mode="add")


def _count_of_bins(x: Tensor, minlength: int) -> int:
    if x.constant is None and minlength:
        return minlength
    extent = unknown_extent(x)
    if extent is not None:
        return extent
    values = known_values("bincount", x, "give `minlength`")
    return int(values.max(initial=minlength - 1)) + 1


def _segments(
    op: str,
    data: Array | Tensor,
    segment_ids: Array | Tensor,
    num_segments: int | None,
    start: Any,
    mode: str,
) -> Tensor:
    """Combine the rows of each segment into `start`; ids out of range are ignored."""
    data, ids = convert(data), as_indices(op, segment_ids)
    if ids.ndim != 1 or ids.shape != data.shape[:1]:
        raise ShapeError(
            f"{op}: expected segment_ids of shape {data.shape[:1]}; "
            f"received {ids.shape}"
        )
    if num_segments is None:
        num_segments = unknown_extent(ids)
    if num_segments is None:
        values = known_values(op, ids, "give `num_segments`")
        num_segments = int(values.max(initial=-1)) + 1
    is_valid = logical_and(greater_equal(ids, 0), less(ids, num_segments))
    # One extra segment receives the rows that belong to none.
    ids = where(is_valid, ids, num_segments)
    blank = full((num_segments + 1, *data.shape[1:]), start(data.dtype), data.dtype)
    y = bind(scatter_p, blank, ids, data, axis=0, mode=mode)
    return slice_axis(y, 0, 0, num_segments)


@operation
def segment_sum(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Sum the rows of each segment.

    Args:
        data: (n, ...).
        segment_ids: (n,), the segment of each row; negative: none.
        num_segments: the extent of the result; default: the largest id + 1.
        sorted: whether the ids ascend; no effect.

    Returns:
        (num_segments, ...).
    """
    return _segments(
        "segment_sum", data, segment_ids, num_segments, lambda dtype: 0, "add"
    )


@operation
def segment_prod(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Multiply the rows of each segment; arguments as for `segment_sum`.

    `sorted` has no effect.
    """
    return _segments(
        "segment_prod", data, segment_ids, num_segments, lambda dtype: 1, "mul"
    )


@operation
def segment_max(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Return the maximum of the rows of each segment; arguments as for `segment_sum`.

    `sorted` has no effect.

    A segment without rows has the lowest value of the dtype.
    """
    return _segments(
        "segment_max", data, segment_ids, num_segments, dtypes.lowest, "max"
    )


@operation
def segment_min(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Return the minimum of the rows of each segment; arguments as for `segment_sum`.

    `sorted` has no effect.

    A segment without rows has the highest value of the dtype.
    """
    return _segments(
        "segment_min", data, segment_ids, num_segments, dtypes.highest, "min"
    )


@operation
def unravel_index(indices: TensorLike, shape: Shape) -> tuple[Tensor, ...]:
    """Convert indices into a flattened tensor of `shape` to indices along its axes."""
    indices = convert(indices)
    dtype = indices.dtype
    indices = as_indices("unravel_index", indices)
    columns = []
    for n in reversed(tuple(shape)):
        columns.append(convert(indices % n, dtype))
        indices = indices // n
    return tuple(reversed(columns))
