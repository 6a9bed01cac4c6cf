"""Metrics of regression that are not means of losses."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.losses.loss import match_ranks
from toolkit.metrics.metric import Metric
from toolkit.metrics.reduction import Mean

_AGGREGATIONS = (None, "uniform_average", "variance_weighted_average")


class RootMeanSquaredError(Mean):
    """Root mean squared error: sqrt(mean((y_true - y_pred) ** 2)).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> float(metrics.RootMeanSquaredError()([[0.0], [0.0]], [[1.0], [7.0]]))
        5.0
    """

    _direction = "down"

    def __init__(
        self, name: str | None = "root_mean_squared_error", dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        """Accumulate a batch, (batch, ...), with weights of its leading axes.

        Args:
            y_true: targets, (batch, ...).
            y_pred: predictions, (batch, ...).
            sample_weight: weights of the leading axes, or None.
        """
        y_true = ops.convert_to_tensor(y_true, self.dtype)
        y_pred = ops.convert_to_tensor(y_pred, self.dtype)
        y_true, y_pred = match_ranks(y_true, y_pred)
        super().update_state(ops.square(y_pred - y_true), sample_weight)

    def result(self) -> Tensor:
        return ops.sqrt(super().result())


class R2Score(Metric):
    """Coefficient of determination: 1 - sum(errors ** 2) / variance of y_true.

    Args:
        class_aggregation: the average over outputs: "uniform_average",
            "variance_weighted_average", or None for one score per output.
        num_regressors: the number of inputs of the model, for the adjusted score. 0
            gives the plain score, which is also the result for too few samples.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.R2Score()
        >>> round(float(metric([[1.0], [4.0], [3.0]], [[2.0], [4.0], [4.0]])), 4)
        0.5714
    """

    _direction = "up"
    squared_sum: Variable
    sum: Variable
    total_mse: Variable
    count: Variable

    def __init__(
        self,
        class_aggregation: str | None = "uniform_average",
        num_regressors: int = 0,
        name: str | None = "r2_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if class_aggregation not in _AGGREGATIONS:
            raise unknown_choice(
                "R2Score: class_aggregation", class_aggregation, _AGGREGATIONS
            )
        if num_regressors < 0:
            raise ArgumentError(
                f"R2Score: expected num_regressors >= 0; received {num_regressors}"
            )
        self.class_aggregation = class_aggregation
        self.num_regressors = num_regressors
        self.num_samples: Variable = self.add_variable((), "zeros", name="num_samples")
        self._built = False

    def _build(self, outputs: int) -> None:
        for name in ("squared_sum", "sum", "total_mse", "count"):
            setattr(self, name, self.add_variable((outputs,), "zeros", name=name))
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Accumulate a batch (batch, outputs), with weights (batch,) or (batch, 1).

        Args:
            y_true: targets, (batch, outputs).
            y_pred: predictions, (batch, outputs).
            sample_weight: weights, (batch,) or (batch, 1), or None.
        """
        y_true = ops.convert_to_tensor(y_true, self.dtype)
        y_pred = ops.convert_to_tensor(y_pred, self.dtype)
        y_true, y_pred = match_ranks(y_true, y_pred)
        if y_true.ndim != 2 or y_true.shape != y_pred.shape:
            raise ShapeError(
                "R2Score: expected targets and predictions of shape (batch, outputs); "
                f"received {y_true.shape} and {y_pred.shape}"
            )
        if not self._built:
            self._build(y_true.shape[1])
        weight = ops.ones((), self.dtype)
        if sample_weight is not None:
            weight = ops.convert_to_tensor(sample_weight, self.dtype)
            weight = ops.expand_dims(weight, 1) if weight.ndim == 1 else weight
        weight = ops.broadcast_to(weight, y_true.shape)
        weighted = y_true * weight
        self.sum.assign_add(ops.sum(weighted, axis=0))
        self.squared_sum.assign_add(ops.sum(y_true * weighted, axis=0))
        self.total_mse.assign_add(ops.sum(ops.square(y_true - y_pred) * weight, axis=0))
        self.count.assign_add(ops.sum(weight, axis=0))
        self.num_samples.assign_add(y_true.size)

    def result(self) -> Tensor:
        total_sum = self.sum.read()
        variation = self.squared_sum.read() - total_sum * total_sum / self.count.read()
        scores = 1 - self.total_mse.read() / variation
        scores = ops.where(ops.isinf(scores), 0.0, scores)
        if self.class_aggregation == "uniform_average":
            scores = ops.mean(scores)
        elif self.class_aggregation == "variance_weighted_average":
            scores = ops.sum(variation * scores) / ops.sum(variation)
        return self._adjust_for_regressors(scores) if self.num_regressors else scores

    def _adjust_for_regressors(self, scores: Tensor) -> Tensor:
        n = self.num_samples.read()
        degrees_of_freedom = n - self.num_regressors - 1
        is_enough = ops.greater(degrees_of_freedom, 0)
        penalty = (n - 1) / ops.where(is_enough, degrees_of_freedom, 1.0)
        return ops.where(is_enough, 1 - (1 - scores) * penalty, scores)
