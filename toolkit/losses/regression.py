"""Losses of regression: squared, absolute, logarithmic, robust, and by angle."""

from __future__ import annotations

import math
from typing import Any

from toolkit import ops, settings
from toolkit.arguments import Axes
from toolkit.core.tensor import Tensor
from toolkit.losses.loss import LossFunctionWrapper, match_ranks
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import DTypeLike, TensorLike


def to_tensor_pair(y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """Return both as tensors of y_pred's dtype."""
    y_pred = ops.convert_to_tensor(y_pred)
    return ops.convert_to_tensor(y_true, y_pred.dtype), y_pred


def match_pair(y_true: TensorLike, y_pred: TensorLike) -> tuple[Any, Any]:
    """Return both as tensors of y_pred's dtype and of one rank."""
    return match_ranks(*to_tensor_pair(y_true, y_pred))


@operation
def mean_squared_error(y_true: Any, y_pred: Any) -> Tensor:
    """Compute mean((y_true - y_pred) ** 2) over the last axis.

    Args:
        y_true: (..., features).
        y_pred: (..., features).

    Returns:
        A tensor, (...): one value for each row of features.

    Example:
        >>> from toolkit import losses
        >>> losses.mean_squared_error([[0.0, 1.0]], [[1.0, 3.0]]).tolist()
        [2.5]
    """
    y_true, y_pred = match_pair(y_true, y_pred)
    return ops.mean(ops.square(y_true - y_pred), axis=-1)


@operation
def mean_absolute_error(y_true: Any, y_pred: Any) -> Tensor:
    """Compute mean(|y_true - y_pred|) over the last axis.

    Args:
        y_true: (..., features).
        y_pred: (..., features).

    Returns:
        A tensor, (...): one value for each row of features.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.mean_absolute_error([[0.0, 1.0]], [[1.0, 3.0]])
        >>> round(float(loss[0]), 4)
        1.5
    """
    y_true, y_pred = match_pair(y_true, y_pred)
    return ops.mean(ops.abs(y_true - y_pred), axis=-1)


@operation
def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Tensor:
    """Compute 100 * mean(|(y_true - y_pred) / max(|y_true|, epsilon)|).

    Args:
        y_true: (..., features).
        y_pred: (..., features).

    Returns:
        A tensor, (...): one value for each row of features.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.mean_absolute_percentage_error([[1.0, 2.0]], [[1.5, 2.0]])
        >>> round(float(loss[0]), 4)
        25.0
    """
    y_true, y_pred = match_pair(y_true, y_pred)
    scale = ops.maximum(ops.abs(y_true), settings.epsilon())
    return 100.0 * ops.mean(ops.abs((y_true - y_pred) / scale), axis=-1)


@operation
def mean_squared_logarithmic_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Compute mean((log(1 + y_true) - log(1 + y_pred)) ** 2) over the last axis.

    Args:
        y_true: (..., features), >= 0; smaller values are clipped to epsilon.
        y_pred: (..., features), also clipped.

    Returns:
        A tensor, (...): one value for each row of features.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.mean_squared_logarithmic_error([[0.0, 1.0]], [[1.0, 3.0]])
        >>> round(float(loss[0]), 4)
        0.4805
    """
    y_true, y_pred = match_pair(y_true, y_pred)
    log_true, log_pred = (
        ops.log(ops.maximum(y, settings.epsilon()) + 1.0) for y in (y_true, y_pred)
    )
    return ops.mean(ops.square(log_true - log_pred), axis=-1)


@operation
def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Tensor:
    """Compute the mean of e ** 2 / 2, or delta * |e| - delta ** 2 / 2 if |e| > delta.

    e is y_true - y_pred; the mean is over the last axis.

    Args:
        y_true: (..., features).
        y_pred: (..., features).
        delta: the bound between the quadratic and the linear part.

    Returns:
        A tensor, (...): one value for each row of features.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.huber([[0.0, 0.0]], [[1.0, 3.0]])
        >>> round(float(loss[0]), 4)
        1.5

    Reference:
        [Huber, 1964](https://doi.org/10.1214/aoms/1177703732)
    """
    y_true, y_pred = match_pair(y_true, y_pred)
    error = ops.abs(y_pred - y_true)
    # For |e| > delta the linear part equals m * (|e| - m / 2) with m = delta.
    clipped = ops.minimum(error, delta)
    return ops.mean(clipped * (error - 0.5 * clipped), axis=-1)


@operation
def log_cosh(y_true: Any, y_pred: Any) -> Tensor:
    """Compute mean(log(cosh(y_pred - y_true))) over the last axis.

    It is close to error ** 2 / 2 for small errors and to |error| - log(2) for large
    ones.

    Args:
        y_true: (..., features).
        y_pred: (..., features).

    Returns:
        A tensor, (...): one value for each row of features.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.log_cosh([[0.0, 0.0]], [[1.0, 3.0]])
        >>> round(float(loss[0]), 4)
        1.3716
    """
    y_true, y_pred = match_pair(y_true, y_pred)
    error = y_pred - y_true
    # cosh would overflow.
    return ops.mean(error + ops.softplus(-2.0 * error) - math.log(2.0), axis=-1)


@operation
def cosine_similarity(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    """Compute -sum(y_true / |y_true| * y_pred / |y_pred|) along `axis`.

    It is -1 for parallel vectors.

    Args:
        y_true: (..., features).
        y_pred: (..., features).
        axis: the axis of the vectors.

    Returns:
        A tensor, (...): one value in [-1, 1] for each pair of vectors.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.cosine_similarity([[1.0, 0.0]], [[3.0, 4.0]])
        >>> round(float(loss[0]), 4)
        -0.6
    """
    y_true, y_pred = match_pair(y_true, y_pred)
    return -ops.sum(normalize(y_true, axis) * normalize(y_pred, axis), axis=axis)


def normalize(x: TensorLike, axis: int) -> Tensor:
    """Return x / |x| along an axis; 0 where x is 0."""
    squares = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-12))


class MeanSquaredError(LossFunctionWrapper):
    """Mean squared error: mean((y_true - y_pred) ** 2).

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
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(mean_squared_error, reduction, name, dtype)


class MeanAbsoluteError(LossFunctionWrapper):
    """Mean absolute error: mean(|y_true - y_pred|).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.MeanAbsoluteError()
        >>> round(float(loss([[0.0], [1.0]], [[1.0], [3.0]])), 4)
        1.5
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_absolute_error",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(mean_absolute_error, reduction, name, dtype)


class MeanAbsolutePercentageError(LossFunctionWrapper):
    """Mean absolute percentage error: 100 * mean(|(y_true - y_pred) / y_true|).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.MeanAbsolutePercentageError()
        >>> round(float(loss([[1.0], [2.0]], [[1.5], [2.0]])), 4)
        25.0
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_absolute_percentage_error",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(mean_absolute_percentage_error, reduction, name, dtype)


class MeanSquaredLogarithmicError(LossFunctionWrapper):
    """Mean squared logarithmic error: mean((log(1 + y_true) - log(1 + y_pred)) ** 2).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.MeanSquaredLogarithmicError()
        >>> round(float(loss([[0.0], [1.0]], [[1.0], [3.0]])), 4)
        0.4805
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_squared_logarithmic_error",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(mean_squared_logarithmic_error, reduction, name, dtype)


class Huber(LossFunctionWrapper):
    """Huber loss: quadratic for errors up to delta, linear above, robust to outliers.

    Args:
        delta: the bound between the quadratic and the linear part.
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
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(huber, reduction, name, dtype, delta=delta)
        self.delta = delta


class LogCosh(LossFunctionWrapper):
    """Log-cosh loss: mean(log(cosh(y_pred - y_true))).

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.LogCosh()
        >>> round(float(loss([[0.0], [0.0]], [[1.0], [3.0]])), 4)
        1.3716
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "log_cosh",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(log_cosh, reduction, name, dtype)


class CosineSimilarity(LossFunctionWrapper):
    """Negative cosine of the angle between y_true and y_pred, in [-1, 1].

    Args:
        axis: the axis of the vectors.
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
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(cosine_similarity, reduction, name, dtype, axis=axis)
        self.axis = axis
