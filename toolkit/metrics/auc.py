"""Areas under curves, and the best value of one rate under a bound on another."""

from __future__ import annotations

from typing import Any

from toolkit import ops, settings
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.metrics.confusion import ThresholdMetric
from toolkit.reading.budget import check_temporary

_CURVES = ("ROC", "PR", "PRGAIN")
_METHODS = ("interpolation", "majoring", "minoring")


# A float of a list, its copies in arrays, and the counts of four kinds.
_BYTES_PER_THRESHOLD = 128


def _evenly_spaced(count: int) -> list[float]:
    """Return numbers from 0 to 1 in equal steps."""
    check_temporary(_BYTES_PER_THRESHOLD * count, f"num_thresholds={count:,}")
    return [i / (count - 1) for i in range(count)]


def _make_thresholds(label: str, num_thresholds: int, minimum: int) -> list[float]:
    """Return evenly spaced thresholds; the outer ones are just outside [0, 1]."""
    if num_thresholds < minimum:
        raise ArgumentError(
            f"{label}: expected num_thresholds >= {minimum}; received {num_thresholds}"
        )
    inner = _evenly_spaced(num_thresholds)[1:-1]
    return [-settings.epsilon(), *inner, 1 + settings.epsilon()]


class AUC(ThresholdMetric):
    """Area under a curve of rates at many thresholds, a Riemann sum.

    Args:
        num_thresholds: the number of thresholds in [0, 1].
        curve: "ROC" (recall over false positive rate), "PR" (precision over recall)
            or "PRGAIN" (both as gains over the base rate).
        summation_method: "interpolation" (the middle of each step; for PR, as Davis
            and Goadrich do), "majoring" (its upper end) or "minoring" (its lower end).
        name: as for `Metric`.
        dtype: as for `Metric`.
        thresholds: thresholds in [0, 1] instead of evenly spaced ones; 0 and 1 are
            added.
        multi_label: whether y is (batch, labels) and each label has a curve; the result
            is the mean of the areas.
        num_labels: the number of labels, if `multi_label`; None infers it from the
            first batch.
        label_weights: weights of the labels.
        from_logits: whether predictions are logits; then the metric applies sigmoid.

    Reference:
        [Davis, Goadrich, 2006](https://doi.org/10.1145/1143844.1143874)

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.AUC(num_thresholds=3)
        >>> round(float(metric([0, 0, 1, 1], [0, 0.5, 0.3, 0.9])), 4)
        0.75
    """

    _direction = "up"

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        summation_method: str = "interpolation",
        name: str | None = None,
        dtype: Any = None,
        thresholds: Any = None,
        multi_label: bool = False,
        num_labels: int | None = None,
        label_weights: Any = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if str(curve).upper() not in _CURVES:
            raise unknown_choice("AUC: curve", curve, _CURVES)
        if str(summation_method).lower() not in _METHODS:
            raise unknown_choice("AUC: summation_method", summation_method, _METHODS)
        if num_labels and not multi_label:
            raise ArgumentError("AUC: num_labels needs multi_label=True")
        if thresholds is None:
            self.thresholds: list[float] = _make_thresholds("AUC", num_thresholds, 2)
        else:
            self.thresholds = _add_end_thresholds(thresholds)
        self.num_thresholds: int = len(self.thresholds)
        self.curve: str = str(curve).upper()
        self.summation_method: str = str(summation_method).lower()
        self.multi_label: bool = bool(multi_label)
        self.num_labels = num_labels
        self.from_logits: bool = bool(from_logits)
        if label_weights is not None:
            self.label_weights: Any = ops.convert_to_tensor(label_weights, self.dtype)
        self._built = False
        if num_labels or not multi_label:
            self._build(num_labels)

    def _build(self, num_labels: int | None) -> None:
        n = self.num_thresholds
        self._add_counts((n, num_labels) if self.multi_label else (n,))
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count a batch; y_pred is in [0, 1], or logits if configured.

        Args:
            y_true: labels 0 and 1.
            y_pred: predictions of the same shape.
            sample_weight: weights that broadcast to the labels, or None.
        """
        y_pred = ops.convert_to_tensor(y_pred, self.dtype)
        if self.multi_label and y_pred.ndim != 2:
            raise ShapeError(
                f"AUC: with multi_label=True, expected predictions of shape "
                f"(batch, labels); received {y_pred.shape}"
            )
        if not self._built:
            self._build(y_pred.shape[1])
        if self.from_logits:
            y_pred = ops.sigmoid(y_pred)
        super().update_state(y_true, y_pred, sample_weight)

    def result(self) -> Tensor:
        return self._average_over_labels(self._compute_areas())

    def interpolate_pr_auc(self) -> Tensor:
        """Return the area under the PR curve, with counts linear between thresholds.

        It ignores `curve` and `summation_method`, and equals `result` for "PR" and
        "interpolation". For several labels it is the mean.

        Example:
            >>> import toolkit
            >>> metric = toolkit.metrics.AUC(num_thresholds=3)
            >>> metric.update_state([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])
            >>> print(f"{metric.result():.4f} {metric.interpolate_pr_auc():.4f}")
            0.7500 0.8207
        """
        return self._average_over_labels(self._interpolated_pr_area())

    def _average_over_labels(self, areas: Tensor) -> Tensor:
        """Return the mean of the areas of several labels, or the area of one label."""
        if not self.multi_label:
            return areas
        if self.label_weights is None:
            return ops.mean(areas)
        total = ops.sum(areas * self.label_weights)
        return ops.divide_no_nan(total, ops.sum(self.label_weights))

    def _compute_areas(self) -> Tensor:
        """Return the area under the curve, or one area per label."""
        if self.curve == "PR" and self.summation_method == "interpolation":
            return self._interpolated_pr_area()
        x, y = self._curve_points()
        if self.summation_method == "interpolation":
            heights = (y[:-1] + y[1:]) / 2.0
        else:
            select_bound = (
                ops.minimum if self.summation_method == "minoring" else ops.maximum
            )
            heights = select_bound(y[:-1], y[1:])
        return ops.sum((x[:-1] - x[1:]) * heights, axis=0)

    def _curve_points(self) -> tuple[Tensor, Tensor]:
        """Return the points of the curve, one per threshold."""
        tp, fp = self.true_positives.read(), self.false_positives.read()
        tn, fn = self.true_negatives.read(), self.false_negatives.read()
        recall = ops.divide_no_nan(tp, tp + fn)
        if self.curve == "ROC":
            return ops.divide_no_nan(fp, fp + tn), recall
        if self.curve == "PR":
            return recall, ops.divide_no_nan(tp, tp + fp)
        scale = ops.divide_no_nan(tp + fn, tn + fp)
        has_no_positives = ops.equal(tp, 0)
        recall_gain = 1.0 - scale * ops.divide_no_nan(fn, tp)
        recall_gain = ops.where(has_no_positives, 0.0, ops.maximum(recall_gain, 0.0))
        precision_gain = 1.0 - scale * ops.divide_no_nan(fp, tp)
        return recall_gain, ops.where(has_no_positives, 1.0, precision_gain)

    def _interpolated_pr_area(self) -> Tensor:
        """Return the area if counts, not rates, are linear between thresholds.

        With slope = dtp / dp for p = tp + fp, and tp = slope * p + intercept, precision
        tp / p integrates to slope * (dtp + intercept * log(p_high / p_low)).
        """
        tp, fn = self.true_positives.read(), self.false_negatives.read()
        p = tp + self.false_positives.read()
        slope = ops.divide_no_nan(tp[:-1] - tp[1:], ops.maximum(p[:-1] - p[1:], 0))
        intercept = tp[1:] - slope * p[1:]
        are_positive = ops.logical_and(ops.greater(p[:-1], 0), ops.greater(p[1:], 0))
        ratio = ops.where(are_positive, ops.divide_no_nan(p[:-1], p[1:]), 1.0)
        area = slope * (tp[:-1] - tp[1:] + intercept * ops.log(ratio))
        positives = ops.maximum(tp[1:] + fn[1:], 0)
        return ops.sum(ops.divide_no_nan(area, positives), axis=0)


def _add_end_thresholds(thresholds: Any) -> list[float]:
    """Return sorted thresholds, with one just outside each end."""
    if not all(0 <= t <= 1 for t in thresholds):
        raise ArgumentError(
            f"AUC: expected thresholds in [0, 1]; received {thresholds!r}"
        )
    inner = sorted(float(t) for t in thresholds)
    return [-settings.epsilon(), *inner, 1 + settings.epsilon()]


class _BestRateAtBound(ThresholdMetric):
    """Largest value of one rate at the thresholds where another reaches a bound."""

    _direction = "up"
    _bound_name = "value"

    def __init__(
        self,
        value: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if not 0 <= value <= 1:
            raise ArgumentError(
                f"{type(self).__name__}: expected {self._bound_name} in [0, 1]; "
                f"received {value!r}"
            )
        if num_thresholds < 1:
            raise ArgumentError(
                f"{type(self).__name__}: expected num_thresholds >= 1; "
                f"received {num_thresholds}"
            )
        self.value = value
        self.num_thresholds = num_thresholds
        self.class_id = class_id
        self.thresholds: list[float] = [0.5]
        if num_thresholds > 1:
            self.thresholds = _evenly_spaced(num_thresholds)
        self._add_counts()

    def _rates(self) -> tuple[Tensor, Tensor]:
        """Return the rate that must be at least `value`, and the rate to maximize."""
        raise NotImplementedError

    def _rate(self, hits: str, misses: str) -> Tensor:
        hit, miss = getattr(self, hits).read(), getattr(self, misses).read()
        return ops.divide_no_nan(hit, hit + miss)

    def _recall(self) -> Tensor:
        return self._rate("true_positives", "false_negatives")

    def _precision(self) -> Tensor:
        return self._rate("true_positives", "false_positives")

    def _specificity(self) -> Tensor:
        return self._rate("true_negatives", "false_positives")

    def result(self) -> Tensor:
        constrained, objective = self._rates()
        return ops.max(ops.where(constrained >= self.value, objective, 0.0))


class SensitivityAtSpecificity(_BestRateAtBound):
    """Best recall tp / (tp + fn) at a minimum specificity tn / (tn + fp).

    Args:
        specificity: the minimum specificity, in [0, 1].
        num_thresholds: the number of thresholds.
        class_id: the only class to count.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.SensitivityAtSpecificity(0.5)
        >>> round(float(metric([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])), 4)
        1.0
    """

    _bound_name = "specificity"

    def __init__(
        self,
        specificity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(specificity, num_thresholds, class_id, name, dtype)
        self.specificity = specificity

    def _rates(self) -> tuple[Tensor, Tensor]:
        return self._specificity(), self._recall()


class SpecificityAtSensitivity(_BestRateAtBound):
    """Best specificity tn / (tn + fp) at a minimum recall tp / (tp + fn).

    Args:
        sensitivity: the minimum recall, in [0, 1].
        num_thresholds: the number of thresholds.
        class_id: the only class to count.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.SpecificityAtSensitivity(0.5)
        >>> round(float(metric([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])), 4)
        1.0
    """

    _bound_name = "sensitivity"

    def __init__(
        self,
        sensitivity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(sensitivity, num_thresholds, class_id, name, dtype)
        self.sensitivity = sensitivity

    def _rates(self) -> tuple[Tensor, Tensor]:
        return self._recall(), self._specificity()


class PrecisionAtRecall(_BestRateAtBound):
    """Best precision tp / (tp + fp) at a minimum recall tp / (tp + fn).

    Args:
        recall: the minimum recall, in [0, 1].
        num_thresholds: the number of thresholds.
        class_id: the only class to count.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.PrecisionAtRecall(0.5)
        >>> float(metric([0, 0, 0, 1, 1], [0, 0.3, 0.8, 0.3, 0.8]))
        0.5
    """

    _bound_name = "recall"

    def __init__(
        self,
        recall: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(recall, num_thresholds, class_id, name, dtype)
        self.recall = recall

    def _rates(self) -> tuple[Tensor, Tensor]:
        return self._recall(), self._precision()


class RecallAtPrecision(_BestRateAtBound):
    """Best recall tp / (tp + fn) at a minimum precision tp / (tp + fp).

    Args:
        precision: the minimum precision, in [0, 1].
        num_thresholds: the number of thresholds.
        class_id: the only class to count.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.RecallAtPrecision(0.8)
        >>> round(float(metric([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])), 4)
        0.5
    """

    _bound_name = "precision"

    def __init__(
        self,
        precision: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(precision, num_thresholds, class_id, name, dtype)
        self.precision = precision

    def _rates(self) -> tuple[Tensor, Tensor]:
        return self._precision(), self._recall()
