"""Order: primitives `argsort` and `searchsorted`, and their public functions."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert, operands
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable_as
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ir import Kind, Primitive, Spec, primitive, rule_along_axis
from toolkit.ops.checks import known_values, normalize_axis, stand_in, unknown_extent
from toolkit.ops.creation import arange
from toolkit.ops.elementwise import equal, isfinite, less, maximum, minimum
from toolkit.ops.index import as_indices, gather_p, take_along_axis_p
from toolkit.ops.numeric import logical_and, logical_not
from toolkit.ops.padding import pad
from toolkit.ops.reduce import max, sum
from toolkit.ops.shape import expand_dims, flip, reshape, slice_axis
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import Array, TensorLike

# The minimum size of a group for which the search in groups is faster.
_LEAST_GROUP = 8

argsort_p: Primitive = primitive(
    "argsort", Kind.SORT, lambda x, axis: Spec(x.shape, "int32"), axes=rule_along_axis
)
searchsorted_p: Primitive = primitive(
    "searchsorted",
    Kind.SORT,
    lambda edges, x, side: Spec(x.shape, "int32"),
    axes="_,...->...",
)


def _sort_body(x: Tensor, axis: int) -> Tensor:
    return bind(take_along_axis_p, x, bind(argsort_p, x, axis=axis), axis=axis)


sort_p: Primitive = decomposable_as("sort", lambda x, axis: x, _sort_body)


@operation
def argsort(x: TensorLike, axis: int | None = -1) -> Tensor:
    """Return the indices that sort a tensor along an axis, in ascending order.

    The sort is stable, and NaNs are last.

    Args:
        x: numbers of any shape.
        axis: the axis to sort. None sorts the flattened tensor. The default is the last
            axis.

    Returns:
        An int32 tensor with the shape of `x`, or (x.size,) if `axis` is None.

    Example:
        >>> from toolkit import ops
        >>> print(ops.argsort([3, 1, 2]))
        [1 2 0]
    """
    x = convert(x)
    if axis is None or x.ndim == 0:
        x, axis = reshape(x, (x.size,)), 0
    return bind(argsort_p, x, axis=normalize_axis("argsort", axis, x.ndim))


@operation
def sort(x: TensorLike, axis: int | None = -1) -> Tensor:
    """Sort the elements of a tensor along an axis, in ascending order; NaNs are last.

    Args:
        x: numbers of any shape.
        axis: the axis to sort. None sorts the flattened tensor. The default is the last
            axis.

    Returns:
        A tensor with the dtype of `x`, and its shape, or (x.size,) if `axis` is None.

    Example:
        >>> from toolkit import ops
        >>> print(ops.sort([[3, 1, 2], [9, 8, 7]]))
        [[1 2 3]
         [7 8 9]]
    """
    x = convert(x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normalize_axis("sort", axis, x.ndim)
    return bind(sort_p, x, axis=axis)


@operation
def argpartition(x: TensorLike, kth: int, axis: int | None = -1) -> Tensor:
    """Return indices that move the smallest elements before index kth.

    They sort the axis completely, which satisfies this condition too.

    Args:
        x: numbers of any shape.
        kth: the index in [-n, n), where n is the extent of the axis. No element before
            it is larger than the element at it, and no element after it is smaller.
        axis: the axis to partition. None partitions the flattened tensor. The default
            is the last axis.

    Returns:
        An int32 tensor with the shape of `x`, or (x.size,) if `axis` is None.

    Raises:
        ArgumentError: `kth` is out of range.

    Example:
        >>> from toolkit import ops
        >>> print(ops.argpartition([30, 10, 20], 1))
        [1 2 0]
    """
    x = convert(x)
    n = (
        x.size
        if axis is None
        else x.shape[normalize_axis("argpartition", axis, x.ndim)]
    )
    if not -n <= kth < n:
        raise ArgumentError(f"argpartition: kth={kth} is out of range for {n} elements")
    return argsort(x, axis)


@operation
def top_k(x: TensorLike, k: int, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """Return the k largest elements along the last axis, and their indices.

    Args:
        x: (..., n), numbers.
        k: the number of elements, at most n.
        sorted: no effect: the result is always in descending order. Of equal elements
            the first one is first.

    Returns:
        A pair of tensors of shape (..., k): the values with the dtype of `x`, and the
        int32 indices.

    Raises:
        ShapeError: `x` has fewer than `k` elements along the last axis.

    Example:
        >>> from toolkit import ops
        >>> values, indices = ops.top_k([1, 9, 5], k=2)
        >>> values.tolist(), indices.tolist()
        ([9, 5], [1, 2])
    """
    x = convert(x)
    if x.ndim == 0 or not 0 <= k <= x.shape[-1]:
        raise ShapeError(
            f"top_k: expected at least {k} elements along the last axis; received "
            f"shape {x.shape}"
        )
    indices = _largest(x, k)
    return bind(take_along_axis_p, x, indices, axis=x.ndim - 1), indices


def _largest(x: Tensor, k: int) -> Tensor:
    """Return the indices of the k largest along the last axis, in descending order.

    The k largest elements are in the k groups with the largest maxima: for an element
    of another group, k elements are before it. Of equal elements or groups, the first
    one has priority.
    """
    last, n = x.ndim - 1, x.shape[-1]
    length = math.isqrt(n // k) if k else 0
    if length < _LEAST_GROUP or x.dtype == "bool" or dtypes.is_complex(x.dtype):
        return slice_axis(_descending(x), last, 0, k)
    groups = -(-n // length)
    widths = [(0, 0)] * last + [(0, groups * length - n)]
    padded = pad(x, widths, constant_values=dtypes.lowest(x.dtype))
    maxima = max(reshape(padded, (*x.shape[:-1], groups, length)), axis=-1)
    groups_of_top = sort(slice_axis(_descending(maxima), last, 0, k))
    indices = expand_dims(groups_of_top * length, -1) + arange(length, dtype="int32")
    indices = reshape(indices, (*x.shape[:-1], k * length))
    candidates = bind(take_along_axis_p, padded, indices, axis=last)
    order = slice_axis(_descending(candidates), last, 0, k)
    return bind(take_along_axis_p, indices, order, axis=last)


def _descending(x: Tensor) -> Tensor:
    """Return the indices of the last axis in descending order; the order is stable.

    Reverse, sort and reverse again, because a reversed ascending stable order is not
    stable.
    """
    last = x.ndim - 1
    backwards = bind(argsort_p, flip(x, last), axis=last)
    return (x.shape[last] - 1) - flip(backwards, last)


@operation
def in_top_k(targets: TensorLike, predictions: TensorLike, k: int) -> Tensor:
    """Return whether the target class is among the k best predictions.

    Args:
        targets: (batch,), indices of classes.
        predictions: (batch, classes), scores.
        k: the number of best predictions. A class with the score of the k-th best
            prediction counts as one of them.

    Returns:
        A boolean tensor of shape (batch,). It is false if the target is not a class,
        such as -1, or its score is not finite.

    Example:
        >>> from toolkit import ops
        >>> scores = [[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]]
        >>> print(ops.in_top_k([2, 2], scores, k=2))
        [ True False]
    """
    predictions = convert(predictions)
    targets = expand_dims(as_indices("in_top_k", targets), -1)
    last = predictions.shape[-1] - 1
    class_ = minimum(maximum(targets, 0), last)
    target_scores = bind(
        take_along_axis_p, predictions, class_, axis=predictions.ndim - 1
    )
    better = sum(less(target_scores, predictions), axis=-1)
    counts = logical_and(equal(targets, class_), isfinite(target_scores))
    return logical_and(less(better, k), reshape(counts, better.shape))


@operation
def searchsorted(
    sorted_sequence: Any, values: TensorLike, side: str = "left"
) -> Tensor:
    """Return the indices at which to insert values into a sorted sequence.

    Args:
        sorted_sequence: (n,), numbers in ascending order.
        values: numbers of any shape.
        side: "left" inserts before equal elements, "right" after them.

    Returns:
        An int32 tensor with the shape of `values` and elements in [0, n].

    Raises:
        ShapeError: `sorted_sequence` does not have 1 axis.

    Example:
        >>> from toolkit import ops
        >>> print(ops.searchsorted([10, 20, 30], [5, 20, 99]))
        [0 1 3]
    """
    if side not in ("left", "right"):
        raise unknown_choice("searchsorted: side", side, ("left", "right"))
    (edges, values), _ = operands(sorted_sequence, values)
    if edges.ndim != 1:
        raise ShapeError(
            "searchsorted: expected a sorted sequence of 1 axis; received "
            f"{edges.shape}"
        )
    return bind(searchsorted_p, edges, values, side=side)


@operation
def digitize(x: TensorLike, bins: Any) -> Tensor:
    """Return the index of the bin that contains each element.

    The index is the number of edges <= x.

    Args:
        x: numbers of any shape.
        bins: (n,), the edges between bins, in ascending order.

    Returns:
        An int32 tensor with the shape of `x` and elements in [0, n].

    Example:
        >>> from toolkit import ops
        >>> print(ops.digitize([0.5, 1.0, 7.0], [1.0, 5.0]))
        [0 1 2]
    """
    return searchsorted(bins, x, side="right")


@operation
def isin(
    x1: TensorLike, x2: TensorLike, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Return whether each element of one tensor occurs in another tensor.

    Args:
        x1: the elements to search, of any shape.
        x2: the elements of the set, of any shape.
        assume_unique: no effect; in NumPy, whether no element occurs twice.
        invert: whether to return the opposite.

    Returns:
        A boolean tensor with the shape of `x1`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.isin([1, 2, 3], [2, 4]))
        [False  True False]
    """
    (x1, x2), _ = operands(x1, x2)
    if x1.dtype == "bool":
        x1, x2 = convert(x1, "int32"), convert(x2, "int32")
    if x2.size == 0:
        is_member = less(x1, x1)
    else:
        sorted_values = sort(x2, axis=None)
        indices = bind(searchsorted_p, sorted_values, x1, side="left")
        indices = indices - convert(equal(indices, x2.size), "int32")
        is_member = equal(bind(gather_p, sorted_values, indices, axis=0), x1)
    return logical_not(is_member) if invert else is_member


