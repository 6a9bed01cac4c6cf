"""Hinge losses: distances of predictions from a margin."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.losses.loss import LossFunctionWrapper
from toolkit.losses.regression import to_tensor_pair
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import DTypeLike, TensorLike


def signed_labels(y_true: Any) -> Tensor:
    """Return labels 0 and 1 as -1 and 1; other labels stay unchanged."""
    binary = ops.all(ops.logical_or(ops.equal(y_true, 0), ops.equal(y_true, 1)))
    return ops.where(binary, 2.0 * y_true - 1.0, y_true)


@operation
def hinge(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Compute mean(maximum(1 - y_true * y_pred, 0)) over the last axis.

    Args:
        y_true: (..., features), labels -1 and 1, or 0 and 1.
        y_pred: (..., features).

    Returns:
        A tensor, (...): one value for each row of features.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.hinge([[1.0, -1.0]], [[2.0, 0.5]])
        >>> round(float(loss[0]), 4)
        0.75
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    return ops.mean(ops.maximum(1.0 - signed_labels(y_true) * y_pred, 0.0), axis=-1)


@operation
def squared_hinge(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Compute mean(maximum(1 - y_true * y_pred, 0) ** 2) over the last axis.

    Args:
        y_true: (..., features), labels -1 and 1, or 0 and 1.
        y_pred: (..., features).

    Returns:
        A tensor, (...): one value for each row of features.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.squared_hinge([[1.0, -1.0]], [[2.0, 0.5]])
        >>> round(float(loss[0]), 4)
        1.125
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    distance = ops.maximum(1.0 - signed_labels(y_true) * y_pred, 0.0)
    return ops.mean(ops.square(distance), axis=-1)


@operation
def categorical_hinge(y_true: Any, y_pred: Any) -> Tensor:
    """Compute maximum(1 + max((1 - y_true) * y_pred) - sum(y_true * y_pred), 0).

    Args:
        y_true: (..., classes), one-hot.
        y_pred: (..., classes).

    Returns:
        A tensor, (...): one value for each sample.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.categorical_hinge([[0.0, 1.0]], [[0.5, 0.25]])
        >>> round(float(loss[0]), 4)
        1.25
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    true_score = ops.sum(y_true * y_pred, axis=-1)
    best_false_score = ops.max((1.0 - y_true) * y_pred, axis=-1)
    return ops.maximum(best_false_score - true_score + 1.0, 0.0)


class Hinge(LossFunctionWrapper):
    """Hinge loss: mean(maximum(1 - y_true * y_pred, 0)).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> float(losses.Hinge()([[1.0], [-1.0]], [[2.0], [0.5]]))
        0.75
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "hinge",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(hinge, reduction, name, dtype)


class SquaredHinge(LossFunctionWrapper):
    """Squared hinge loss: mean(maximum(1 - y_true * y_pred, 0) ** 2).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.SquaredHinge()
        >>> round(float(loss([[1.0], [-1.0]], [[2.0], [0.5]])), 4)
        1.125
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "squared_hinge",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(squared_hinge, reduction, name, dtype)


class CategoricalHinge(LossFunctionWrapper):
    """Hinge loss between the right class and the best wrong class.

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.CategoricalHinge()
        >>> round(float(loss([[0.0, 1.0]], [[0.5, 0.25]])), 4)
        1.25
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_hinge",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(categorical_hinge, reduction, name, dtype)
