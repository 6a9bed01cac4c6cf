"""Losses between numbers: squared, absolute, logarithmic, robust, by angle."""

from __future__ import annotations

import math
from typing import Any

from toolkit import ops, settings
from toolkit.arguments import Axes
from toolkit.core.tensor import Tensor
from toolkit.losses.loss import LossFunctionWrapper, match_ranks
from toolkit.ops.symbolic import operation


def as_pair(y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """Both as tensors of y_pred's dtype."""
    y_pred = ops.convert_to_tensor(y_pred)
    return ops.convert_to_tensor(y_true, y_pred.dtype), y_pred


def matched(y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """Both as tensors of y_pred's dtype and of one rank."""
    return match_ranks(*as_pair(y_true, y_pred))


@operation
def mean_squared_error(y_true: Any, y_pred: Any) -> Tensor:
    """mean((y_true - y_pred) ** 2) over the last axis.

    Args:
        y_true: (..., features).
        y_pred: (..., features).

    Example:
        >>> from toolkit import losses
        >>> losses.mean_squared_error([[0.0, 1.0]], [[1.0, 3.0]]).tolist()
        [2.5]
    """
    y_true, y_pred = matched(y_true, y_pred)
    return ops.mean(ops.square(y_true - y_pred), axis=-1)


@operation
def mean_absolute_error(y_true: Any, y_pred: Any) -> Tensor:
    """mean(|y_true - y_pred|) over the last axis.

    Args:
        y_true: (..., features).
        y_pred: (..., features).
    """
    y_true, y_pred = matched(y_true, y_pred)
    return ops.mean(ops.abs(y_true - y_pred), axis=-1)


@operation
def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Tensor:
    """100 * mean(|(y_true - y_pred) / max(|y_true|, epsilon)|) over the last axis.

    Args:
        y_true: (..., features).
        y_pred: (..., features).
    """
    y_true, y_pred = matched(y_true, y_pred)
    scale = ops.maximum(ops.abs(y_true), settings.epsilon())
    return 100.0 * ops.mean(ops.abs((y_true - y_pred) / scale), axis=-1)


@operation
def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Tensor:
    """mean((log(1 + y_true) - log(1 + y_pred)) ** 2) over the last axis.

    Args:
        y_true: (..., features), >= 0; smaller values count as epsilon.
        y_pred: (..., features), likewise.
    """
    y_true, y_pred = matched(y_true, y_pred)
    log_true, log_pred = (
        ops.log(ops.maximum(y, settings.epsilon()) + 1.0) for y in (y_true, y_pred)
    )
    return ops.mean(ops.square(log_true - log_pred), axis=-1)


@operation
def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Tensor:
    """The mean of e ** 2 / 2 where |e| <= delta, else delta * |e| - delta ** 2 / 2.

    e is y_true - y_pred, the mean runs over the last axis.

    Args:
        y_true: (..., features).
        y_pred: (..., features).
        delta: where the square turns into a straight line.

    Reference:
        [Huber, 1964](https://doi.org/10.1214/aoms/1177703732)
    """
    y_true, y_pred = matched(y_true, y_pred)
    error = ops.abs(y_pred - y_true)
    # For |e| > delta the parabola and the line agree in: m * (|e| - m / 2).
    inside = ops.minimum(error, delta)
    return ops.mean(inside * (error - 0.5 * inside), axis=-1)


@operation
def log_cosh(y_true: Any, y_pred: Any) -> Tensor:
    """mean(log(cosh(y_pred - y_true))) over the last axis.

    About error ** 2 / 2 for small errors and |error| - log(2) for large ones.

    Args:
        y_true: (..., features).
        y_pred: (..., features).
    """
    y_true, y_pred = matched(y_true, y_pred)
    error = y_pred - y_true
    # cosh itself would overflow.
    return ops.mean(error + ops.softplus(-2.0 * error) - math.log(2.0), axis=-1)


@operation
def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Tensor:
    """-sum(unit(y_true) * unit(y_pred)) along `axis`; -1 where they are parallel.

    Args:
        y_true: (..., features).
        y_pred: (..., features).
        axis: along which vectors run.
    """
    y_true, y_pred = matched(y_true, y_pred)
    return -ops.sum(unit(y_true, axis) * unit(y_pred, axis), axis=axis)


def unit(x: Any, axis: int) -> Tensor:
    """x / |x| along an axis; 0 where x is 0."""
    squares = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-12))


class MeanSquaredError(LossFunctionWrapper):
    """mean((y_true - y_pred) ** 2).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> float(losses.MeanSquaredError()([[0.0], [1.0]], [[1.0], [3.0]]))
        2.5
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_squared_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(mean_squared_error, reduction, name, dtype)


class MeanAbsoluteError(LossFunctionWrapper):
    """mean(|y_true - y_pred|).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_absolute_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(mean_absolute_error, reduction, name, dtype)


class MeanAbsolutePercentageError(LossFunctionWrapper):
    """100 * mean(|(y_true - y_pred) / y_true|), in percent.

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_absolute_percentage_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(mean_absolute_percentage_error, reduction, name, dtype)


class MeanSquaredLogarithmicError(LossFunctionWrapper):
    """mean((log(1 + y_true) - log(1 + y_pred)) ** 2).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_squared_logarithmic_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(mean_squared_logarithmic_error, reduction, name, dtype)


class Huber(LossFunctionWrapper):
    """Squared for errors up to delta, straight beyond: less moved by outliers.

    Args:
        delta: where the square turns into a straight line.
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Reference:
        [Huber, 1964](https://doi.org/10.1214/aoms/1177703732)

    Example:
        >>> from toolkit import losses
        >>> float(losses.Huber(delta=1.0)([[0.0], [0.0]], [[1.0], [3.0]]))
        1.5
    """

    def __init__(
        self,
        delta: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "huber_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(huber, reduction, name, dtype, delta=delta)
        self.delta = delta


class LogCosh(LossFunctionWrapper):
    """mean(log(cosh(y_pred - y_true))): squared when small, straight when large.

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "log_cosh",
        dtype: Any = None,
    ) -> None:
        super().__init__(log_cosh, reduction, name, dtype)


class CosineSimilarity(LossFunctionWrapper):
    """Minus the cosine of the angle between y_true and y_pred, in [-1, 1].

    Args:
        axis: along which vectors run.
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> float(losses.CosineSimilarity()([[0.0, 2.0]], [[1.0, 0.0]]))
        0.0
    """

    def __init__(
        self,
        axis: Axes = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cosine_similarity",
        dtype: Any = None,
    ) -> None:
        super().__init__(cosine_similarity, reduction, name, dtype, axis=axis)
        self.axis = axis