@operation
def unique(
    x: TensorLike,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the elements of a tensor without duplicates, in ascending order.

    The number of elements depends on the values, which must be available. Inside a
    traced function they are not.

    Args:
        x: numbers of any shape.
        sorted: no effect: the result is always ascending.
        return_index: whether to return the index of the first occurrence of each
            element, too.
        return_inverse: whether to return the index in the result of each element of
            `x`, too.
        return_counts: whether to return the number of occurrences of each element, too.
        axis: the axis whose slices are compared. None compares elements.
        size: the number of elements of the result, which is truncated or padded. None
            means all elements.
        fill_value: the value of the padding. None means 0.

    Returns:
        A tensor with the dtype of `x`, or a tuple of it and the additional int32
        tensors in the order of the arguments.

    Example:
        >>> from toolkit import ops
        >>> print(ops.unique([3, 1, 3, 2]))
        [1 2 3]
        >>> values, counts = ops.unique([3, 1, 3], return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 3], [1, 2])
    """
    x = convert(x)
    requested = (True, return_index, return_inverse, return_counts)
    extent = unknown_extent(x)
    if extent is None:
        data = known_values("unique", x, "compute it outside of the traced function")
        results = _known_unique(data, requested, axis, size, fill_value or 0)
    else:
        every = _unknown_unique(x, axis, extent if size is None else size)
        results = tuple(compress(every, requested))
    return results if len(results) > 1 else results[0]


def _known_unique(
    data: Array,
    requested: Sequence[bool],
    axis: int | None,
    size: int | None,
    fill: float,
) -> tuple[Tensor, ...]:
    """Return the requested results of `unique` for available elements."""
    unique: Any = np.unique
    y = unique(dtypes.to_sortable(data), *requested[1:], axis=axis, equal_nan=False)
    arrays = list(y) if any(requested[1:]) else [y]
    arrays[0] = arrays[0].astype(data.dtype, copy=False)
    if size is not None:
        # The axis to truncate and the padding of each result; the inverse stays.
        fits = ((axis or 0, fill), (0, 1), (None, 0), (0, 0))
        arrays = [
            y if along is None else _fitted(y, size, along, padding)
            for y, (along, padding) in zip(
                arrays, compress(fits, requested), strict=True
            )
        ]
    return (convert(arrays[0]), *(convert(y, "int32") for y in arrays[1:]))


def _unknown_unique(x: Tensor, axis: int | None, extent: int) -> tuple[Tensor, ...]:
    """Return the shapes of results of `unique`: elements, indices, inverse, counts."""
    indices = stand_in((extent,), "int32")
    if axis is None:
        return (
            stand_in((extent,), x.dtype),
            indices,
            stand_in(x.shape, "int32"),
            indices,
        )
    axis = normalize_axis("unique", axis, x.ndim)
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    inverse = stand_in((x.shape[axis],), "int32")
    return stand_in(shape, x.dtype), indices, inverse, indices


def _fitted(x: Any, size: int, axis: int, fill: Any) -> Any:
    """Truncate or pad x to `size` elements along an axis."""
    pad_size = builtins.max(size - x.shape[axis], 0)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, pad_size)
    return np.pad(x, widths, constant_values=fill).take(range(size), axis)
