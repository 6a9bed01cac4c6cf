"""Order: primitives `argsort` and `searchsorted`, and their public functions."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert, operands
from toolkit.core.tensor import Tensor, bind
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
from toolkit.type_aliases import TensorLike

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


@operation
def argsort(x: TensorLike, axis: int | None = -1) -> Tensor:
    """Return the indices that sort x along `axis`, int32; None sorts the flattened x.

    The sort is stable, and NaNs are last.
    """
    x = convert(x)
    if axis is None or x.ndim == 0:
        x, axis = reshape(x, (x.size,)), 0
    return bind(argsort_p, x, axis=normalize_axis("argsort", axis, x.ndim))


@operation
def sort(x: TensorLike, axis: int | None = -1) -> Tensor:
    """Sort x in ascending order along `axis`, NaNs last; None sorts the flattened x."""
    x = convert(x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normalize_axis("sort", axis, x.ndim)
    return bind(take_along_axis_p, x, bind(argsort_p, x, axis=axis), axis=axis)


@operation
def argpartition(x: TensorLike, kth: int, axis: int | None = -1) -> Tensor:
    """Return indices that put the kth smallest element at index k, smaller before.

    They sort x completely, which also satisfies this condition.
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
    """Return the k largest elements along the last axis, and their int32 indices.

    Args:
        x: (..., n).
        k: number of elements, at most n.
        sorted: no effect: the result is always in descending order, and of equal
            elements the first one is first.

    Returns:
        Values and indices, both (..., k).
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
    """Return whether fewer than k predictions exceed that for the target class.

    Args:
        targets: (batch,), indices of classes.
        predictions: (batch, classes).
        k: the number of best predictions.

    Returns:
        (batch,), bool; False if the target is not a class, such as -1, or its
        prediction is not finite.
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
    """Return where to insert `values` so that a sorted sequence stays sorted, int32.

    Args:
        sorted_sequence: (n,), ascending.
        values: of any shape.
        side: "left": before elements that are equal, "right": after them.
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
    """Return the index of the bin of each element: the number of edges <= x, int32.

    Args:
        x: of any shape.
        bins: (n,), the edges, ascending.
    """
    return searchsorted(bins, x, side="right")


@operation
def isin(
    x1: TensorLike, x2: TensorLike, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Return whether each element of x1 is among the elements of x2.

    Args:
        x1: of any shape.
        x2: of any shape.
        assume_unique: whether no element occurs twice; no effect.
        invert: whether to return the opposite.
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
    """Return the elements of x without duplicates; the values of x must be known.

    Args:
        x: a tensor.
        sorted: no effect: the result is always ascending.
        return_index: whether to return the index of the first occurrence of each.
        return_inverse: whether to return, for each element of x, its index in the
            result.
        return_counts: whether to return the number of occurrences.
        axis: compare slices along this axis; None: the elements.
        size: number of elements to return: the result is truncated or padded.
        fill_value: value of the padding; 0 if None.

    Returns:
        The elements, or a tuple with the additional results, in the order above.
    """
    x = convert(x)
    requested = (True, return_index, return_inverse, return_counts)
    extent = unknown_extent(x)
    if extent is None:
        data = known_values("unique", x, "compute it outside of the traced function")
        values, index, inverse, counts = np.unique(
            dtypes.to_sortable(data), True, True, True, axis=axis, equal_nan=False
        )
        values = values.astype(data.dtype, copy=False)
        if size is not None:
            values = _fitted(values, size, 0 if axis is None else axis, fill_value or 0)
            index, counts = _fitted(index, size, 0, 1), _fitted(counts, size, 0, 0)
        results = (
            convert(values),
            *(convert(i, "int32") for i in (index, inverse, counts)),
        )
    else:
        results = _unknown_unique(x, axis, extent if size is None else size)
    selected = tuple(
        value for value, want in zip(results, requested, strict=True) if want
    )
    return selected if len(selected) > 1 else selected[0]


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
