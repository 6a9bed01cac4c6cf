"""F-scores: precision and recall combined."""

from __future__ import annotations

from typing import Any

from toolkit import ops, settings
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.metrics.metric import Metric

_AVERAGES = (None, "micro", "macro", "weighted")
_COUNTS = (
    *("true_positives", "false_positives"),
    *("false_negatives", "intermediate_weights"),
)


def _check(metric: str, **arguments: Any) -> None:
    """Raise unless an argument is a float in its range."""
    ((name, value),) = arguments.items()
    fits = {"beta": "be > 0", "threshold": "verify 0 < threshold <= 1"}[name]
    if not isinstance(value, float):
        fits = "be a Python float"
    elif value > 0 and (name == "beta" or value <= 1):
        return
    raise ArgumentError(
        f"{metric}: Invalid `{name}` argument value. It should {fits}. "
        f"Received: {name}={value!r} of type '{type(value)}'"
    )


class FBetaScore(Metric):
    """F-beta score, (1 + beta ** 2) * p * r / (beta ** 2 * p + r).

    p is the precision, r the recall.

    Args:
        average: the average over classes: "micro" (from counts over all classes),
            "macro" (the mean of the scores), "weighted" (the mean weighted by the
            number of labels), or None for one score per class.
        beta: the weight of recall relative to precision, > 0.
        threshold: in (0, 1], a prediction above it is positive; None: the largest
            prediction of each sample is positive.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.FBetaScore(beta=2.0, threshold=0.5)
        >>> y_true = [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
        >>> y_pred = [[0.2, 0.6, 0.7], [0.2, 0.6, 0.6], [0.6, 0.8, 0.0]]
        >>> [round(score, 4) for score in metric(y_true, y_pred).tolist()]
        [0.3846, 0.9091, 0.8333]
    """

    _direction = "up"
    true_positives: Variable
    false_positives: Variable
    false_negatives: Variable
    intermediate_weights: Variable

    def __init__(
        self,
        average: str | None = None,
        beta: float = 1.0,
        threshold: float | None = None,
        name: str | None = "fbeta_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        label = type(self).__name__
        if average not in _AVERAGES:
            raise unknown_choice(f"{label}: average", average, _AVERAGES)
        _check(label, beta=beta)
        if threshold is not None:
            _check(label, threshold=threshold)
        self.average = average
        self.beta = beta
        self.threshold = threshold
        self._axis = None if average == "micro" else 0
        self._built = False

    def _build(self, classes: int) -> None:
        shape = () if self.average == "micro" else (classes,)
        for name in _COUNTS:
            setattr(
                self, name, self.add_variable(shape, "zeros", self.dtype, name=name)
            )
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count a batch of shape (batch, classes), with weights (batch,).

        Args:
            y_true: labels 0 and 1, (batch, classes).
            y_pred: predictions, (batch, classes).
            sample_weight: weights, (batch,), or None.
        """
        y_true = ops.convert_to_tensor(y_true, self.dtype)
        y_pred = ops.convert_to_tensor(y_pred, self.dtype)
        if y_pred.ndim != 2 or y_true.shape != y_pred.shape:
            raise ShapeError(
                f"{type(self).__name__}: expected labels and predictions of shape "
                f"(batch, classes); received {y_true.shape} and {y_pred.shape}"
            )
        if not self._built:
            self._build(y_pred.shape[1])
        if self.threshold is None:
            is_largest = y_pred >= ops.max(y_pred, axis=-1, keepdims=True)
            is_positive = ops.logical_and(is_largest, ops.abs(y_pred) > 1e-9)
        else:
            is_positive = y_pred > self.threshold
        is_positive = ops.cast(is_positive, self.dtype)
        weight: Any = 1
        if sample_weight is not None:
            weight = ops.convert_to_tensor(sample_weight, self.dtype)
            weight = ops.expand_dims(weight, 1) if weight.ndim == 1 else weight
        counts = (
            *(is_positive * y_true, is_positive * (1 - y_true)),
            *((1 - is_positive) * y_true, y_true),
        )
        for name, values in zip(_COUNTS, counts, strict=True):
            getattr(self, name).assign_add(ops.sum(values * weight, axis=self._axis))

    def result(self) -> Tensor:
        epsilon, beta_squared = settings.epsilon(), self.beta**2
        true_positives = self.true_positives.read()
        precision = true_positives / (
            true_positives + self.false_positives.read() + epsilon
        )
        recall = true_positives / (
            true_positives + self.false_negatives.read() + epsilon
        )
        score = precision * recall / (beta_squared * precision + recall + epsilon)
        score = score * (1 + beta_squared)
        if self.average == "weighted":
            labels = self.intermediate_weights.read()
            return ops.sum(score * (labels / (ops.sum(labels) + epsilon)))
        return score if self.average is None else ops.mean(score)


class F1Score(FBetaScore):
    """F1 score: 2 * precision * recall / (precision + recall).

    Args:
        average: as for `FBetaScore`.
        threshold: as for `FBetaScore`.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.F1Score(threshold=0.5)
        >>> scores = metric([[1, 0], [1, 1]], [[0.9, 0.6], [0.2, 0.8]])
        >>> [round(score, 4) for score in scores.tolist()]
        [0.6667, 0.6667]
    """

    def __init__(
        self,
        average: str | None = None,
        threshold: float | None = None,
        name: str | None = "f1_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(average, 1.0, threshold, name, dtype)
