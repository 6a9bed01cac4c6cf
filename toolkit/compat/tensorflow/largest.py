"""The largest and smallest elements along an axis."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit import ops
from toolkit.compat.tensorflow.arguments import dtype_name
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.core.tensor import Tensor
from toolkit.type_aliases import DTypeLike, TensorLike


class TopK(NamedTuple):
    """The largest elements, and their indices."""

    values: Any
    indices: Any


def top_k(
    input: TensorLike,
    k: Any = 1,
    sorted: bool = True,
    index_type: DTypeLike = "int32",
    name: str | None = None,
) -> TopK:
    """Return the k largest elements of the last axis, and their indices."""
    values, indices = ops.top_k(input, int(k), sorted)
    return TopK(values, ops.cast(indices, dtype_name(index_type)))


def approx_max_k(
    operand: TensorLike,
    k: Any,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the k largest elements along an axis, and their indices; they are exact.

    `recall_target`, `reduction_input_size_override` and `aggregate_to_topk`, which
    allow an approximation, have no effect.
    """
    moved = ops.moveaxis(operand, reduction_dimension, -1)
    best = (ops.moveaxis(y, -1, reduction_dimension) for y in ops.top_k(moved, int(k)))
    values, indices = best
    return values, ops.cast(indices, "int32")


def approx_min_k(
    operand: TensorLike,
    k: Any,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the k smallest elements along an axis, and their indices; they are exact.

    `recall_target`, `reduction_input_size_override` and `aggregate_to_topk`, which
    allow an approximation, have no effect.
    """
    values, indices = approx_max_k(ops.negative(operand), k, reduction_dimension)
    return ops.negative(values), indices


make_operations(__name__)
