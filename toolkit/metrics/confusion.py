"""Counts of true and false positives and negatives, and their ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import ops, settings
from toolkit.arguments import Positive, is_real
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.losses.loss import align_weight, match_ranks
from toolkit.metrics.metric import Metric
from toolkit.type_aliases import Shape

KINDS = ("true_positives", "false_positives", "true_negatives", "false_negatives")


def parse_thresholds(label: str, thresholds: Any, default: float = 0.5) -> list[float]:
    """Check thresholds and return them as a list."""
    values = default if thresholds is None else thresholds
    values = list(values) if isinstance(values, (list, tuple, np.ndarray)) else [values]
    # A default can be minus infinity: then the whole top k is positive.
    if thresholds is not None and not all(is_real(t) and 0 <= t <= 1 for t in values):
        raise ArgumentError(
            f"{label}: expected thresholds in [0, 1]; received {thresholds!r}"
        )
    return [float(t) for t in values]


def are_evenly_spaced(thresholds: Any) -> bool:
    """Return whether thresholds are evenly spaced from 0 to 1."""
    n = len(thresholds)
    expected = np.linspace(0.0, 1.0, n)
    return n >= 3 and bool(np.allclose(thresholds, expected, atol=settings.epsilon()))


def prepare_inputs(
    label: str,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
    dtype: str,
    top_k: int | None = None,
    class_id: int | None = None,
) -> tuple[Tensor, Tensor, Any]:
    """Return labels (0 or 1), predictions and weights in one shape (..., classes).

    Weights are None if the argument is None.
    """
    y_true = ops.convert_to_tensor(y_true, dtype)
    y_pred = ops.convert_to_tensor(y_pred, dtype)
    y_pred, y_true = match_ranks(y_pred, y_true)
    if y_true.shape != y_pred.shape:
        raise ShapeError(
            f"{label}: expected labels and predictions of equal shapes; received "
            f"{y_true.shape} and {y_pred.shape}"
        )
    weight = None
    if sample_weight is not None:
        weight = ops.convert_to_tensor(sample_weight, dtype)
        if weight.ndim == y_true.ndim + 1 and weight.shape[-1] == 1:
            weight = ops.squeeze(weight, -1)
    if top_k is not None:
        y_pred = _mask_below_top_k(y_pred, top_k)
    if class_id is not None:
        if y_pred.ndim < 2:
            raise ShapeError(
                f"{label}: with class_id, expected predictions of shape "
                f"(batch, classes); received {y_pred.shape}"
            )
        y_true = y_true[..., class_id : class_id + 1]
        y_pred = y_pred[..., class_id : class_id + 1]
    if weight is not None:
        weight = align_weight(label, weight, y_pred)
        weight = ops.broadcast_to(weight, y_pred.shape)
    return ops.cast(ops.not_equal(y_true, 0), dtype), y_pred, weight


def _mask_below_top_k(x: Tensor, k: int) -> Tensor:
    """Set everything except the k largest of the last axis of x to -1e10."""
    _, best = ops.top_k(x, k)
    is_top = ops.sum(ops.one_hot(best, x.shape[-1], dtype=x.dtype), axis=-2)
    return ops.where(ops.greater(is_top, 0), x, -1e10)


def count_positives(
    labels: Tensor, y_pred: Tensor, weight: Any, thresholds: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Count the positives and negatives at each threshold.

    Args:
        labels: (samples,) or (samples, classes), 0 or 1.
        y_pred: in the same shape.
        weight: in the same shape, or None for 1 everywhere.
        thresholds: n numbers; a prediction above one is positive.

    Returns:
        True positives, false positives, all positives, all negatives; the first two
        (n,) or (n, classes), the last two () or (classes,).
    """
    dtype = y_pred.dtype
    positive = labels if weight is None else labels * weight
    negative = 1 - labels if weight is None else weight - positive
    count_above = (
        _sum_above_evenly
        if are_evenly_spaced(np.clip(thresholds, 0, 1))
        else _sum_above
    )
    limits = np.array(thresholds, dtype="float64")
    true_positives = count_above(positive, y_pred, limits, dtype)
    false_positives = count_above(negative, y_pred, limits, dtype)
    totals = ops.sum(positive, axis=0), ops.sum(negative, axis=0)
    return true_positives, false_positives, *totals


