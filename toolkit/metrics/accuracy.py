"""Accuracies: fractions of predictions that equal the labels."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes, ops, settings
from toolkit.arguments import Positive
from toolkit.core.tensor import Tensor
from toolkit.losses.loss import match_ranks
from toolkit.losses.regression import match_pair
from toolkit.metrics.reduction import MeanMetricWrapper
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


def _to_float(matches: Any) -> Tensor:
    return ops.cast(matches, settings.floatx())


@operation
def accuracy(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return 1 where y_true equals y_pred, else 0.

    Args:
        y_true: (batch, ...).
        y_pred: (batch, ...).

    Returns:
        A tensor of the shape of the inputs.

    Example:
        >>> from toolkit import metrics
        >>> metrics.accuracy([1, 2, 3], [0, 2, 3]).tolist()
        [0.0, 1.0, 1.0]
    """
    return _to_float(ops.equal(*match_pair(y_true, y_pred)))


@operation
def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> Tensor:
    """Return 1 where the label y_true equals y_pred > threshold, else 0.

    Args:
        y_true: (batch, ...), labels 0 and 1.
        y_pred: (batch, ...), probabilities of label 1.
        threshold: a prediction above it means label 1.

    Returns:
        A tensor of the shape of the inputs.

    Example:
        >>> from toolkit import metrics
        >>> metrics.binary_accuracy([1, 1, 0], [0.9, 0.4, 0.1]).tolist()
        [1.0, 0.0, 1.0]
    """
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    y_true, y_pred = match_ranks(y_true, y_pred)
    return _to_float(ops.equal(y_true, ops.cast(y_pred > threshold, y_true.dtype)))


