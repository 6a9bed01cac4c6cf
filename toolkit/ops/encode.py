"""Encoding of integers: one-hot codes, counts, and segment reductions."""

from __future__ import annotations

import builtins
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
from toolkit.type_aliases import DTypeLike, Shape, TensorLike


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
    array = x.static_value() if x._array is None else x._array
    if isinstance(array, np.ndarray):
        values = array.astype("float64")
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
    """Encode integers as vectors with a 1 at the index and 0 elsewhere.

    Args:
        x: integers of any shape. Integers outside [0, num_classes) give zeros. Floats
            must be whole numbers; in a compiled function, a fraction gives zeros.
        num_classes: the extent of the new axis.
        axis: the index of the new axis in the result. The default is the last axis.
        dtype: the dtype of the result. None means floatx.
        sparse: must be False, because there are no sparse tensors.

    Returns:
        A tensor with the shape of `x` and an additional axis of extent `num_classes`.

    Raises:
        ArgumentError: `num_classes` is negative.

    Example:
        >>> from toolkit import ops
        >>> print(ops.one_hot([2, 0, -1], 3))
        [[0. 0. 1.]
         [1. 0. 0.]
         [0. 0. 0.]]
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
    """Encode rows of integers as vectors with a 1 at each of the indices.

    Args:
        inputs: integers, (n,) or (batch, n). Integers outside [0, num_classes) have no
            effect.
        num_classes: the extent of the axis of classes.
        axis: the index of the axis of classes in the one-hot vectors that are combined.
        dtype: the dtype of the result. None means floatx.
        sparse: must be False, because there are no sparse tensors.
        num_tokens: a deprecated name of `num_classes`.

    Returns:
        A tensor of shape (num_classes,) or (batch, num_classes).

    Raises:
        ArgumentError: `num_classes` is missing.

    Example:
        >>> from toolkit import ops
        >>> print(ops.multi_hot([[0, 2], [1, 1]], 3))
        [[1. 0. 1.]
         [0. 1. 0.]]
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
    """Count the occurrences of each non-negative integer.

    Args:
        x: integers >= 0, (n,) or (batch, n).
        weights: the weight of each occurrence, with the shape of `x`. None means 1.
        minlength: the minimum extent of the result. Inside a traced function, where the
            largest integer is unknown, it is the extent of the result.
        sparse: must be False, because there are no sparse tensors.

    Returns:
        A tensor of shape (length,) or (batch, length). It is int32, or has the common
        dtype of `x` and `weights`.

    Raises:
        ShapeError: `x` does not have 1 or 2 axes.
        OutOfRangeError: an element is negative.

    Example:
        >>> from toolkit import ops
        >>> print(ops.bincount([1, 1, 3]))
        [0 2 0 1]
    """
    _no_sparse("bincount", sparse)
    dtype = "int32" if weights is None else operands(x, weights)[1]
    x = as_indices("bincount", x)
    if x.ndim not in (1, 2):
        raise ShapeError(f"bincount: expected 1 or 2 axes; received {x.shape}")
    if weights is None and x.ndim == 1:
        counts = _counts_of_values(x, minlength)
        if counts is not None:
            return counts
    counted = broadcast_to(convert(1 if weights is None else weights, dtype), x.shape)
    length = _count_of_bins(x, minlength)
    # Negative numbers would index from the end; an index past it raises an error.
    slots = where(less(x, 0), length, x)
    blank = zeros((*x.shape[:-1], length), counted.dtype)
    return bind(put_along_axis_p, blank, slots, counted, axis=x.ndim - 1, mode="add")


def _counts_of_values(x: Tensor, minlength: int) -> Tensor | None:
    """Return the counts of available numbers >= 0; None for all other numbers."""
    values = x.static_value()
    if not isinstance(values, np.ndarray) or values.min(initial=0) < 0:
        return None
    counts = np.bincount(values, minlength=builtins.max(minlength, 0))
    return convert(counts.astype("int32"))