def _sum_above(amount: Tensor, y_pred: Tensor, limits: Any, dtype: str) -> Tensor:
    """Sum `amount` over the predictions above each limit."""
    limits = ops.convert_to_tensor(limits, dtype)
    limits = ops.reshape(limits, (-1,) + (1,) * y_pred.ndim)
    above = ops.cast(ops.greater(ops.expand_dims(y_pred, 0), limits), dtype)
    return ops.sum(above * ops.expand_dims(amount, 0), axis=1)


def _sum_above_evenly(
    amount: Tensor, y_pred: Tensor, limits: Any, dtype: str
) -> Tensor:
    """Sum like `_found`, for evenly spaced limits from 0 to 1, with buckets.

    Bucket i contains the predictions above limit i, but not above limit i + 1.
    """
    n = len(limits)
    y_pred = ops.clip(y_pred, 0.0, 1.0)
    bucket = ops.ceil(y_pred * (n - 1)) - 1
    if limits[0] < 0:
        bucket = ops.maximum(bucket, 0)
    else:  # a prediction of 0 is above no limit: an extra bucket counts it
        bucket = ops.where(ops.less(bucket, 0), n, bucket)
    bucket = ops.cast(bucket, "int32")
    tail_shape = y_pred.shape[1:]
    classes = math.prod(tail_shape)
    # The buckets of the classes are consecutive.
    offset = ops.arange(classes, dtype="int32") * (n + 1)
    bucket_indices = ops.reshape(bucket, (-1, classes)) + offset
    sums = ops.segment_sum(
        ops.reshape(amount, (-1,)),
        ops.reshape(bucket_indices, (-1,)),
        classes * (n + 1),
    )
    sums = ops.transpose(ops.reshape(sums, (classes, n + 1)))[:n]
    above = ops.flip(ops.cumsum(ops.flip(sums, 0), axis=0), 0)
    return ops.reshape(above, (n, *tail_shape))


