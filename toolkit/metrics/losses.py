"""Losses as metrics: their means over many batches."""

from __future__ import annotations

from typing import Any

from toolkit import losses
from toolkit.arguments import Axes, Fraction
from toolkit.core.tensor import Tensor
from toolkit.metrics.reduction import MeanMetricWrapper
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


class MeanSquaredError(MeanMetricWrapper):
    """Mean squared error: mean((y_true - y_pred) ** 2).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> float(metrics.MeanSquaredError()([[0.0], [1.0]], [[1.0], [3.0]]))
        2.5
    """

    def __init__(
        self, name: str | None = "mean_squared_error", dtype: Any = None
    ) -> None:
        super().__init__(losses.mean_squared_error, name=name, dtype=dtype)


class MeanAbsoluteError(MeanMetricWrapper):
    """Mean absolute error: mean(|y_true - y_pred|).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.MeanAbsoluteError()
        >>> round(float(metric([[0.0], [1.0]], [[1.0], [3.0]])), 4)
        1.5
    """

    def __init__(
        self, name: str | None = "mean_absolute_error", dtype: Any = None
    ) -> None:
        super().__init__(losses.mean_absolute_error, name=name, dtype=dtype)


class MeanAbsolutePercentageError(MeanMetricWrapper):
    """Mean absolute percentage error: 100 * mean(|(y_true - y_pred) / y_true|).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.MeanAbsolutePercentageError()
        >>> round(float(metric([[1.0], [2.0]], [[1.5], [2.0]])), 4)
        25.0
    """

    def __init__(
        self, name: str | None = "mean_absolute_percentage_error", dtype: Any = None
    ) -> None:
        super().__init__(losses.mean_absolute_percentage_error, name=name, dtype=dtype)


class MeanSquaredLogarithmicError(MeanMetricWrapper):
    """Mean squared logarithmic error: mean((log(1 + y_true) - log(1 + y_pred)) ** 2).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.MeanSquaredLogarithmicError()
        >>> round(float(metric([[0.0], [1.0]], [[1.0], [3.0]])), 4)
        0.4805
    """

    def __init__(
        self, name: str | None = "mean_squared_logarithmic_error", dtype: Any = None
    ) -> None:
        super().__init__(losses.mean_squared_logarithmic_error, name=name, dtype=dtype)


class LogCoshError(MeanMetricWrapper):
    """Log-cosh error: mean(log(cosh(y_pred - y_true))).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.LogCoshError()
        >>> round(float(metric([[0.0], [0.0]], [[1.0], [3.0]])), 4)
        1.3716
    """

    def __init__(self, name: str | None = "logcosh", dtype: Any = None) -> None:
        super().__init__(losses.log_cosh, name=name, dtype=dtype)


