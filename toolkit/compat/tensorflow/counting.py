"""Counts of numbers, and of pairs of numbers."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.arguments import check_within, dtype_name, refuse
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.type_aliases import DTypeLike, TensorLike


def bincount(
    arr: Any,
    weights: TensorLike | None = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: DTypeLike = "int32",
    name: str | None = None,
    axis: int | None = None,
    binary_output: bool = False,
) -> Tensor:
    """Count each integer from 0 on, or sum its weights.

    Args:
        arr: integers; a matrix if axis is -1.
        weights: of the shape of arr.
        minlength, maxlength: of the result.
        dtype: of the result without weights.
        axis: 0 or None to count all; -1 to count in each row.
        binary_output: whether to return 1 for each number with a count.
    """
    arr = convert(arr)
    if axis == -1 and arr.ndim == 2:
        return _count_rows(arr, weights, minlength, maxlength, dtype, binary_output)
    refuse("bincount", axis=(axis or None, None))
    arr = ops.reshape(arr, (-1,))
    weights = None if weights is None else ops.reshape(weights, (-1,))
    counts = ops.bincount(arr, weights, int(minlength or 0))
    if maxlength is not None:
        counts = counts[: int(maxlength)]
    if weights is not None:
        return counts
    counts = ops.minimum(counts, 1) if binary_output else counts
    return ops.cast(counts, dtype_name(dtype))


def _count_rows(
    arr: Tensor,
    weights: Any,
    minlength: Any,
    maxlength: Any,
    dtype: DTypeLike,
    binary: bool,
) -> Tensor:
    """Compute `bincount` of each row of a matrix."""
    count = int(ops.max(arr).numpy()) + 1 if arr.size else 0
    count = max(count, int(minlength or 0))
    count = count if maxlength is None else min(count, int(maxlength))
    hot = ops.one_hot(arr, count, dtype="int32")  # larger numbers have no effect
    if weights is not None:
        weights = convert(weights)
        return ops.sum(ops.cast(hot, weights.dtype) * weights[..., None], 1)
    counts = ops.max(hot, 1) if binary else ops.sum(hot, 1)
    return ops.cast(counts, dtype_name(dtype))


def confusion_matrix(
    labels: TensorLike,
    predictions: TensorLike,
    num_classes: int | None = None,
    weights: TensorLike | None = None,
    dtype: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """Count for each label (row) the predictions of each class (column)."""
    if weights is not None:
        weights = ops.reshape(weights, (-1,))
    pairs = ops.stack([ops.reshape(x, (-1,)) for x in (labels, predictions)], axis=1)
    if num_classes is None:
        num_classes = int(ops.max(pairs).numpy()) + 1
    shape = (int(num_classes), int(num_classes))
    check_within("confusion_matrix", convert(pairs), shape[0])
    if weights is None:
        weights = ops.ones(pairs.shape[:1])
    return ops.scatter(pairs, ops.cast(weights, dtype_name(dtype)), shape)


make_operations(__name__)
