"""Correlations between targets and predictions."""

from __future__ import annotations

from typing import Any

from toolkit import ops, settings
from toolkit.arguments import Axes
from toolkit.core.tensor import Tensor
from toolkit.losses.regression import match_pair
from toolkit.metrics.reduction import MeanMetricWrapper
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


@operation
def pearson_correlation(
    y_true: TensorLike, y_pred: TensorLike, axis: int = -1
) -> Tensor:
    """Compute covariance(y_true, y_pred) / (std(y_true) * std(y_pred)) along `axis`.

    Args:
        y_true: (..., features).
        y_pred: (..., features).
        axis: the axis of the correlation.

    Returns:
        A tensor, (...): one correlation for each row of features.

    Example:
        >>> from toolkit import metrics
        >>> value = metrics.pearson_correlation([[1.0, 2.0, 3.0]], [[1.0, 3.0, 4.0]])
        >>> round(float(value[0]), 4)
        0.982
    """
    y_true, y_pred = match_pair(y_true, y_pred)
    deviations = [y - ops.mean(y, axis=axis, keepdims=True) for y in (y_true, y_pred)]
    scores = [d / ops.std(d, axis=axis, keepdims=True) for d in deviations]
    return ops.mean(scores[0] * scores[1], axis=axis)


@operation
def concordance_correlation(
    y_true: TensorLike, y_pred: TensorLike, axis: int = -1
) -> Tensor:
    """Compute 2 * covariance / (var(y_true) + var(y_pred) + (offset of means) ** 2).

    Args:
        y_true: (..., features).
        y_pred: (..., features).
        axis: the axis of the correlation.

    Returns:
        A tensor, (...): one correlation for each row of features.

    Example:
        >>> from toolkit import metrics
        >>> y_true, y_pred = [[1.0, 2.0, 3.0]], [[1.0, 3.0, 4.0]]
        >>> value = metrics.concordance_correlation(y_true, y_pred)
        >>> round(float(value[0]), 4)
        0.75
    """
    y_true, y_pred = match_pair(y_true, y_pred)
    means = [ops.mean(y, axis=axis, keepdims=True) for y in (y_true, y_pred)]
    variances = [ops.var(y, axis=axis, keepdims=True) for y in (y_true, y_pred)]
    covariance = (y_true - means[0]) * (y_pred - means[1])
    total = variances[0] + variances[1] + ops.square(means[0] - means[1])
    return ops.mean(2 * covariance / (total + settings.epsilon()), axis=axis)


class PearsonCorrelation(MeanMetricWrapper):
    """Mean Pearson correlation of y_true and y_pred, in [-1, 1].

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.
        axis: the axis of the correlation.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.PearsonCorrelation()
        >>> round(float(metric([[1.0, 2.0, 3.0]], [[1.0, 3.0, 4.0]])), 4)
        0.982
    """

    _direction = "up"

    def __init__(
        self,
        name: str | None = "pearson_correlation",
        dtype: Any = None,
        axis: Axes = -1,
    ) -> None:
        super().__init__(pearson_correlation, name=name, dtype=dtype, axis=axis)
        self.axis = axis


class ConcordanceCorrelation(MeanMetricWrapper):
    """Mean concordance of y_true and y_pred: a correlation that also penalizes offsets.

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.
        axis: the axis of the correlation.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.ConcordanceCorrelation()
        >>> round(float(metric([[1.0, 2.0, 3.0]], [[1.0, 3.0, 4.0]])), 4)
        0.75

    Reference:
        [Lin, 1989](https://doi.org/10.2307/2532051)
    """

    _direction = "up"

    def __init__(
        self,
        name: str | None = "concordance_correlation",
        dtype: Any = None,
        axis: Axes = -1,
    ) -> None:
        super().__init__(concordance_correlation, name=name, dtype=dtype, axis=axis)
        self.axis = axis