def _count_of_bins(x: Tensor, minlength: int) -> int:
    if minlength and x.static_value() is None:
        return minlength
    extent = unknown_extent(x)
    if extent is not None:
        return extent
    values = known_values("bincount", x, "give `minlength`")
    return int(values.max(initial=minlength - 1)) + 1


def _segments(
    op: str,
    data: TensorLike,
    segment_ids: TensorLike,
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
        data: (n, ...), rows.
        segment_ids: (n,), the segment of each row. Rows with a negative or too large id
            have no effect.
        num_segments: the number of segments. None means the largest id + 1.
        sorted: no effect; in Keras, whether the ids ascend.

    Returns:
        A tensor of shape (num_segments, ...) with the dtype of `data`. A segment
        without rows is 0.

    Example:
        >>> from toolkit import ops
        >>> print(ops.segment_sum([1, 2, 10], [0, 0, 1]))
        [ 3 10]
    """
    return _segments(
        "segment_sum", data, segment_ids, num_segments, lambda dtype: 0, "add"
    )


@operation
def segment_prod(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Multiply the rows of each segment.

    Args:
        data: (n, ...), rows.
        segment_ids: (n,), the segment of each row. Rows with a negative or too large id
            have no effect.
        num_segments: the number of segments. None means the largest id + 1.
        sorted: no effect; in Keras, whether the ids ascend.

    Returns:
        A tensor of shape (num_segments, ...) with the dtype of `data`. A segment
        without rows is 1.

    Example:
        >>> from toolkit import ops
        >>> print(ops.segment_prod([2, 3, 10], [0, 0, 1]))
        [ 6 10]
    """
    return _segments(
        "segment_prod", data, segment_ids, num_segments, lambda dtype: 1, "mul"
    )


@operation
def segment_max(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Return the maximum of the rows of each segment, elementwise.

    Args:
        data: (n, ...), rows.
        segment_ids: (n,), the segment of each row. Rows with a negative or too large id
            have no effect.
        num_segments: the number of segments. None means the largest id + 1.
        sorted: no effect; in Keras, whether the ids ascend.

    Returns:
        A tensor of shape (num_segments, ...) with the dtype of `data`. A segment
        without rows has the lowest value of the dtype.

    Example:
        >>> from toolkit import ops
        >>> print(ops.segment_max([2, 3, 10], [0, 0, 1]))
        [ 3 10]
    """
    return _segments(
        "segment_max", data, segment_ids, num_segments, dtypes.lowest, "max"
    )


@operation
def segment_min(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Tensor:
    """Return the minimum of the rows of each segment, elementwise.

    Args:
        data: (n, ...), rows.
        segment_ids: (n,), the segment of each row. Rows with a negative or too large id
            have no effect.
        num_segments: the number of segments. None means the largest id + 1.
        sorted: no effect; in Keras, whether the ids ascend.

    Returns:
        A tensor of shape (num_segments, ...) with the dtype of `data`. A segment
        without rows has the highest value of the dtype.

    Example:
        >>> from toolkit import ops
        >>> print(ops.segment_min([2, 3, 10], [0, 0, 1]))
        [ 2 10]
    """
    return _segments(
        "segment_min", data, segment_ids, num_segments, dtypes.highest, "min"
    )


@operation
def unravel_index(indices: TensorLike, shape: Shape) -> tuple[Tensor, ...]:
    """Convert indices into a flattened tensor to indices along its axes.

    Args:
        indices: integers of any shape in [0, n), where n is the number of elements.
        shape: the shape of the tensor; the last axis varies fastest.

    Returns:
        A tuple of one tensor per axis, with the shape and dtype of `indices`.

    Example:
        >>> from toolkit import ops
        >>> [i.tolist() for i in ops.unravel_index([1, 5], (2, 3))]
        [[0, 1], [1, 2]]
    """
    indices = convert(indices)
    dtype = indices.dtype
    indices = as_indices("unravel_index", indices)
    columns = []
    for n in reversed(tuple(shape)):
        columns.append(convert(indices % n, dtype))
        indices = indices // n
    return tuple(reversed(columns))