class ThresholdMetric(Metric):
    """Base class of metrics that count predictions above thresholds.

    Subclasses list the counts in `_counts`, a subset of `KINDS`.
    """

    _counts: tuple[str, ...] = KINDS
    true_positives: Variable
    false_positives: Variable
    true_negatives: Variable
    false_negatives: Variable
    thresholds: list[float]
    class_id: int | None = None
    top_k: int | None = None
    multi_label = False
    label_weights: Any = None

    def _add_counts(self, shape: Shape | None = None) -> None:
        shape = (len(self.thresholds),) if shape is None else shape
        for kind in self._counts:
            setattr(self, kind, self.add_variable(shape, "zeros", name=kind))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count a batch.

        Args:
            y_true: (batch, ...), labels: 0, or any other value for 1.
            y_pred: predictions of the same shape, in [0, 1].
            sample_weight: weights of the samples; None means 1.
        """
        variables: dict[str, Variable] = {k: getattr(self, k) for k in self._counts}
        dtype = next(iter(variables.values())).dtype
        labels, y_pred, weight = prepare_inputs(
            *(self.name, y_true, y_pred, sample_weight, dtype),
            top_k=self.top_k,
            class_id=self.class_id,
        )
        if self.label_weights is not None and not self.multi_label:
            weight = (
                self.label_weights if weight is None else weight * self.label_weights
            )
            weight = ops.broadcast_to(weight, y_pred.shape)
        if not self.multi_label:
            labels, y_pred = ops.reshape(labels, (-1,)), ops.reshape(y_pred, (-1,))
            weight = None if weight is None else ops.reshape(weight, (-1,))
        tp, fp, positives, negatives = count_positives(
            labels, y_pred, weight, self.thresholds
        )
        counts = {
            "true_positives": tp,
            "false_positives": fp,
            "true_negatives": negatives - fp,
            "false_negatives": positives - tp,
        }
        for kind, variable in variables.items():
            variable.assign_add(counts[kind])

    def _squeeze_single(self, x: Tensor) -> Tensor:
        """Return the number for a single threshold, else the vector."""
        return x[0] if len(self.thresholds) == 1 else x


class _Count(ThresholdMetric):
    """One of the four counts."""

    def __init__(
        self, thresholds: Any = None, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.thresholds: list[float] = parse_thresholds(type(self).__name__, thresholds)
        self.accumulator: Variable = self.add_variable(
            (len(self.thresholds),), "zeros", name="accumulator"
        )
        setattr(self, self._counts[0], self.accumulator)

    def result(self) -> Tensor:
        return self._squeeze_single(self.accumulator.read())


class TruePositives(_Count):
    """Count (or weight) of samples with label 1 and prediction 1.

    Args:
        thresholds: in [0, 1], one or several; a prediction above one means 1. None:
            0.5.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> float(metrics.TruePositives()([0, 1, 1, 1], [1, 0, 1, 1]))
        2.0
    """

    _counts = ("true_positives",)


class FalsePositives(_Count):
    """Count (or weight) of samples with label 0 and prediction 1.

    Args:
        thresholds: as for `TruePositives`.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.FalsePositives()
        >>> round(float(metric([0, 1, 1, 0], [0.9, 0.8, 0.2, 0.1])), 4)
        1.0
    """

    _counts = ("false_positives",)


class TrueNegatives(_Count):
    """Count (or weight) of samples with label 0 and prediction 0.

    Args:
        thresholds: as for `TruePositives`.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.TrueNegatives()
        >>> round(float(metric([0, 1, 1, 0], [0.9, 0.8, 0.2, 0.1])), 4)
        1.0
    """

    _counts = ("true_negatives",)


class FalseNegatives(_Count):
    """Count (or weight) of samples with label 1 and prediction 0.

    Args:
        thresholds: as for `TruePositives`.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.FalseNegatives()
        >>> round(float(metric([0, 1, 1, 0], [0.9, 0.8, 0.2, 0.1])), 4)
        1.0
    """

    _counts = ("false_negatives",)


class _Ratio(ThresholdMetric):
    """Ratio of true positives to a sum of counts."""

    _direction = "up"

    def __init__(
        self,
        thresholds: Any = None,
        top_k: Positive | None = None,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        # Without thresholds, the whole top k counts as positive.
        default = 0.5 if top_k is None else -1e10
        self.thresholds: list[float] = parse_thresholds(
            type(self).__name__, thresholds, default
        )
        self.top_k = top_k
        self.class_id = class_id
        self._add_counts()

    def result(self) -> Tensor:
        true_positives = self.true_positives.read()
        false_count = getattr(self, self._counts[1]).read()
        return self._squeeze_single(
            ops.divide_no_nan(true_positives, true_positives + false_count)
        )


class Precision(_Ratio):
    """Precision, the fraction of predicted positives that are right: tp / (tp + fp).

    Args:
        thresholds: as for `TruePositives`.
        top_k: count only the k largest predictions of each sample as positive.
        class_id: the only class to count.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> round(float(metrics.Precision()([0, 1, 1, 1], [1, 0, 1, 1])), 4)
        0.6667
    """

    _counts = ("true_positives", "false_positives")


class Recall(_Ratio):
    """Recall, the fraction of actual positives that are predicted: tp / (tp + fn).

    Args:
        thresholds: as for `TruePositives`.
        top_k: count only the k largest predictions of each sample as positive.
        class_id: the only class to count.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> round(float(metrics.Recall()([0, 1, 1, 1], [1, 0, 1, 1])), 4)
        0.6667
    """

    _counts = ("true_positives", "false_negatives")