@operation
def categorical_accuracy(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Return 1 where the right class has the largest prediction, else 0.

    Args:
        y_true: (..., classes), one-hot.
        y_pred: (..., classes), probabilities or logits.

    Returns:
        A tensor, (...): 1 or 0 for each sample.

    Example:
        >>> from toolkit import metrics
        >>> y_pred = [[0.1, 0.9], [0.3, 0.7]]
        >>> metrics.categorical_accuracy([[0, 1], [1, 0]], y_pred).tolist()
        [1.0, 0.0]
    """
    classes = (ops.argmax(y, axis=-1) for y in (y_true, y_pred))
    return _to_float(ops.equal(*classes))


@operation
def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> Tensor:
    """Return 1 where the label's class has the largest prediction, else 0.

    Args:
        y_true: (...), or (..., 1): labels.
        y_pred: (..., classes), probabilities or logits.

    Returns:
        A tensor, (...): 1 or 0 for each sample.

    Example:
        >>> from toolkit import metrics
        >>> y_pred = [[0.1, 0.9], [0.3, 0.7]]
        >>> metrics.sparse_categorical_accuracy([1, 0], y_pred).tolist()
        [1.0, 0.0]
    """
    y_pred = ops.convert_to_tensor(y_pred)
    labels = _to_labels(y_true, y_pred)
    return _to_float(ops.equal(labels, ops.argmax(y_pred, axis=-1)))


def _to_labels(y_true: Any, y_pred: Tensor) -> Tensor:
    """Return labels as integers; squeeze a last axis of extent 1."""
    labels = ops.convert_to_tensor(y_true)
    if not dtypes.is_integer(labels.dtype):
        labels = ops.cast(labels, "int32")
    if labels.ndim == y_pred.ndim and labels.shape[-1] == 1:
        labels = ops.squeeze(labels, -1)
    return labels


def _is_in_top_k(labels: Tensor, y_pred: Tensor, k: int) -> Tensor:
    """Return whether labels (...) are in the k best of y_pred (..., classes)."""
    rows = ops.reshape(y_pred, (-1, y_pred.shape[-1]))
    matches = ops.in_top_k(ops.reshape(ops.cast(labels, "int32"), (-1,)), rows, k)
    return _to_float(ops.reshape(matches, labels.shape))


@operation
def top_k_categorical_accuracy(
    y_true: TensorLike, y_pred: TensorLike, k: int = 5
) -> Tensor:
    """Return 1 where the right class is in the k largest predictions, else 0.

    Args:
        y_true: (..., classes), one-hot.
        y_pred: (..., classes), probabilities or logits.
        k: the number of top predictions.

    Returns:
        A tensor, (...): 1 or 0 for each sample.

    Example:
        >>> from toolkit import metrics
        >>> y_pred = [[0.1, 0.6, 0.3]]
        >>> metrics.top_k_categorical_accuracy([[0, 0, 1]], y_pred, k=2).tolist()
        [1.0]
    """
    return _is_in_top_k(ops.argmax(y_true, axis=-1), ops.convert_to_tensor(y_pred), k)


@operation
def sparse_top_k_categorical_accuracy(
    y_true: Any, y_pred: Any, k: int = 5, from_sorted_ids: bool = False
) -> Tensor:
    """Return 1 where the label's class is in the k largest predictions, else 0.

    Args:
        y_true: (...), or (..., 1): labels.
        y_pred: (..., classes), probabilities or logits.
        k: the number of top predictions.
        from_sorted_ids: whether y_pred contains class ids, best first, instead of
            scores.

    Returns:
        A tensor, (...): 1 or 0 for each sample.

    Example:
        >>> from toolkit import metrics
        >>> y_pred = [[0.1, 0.6, 0.3], [0.1, 0.6, 0.3]]
        >>> metrics.sparse_top_k_categorical_accuracy([2, 0], y_pred, k=2).tolist()
        [1.0, 0.0]
    """
    y_pred = ops.convert_to_tensor(y_pred)
    labels = _to_labels(y_true, y_pred)
    if not from_sorted_ids:
        return _is_in_top_k(labels, y_pred, k)
    best = ops.cast(y_pred[..., :k], labels.dtype)
    return _to_float(ops.any(ops.equal(ops.expand_dims(labels, -1), best), axis=-1))


class Accuracy(MeanMetricWrapper):
    """Fraction of predictions that equal the labels.

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> float(metrics.Accuracy()([1, 2, 3, 4], [0, 2, 3, 4]))
        0.75
    """

    _direction = "up"

    def __init__(self, name: str | None = "accuracy", dtype: Any = None) -> None:
        super().__init__(accuracy, name=name, dtype=dtype)


class BinaryAccuracy(MeanMetricWrapper):
    """Fraction of predictions that equal the labels 0 and 1 after a threshold.

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.
        threshold: a prediction above it means label 1.

    Example:
        >>> from toolkit import metrics
        >>> float(metrics.BinaryAccuracy()([1, 1, 0, 0], [0.9, 0.4, 0.1, 0.6]))
        0.5
    """

    _direction = "up"

    def __init__(
        self,
        name: str | None = "binary_accuracy",
        dtype: Any = None,
        threshold: float = 0.5,
    ) -> None:
        super().__init__(binary_accuracy, name=name, dtype=dtype, threshold=threshold)
        self.threshold = threshold


class CategoricalAccuracy(MeanMetricWrapper):
    """Fraction of samples whose one-hot label has the largest prediction.

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.CategoricalAccuracy()
        >>> float(metric([[0, 1], [1, 0]], [[0.1, 0.9], [0.3, 0.7]]))
        0.5
    """

    _direction = "up"

    def __init__(
        self, name: str | None = "categorical_accuracy", dtype: Any = None
    ) -> None:
        super().__init__(categorical_accuracy, name=name, dtype=dtype)


class SparseCategoricalAccuracy(MeanMetricWrapper):
    """Fraction of samples whose integer label has the largest prediction.

    Args:
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.SparseCategoricalAccuracy()
        >>> float(metric([1, 0], [[0.1, 0.9], [0.3, 0.7]]))
        0.5
    """

    _direction = "up"

    def __init__(
        self, name: str | None = "sparse_categorical_accuracy", dtype: Any = None
    ) -> None:
        super().__init__(sparse_categorical_accuracy, name=name, dtype=dtype)


class TopKCategoricalAccuracy(MeanMetricWrapper):
    """Fraction of samples whose one-hot label is in the k largest predictions.

    Args:
        k: the number of top predictions.
        name: as for `Metric`.
        dtype: as for `Metric`.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.TopKCategoricalAccuracy(k=2)
        >>> y_pred = [[0.1, 0.6, 0.3], [0.1, 0.6, 0.3]]
        >>> float(metric([[0, 0, 1], [1, 0, 0]], y_pred))
        0.5
    """

    _direction = "up"

    def __init__(
        self,
        k: Positive = 5,
        name: str | None = "top_k_categorical_accuracy",
        dtype: Any = None,
    ) -> None:
        super().__init__(top_k_categorical_accuracy, name=name, dtype=dtype, k=k)
        self.k = k


class SparseTopKCategoricalAccuracy(MeanMetricWrapper):
    """Fraction of samples whose integer label is in the k largest predictions.

    Args:
        k: the number of top predictions.
        name: as for `Metric`.
        dtype: as for `Metric`.
        from_sorted_ids: whether predictions are class ids, best first.

    Example:
        >>> from toolkit import metrics
        >>> metric = metrics.SparseTopKCategoricalAccuracy(k=2)
        >>> float(metric([2, 0], [[0.1, 0.6, 0.3], [0.1, 0.6, 0.3]]))
        0.5
    """

    _direction = "up"

    def __init__(
        self,
        k: Positive = 5,
        name: str | None = "sparse_top_k_categorical_accuracy",
        dtype: Any = None,
        from_sorted_ids: bool = False,
    ) -> None:
        super().__init__(
            sparse_top_k_categorical_accuracy,
            name=name,
            dtype=dtype,
            k=k,
            from_sorted_ids=from_sorted_ids,
        )
        self.k = k
        self.from_sorted_ids = from_sorted_ids