@operation
def cosine_similarity(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Tensor:
    """Return the cosine of the angle between y_true and y_pred: 1 if parallel.

    Args:
        y_true: (..., features).
        y_pred: (..., features).
        axis: the axis of the vectors.
    """
    return -losses.cosine_similarity(y_true, y_pred, axis=axis)


class CosineSimilarity(MeanMetricWrapper):
    """Mean cosine of the angle between y_true and y_pred, in [-1, 1].

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.
        axis: the axis of the vectors.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.CosineSimilarity()
        >>> round(float(metric([[1.0, 0.0]], [[3.0, 4.0]])), 4)
        0.6
    """

    _direction = "up"

    def __init__(
        self, name: str | None = "cosine_similarity", dtype: Any = None, axis: Axes = -1
    ) -> None:
        super().__init__(cosine_similarity, name=name, dtype=dtype, axis=axis)
        self.axis = axis


class Hinge(MeanMetricWrapper):
    """Hinge loss: mean(maximum(1 - y_true * y_pred, 0)).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.Hinge()
        >>> round(float(metric([[1.0], [-1.0]], [[2.0], [0.5]])), 4)
        0.75
    """

    def __init__(self, name: str | None = "hinge", dtype: Any = None) -> None:
        super().__init__(losses.hinge, name=name, dtype=dtype)


class SquaredHinge(MeanMetricWrapper):
    """Squared hinge loss: mean(maximum(1 - y_true * y_pred, 0) ** 2).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.SquaredHinge()
        >>> round(float(metric([[1.0], [-1.0]], [[2.0], [0.5]])), 4)
        1.125
    """

    def __init__(self, name: str | None = "squared_hinge", dtype: Any = None) -> None:
        super().__init__(losses.squared_hinge, name=name, dtype=dtype)


class CategoricalHinge(MeanMetricWrapper):
    """Hinge loss between the right class and the best wrong class.

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.CategoricalHinge()
        >>> round(float(metric([[0.0, 1.0]], [[0.5, 0.25]])), 4)
        1.25
    """

    def __init__(
        self, name: str | None = "categorical_hinge", dtype: Any = None
    ) -> None:
        super().__init__(losses.categorical_hinge, name=name, dtype=dtype)


class KLDivergence(MeanMetricWrapper):
    """Kullback-Leibler divergence: sum(y_true * log(y_true / y_pred)).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.KLDivergence()
        >>> round(float(metric([[0.5, 0.5]], [[0.75, 0.25]])), 4)
        0.1438
    """

    def __init__(self, name: str | None = "kl_divergence", dtype: Any = None) -> None:
        super().__init__(losses.kl_divergence, name=name, dtype=dtype)


class Poisson(MeanMetricWrapper):
    """Poisson loss: mean(y_pred - y_true * log(y_pred)).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.Poisson()
        >>> round(float(metric([[1.0, 2.0]], [[1.0, 4.0]])), 4)
        1.1137
    """

    def __init__(self, name: str | None = "poisson", dtype: Any = None) -> None:
        super().__init__(losses.poisson, name=name, dtype=dtype)


class BinaryCrossentropy(MeanMetricWrapper):
    """Binary cross-entropy, the mean of -y * log(p) - (1 - y) * log(1 - p).

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.
        from_logits: whether predictions are logits.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1/2.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.BinaryCrossentropy()
        >>> round(float(metric([[1.0], [0.0]], [[0.5], [0.5]])), 4)
        0.6931
    """

    def __init__(
        self,
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: Fraction = 0,
    ) -> None:
        super().__init__(
            losses.binary_crossentropy,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
        )
        self.from_logits = from_logits
        self.label_smoothing = label_smoothing


class CategoricalCrossentropy(MeanMetricWrapper):
    """Categorical cross-entropy: -sum(y_true * log(y_pred)) for one-hot targets.

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.
        from_logits: whether predictions are logits.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1 / classes.
        axis: the axis of classes.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.CategoricalCrossentropy()
        >>> round(float(metric([[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]])), 4)
        0.6931
    """

    def __init__(
        self,
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: Fraction = 0,
        axis: Axes = -1,
    ) -> None:
        super().__init__(
            losses.categorical_crossentropy,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )
        self.from_logits = from_logits
        self.label_smoothing = label_smoothing
        self.axis = axis


class SparseCategoricalCrossentropy(MeanMetricWrapper):
    """Sparse categorical cross-entropy: -log(y_pred[y_true]) for integer labels.

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.
        from_logits: whether predictions are logits.
        ignore_class: a label whose samples have the value 0, such as -1; with weights
            they are ignored.
        axis: the axis of classes.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.SparseCategoricalCrossentropy()
        >>> round(float(metric([1, 0], [[0.5, 0.5], [0.5, 0.5]])), 4)
        0.6931
    """

    def __init__(
        self,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        ignore_class: float | None = None,
        axis: Axes = -1,
    ) -> None:
        super().__init__(
            losses.sparse_categorical_crossentropy,
            name=name,
            dtype=dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )
        self.from_logits = from_logits
        self.ignore_class = ignore_class
        self.axis = axis
