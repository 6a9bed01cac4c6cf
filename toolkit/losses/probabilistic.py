"""Losses between probability distributions, as functions."""

from __future__ import annotations

from typing import Any

from toolkit import ops, settings
from toolkit.arguments import is_int
from toolkit.console.frames import warn
from toolkit.core.masks import set_mask
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.losses.regression import to_tensor_pair
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


@operation
def binary_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Compute mean(-y_true * log(y_pred) - (1 - y_true) * log(1 - y_pred)).

    Args:
        y_true: (..., features), probabilities in [0, 1].
        y_pred: (..., features), probabilities, or logits.
        from_logits: whether y_pred holds logits.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1/2.
        axis: the axis of the mean.

    Returns:
        A tensor, (...): the mean along `axis` is one value.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.binary_crossentropy([[0.0, 1.0]], [[0.5, 0.5]])
        >>> round(float(loss[0]), 4)
        0.6931
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    y_true = _smooth_binary_labels(y_true, label_smoothing)
    losses = ops.binary_crossentropy(y_true, y_pred, from_logits=from_logits)
    return ops.mean(losses, axis=axis)


@operation
def binary_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Compute mean((1 - p) ** gamma * binary_crossentropy) over `axis`.

    p is the probability of the right label, so that easy samples have a small weight.

    Args:
        y_true: (..., features), probabilities in [0, 1].
        y_pred: (..., features), probabilities, or logits.
        apply_class_balancing: whether to weight label 1 by alpha and label 0 by 1 -
            alpha.
        alpha: in [0, 1], the weight of label 1.
        gamma: >= 0; a larger gamma gives easy samples a smaller weight.
        from_logits: whether y_pred holds logits.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1/2.
        axis: the axis of the mean.

    Returns:
        A tensor, (...): the mean along `axis` is one value.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.binary_focal_crossentropy([[0.0, 1.0]], [[0.1, 0.9]])
        >>> round(float(loss[0]), 4)
        0.0011

    Reference:
        [Lin et al., 2017](https://arxiv.org/abs/1708.02002)
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    y_true = _smooth_binary_labels(y_true, label_smoothing)
    losses = ops.binary_crossentropy(y_true, y_pred, from_logits=from_logits)
    p = ops.sigmoid(y_pred) if from_logits else y_pred
    true_probability = y_true * p + (1 - y_true) * (1 - p)
    losses = ops.power(1.0 - true_probability, gamma) * losses
    if apply_class_balancing:
        losses = (y_true * alpha + (1 - y_true) * (1 - alpha)) * losses
    return ops.mean(losses, axis=axis)


@operation
def categorical_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Compute -sum(y_true * log(y_pred)) along the axis of classes.

    Args:
        y_true: (..., classes), probabilities, such as one-hot vectors.
        y_pred: (..., classes), probabilities, or logits.
        from_logits: whether y_pred holds logits.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1 / classes.
        axis: the axis of classes.

    Returns:
        A tensor, (...): one value for each sample.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.categorical_crossentropy([[0.0, 1.0]], [[0.5, 0.5]])
        >>> round(float(loss[0]), 4)
        0.6931
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    _check_classes("categorical_crossentropy", y_pred, axis)
    y_true = _smooth_class_labels(y_true, label_smoothing)
    return ops.categorical_crossentropy(
        y_true, y_pred, from_logits=from_logits, axis=axis
    )


@operation
def categorical_focal_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    alpha: Any = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Compute -sum(alpha * (1 - y_pred) ** gamma * y_true * log(y_pred)).

    Args:
        y_true: (..., classes), probabilities, such as one-hot vectors.
        y_pred: (..., classes), probabilities, or logits.
        alpha: one weight for all classes, or a list of weights, one for each class.
        gamma: >= 0; a larger gamma gives easy samples a smaller weight.
        from_logits: whether y_pred holds logits.
        label_smoothing: in [0, 1]; moves targets by this fraction towards 1 / classes.
        axis: the axis of classes.

    Returns:
        A tensor, (...): one value for each sample.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.categorical_focal_crossentropy([[0.0, 1.0]], [[0.1, 0.9]])
        >>> round(float(loss[0]), 5)
        0.00026

    Reference:
        [Lin et al., 2017](https://arxiv.org/abs/1708.02002)
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    _check_classes("categorical_focal_crossentropy", y_pred, axis)
    y_true = _smooth_class_labels(y_true, label_smoothing)
    if from_logits:
        y_pred = ops.softmax(y_pred, axis=axis)
    p = y_pred / ops.sum(y_pred, axis=axis, keepdims=True)
    p = ops.clip(p, settings.epsilon(), 1.0 - settings.epsilon())
    weight = ops.power(1.0 - p, gamma) * ops.convert_to_tensor(alpha, p.dtype)
    return -ops.sum(weight * y_true * ops.log(p), axis=axis)


@operation
def sparse_categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> Tensor:
    """Compute -log(y_pred[y_true]) along the axis of classes.

    Args:
        y_true: (...), or (..., 1): labels in [0, classes).
        y_pred: (..., classes), probabilities, or logits.
        from_logits: whether y_pred holds logits.
        ignore_class: a label whose samples are ignored, such as -1 or 255.
        axis: the axis of classes.

    Returns:
        A tensor, (...): one value for each sample.

    Raises:
        OutOfRangeError: a label is not in [0, classes).

    Example:
        >>> from toolkit import losses
        >>> loss = losses.sparse_categorical_crossentropy([1], [[0.5, 0.5]])
        >>> round(float(loss[0]), 4)
        0.6931
    """
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    if y_true.ndim == y_pred.ndim and y_true.shape[axis] == 1:
        y_true = ops.squeeze(y_true, axis)
    if ignore_class is None:
        return ops.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=from_logits, axis=axis
        )
    valid = ops.not_equal(y_true, ignore_class)
    y_true = ops.where(valid, y_true, 0)
    y_pred = ops.where(ops.expand_dims(valid, axis), y_pred, 0)
    losses = ops.sparse_categorical_crossentropy(
        y_true, y_pred, from_logits=from_logits, axis=axis
    )
    losses = ops.where(valid, losses, 0)
    set_mask(losses, valid)
    return losses


@operation
def categorical_generalized_cross_entropy(y_true: Any, y_pred: Any, q: float) -> Tensor:
    """Compute (1 - y_pred[y_true] ** q) / q, which is robust to wrong labels.

    Args:
        y_true: (...), labels in [0, classes).
        y_pred: (..., classes), probabilities.
        q: in (0, 1); near 0 it is the cross-entropy, near 1 the absolute error.

    Returns:
        A tensor, (...): one value for each sample.

    Example:
        >>> from toolkit import losses
        >>> y_pred = [[0.75, 0.25]]
        >>> loss = losses.categorical_generalized_cross_entropy([1], y_pred, q=0.5)
        >>> round(float(loss[0]), 4)
        1.0

    Reference:
        [Zhang, Sabuncu, 2018](https://arxiv.org/abs/1805.07836)
    """
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    labels = ops.cast(y_true, "int32")
    if labels.ndim == y_pred.ndim - 1:
        labels = ops.expand_dims(labels, -1)
    p = ops.squeeze(ops.take_along_axis(y_pred, labels, axis=-1), -1)
    return (1.0 - ops.power(p, q)) / q


@operation
def kl_divergence(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Compute sum(y_true * log(y_true / y_pred)) over the last axis.

    Args:
        y_true: (..., classes), probabilities; clipped to >= epsilon.
        y_pred: (..., classes), also clipped.

    Returns:
        A tensor, (...): one value for each sample.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.kl_divergence([[0.5, 0.5]], [[0.75, 0.25]])
        >>> round(float(loss[0]), 4)
        0.1438
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    y_true = ops.clip(y_true, settings.epsilon(), 1.0)
    y_pred = ops.clip(y_pred, settings.epsilon(), 1.0)
    return ops.sum(y_true * ops.log(y_true / y_pred), axis=-1)


@operation
def poisson(y_true: Any, y_pred: Any) -> Tensor:
    """Compute mean(y_pred - y_true * log(y_pred)) over the last axis.

    Args:
        y_true: (..., features), counts.
        y_pred: (..., features), expected counts, >= 0.

    Returns:
        A tensor, (...): one value for each row of features.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.poisson([[1.0, 2.0]], [[1.0, 4.0]])
        >>> round(float(loss[0]), 4)
        1.1137
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    return ops.mean(y_pred - y_true * ops.log(y_pred + settings.epsilon()), axis=-1)


def _smooth_binary_labels(y_true: Any, amount: float) -> Any:
    return y_true * (1.0 - amount) + 0.5 * amount if amount else y_true


def _smooth_class_labels(y_true: Any, amount: float) -> Any:
    return y_true * (1.0 - amount) + amount / y_true.shape[-1] if amount else y_true


def _check_classes(label: str, y_pred: Any, axis: int) -> None:
    if isinstance(axis, bool) or not is_int(axis):
        raise ArgumentError(f"{label}: axis must be an integer; received {axis!r}")
    if y_pred.shape[-1] == 1:
        warn(
            f"{label}: y_pred of shape {y_pred.shape} has a single class; did you mean "
            "binary_crossentropy?",
            SyntaxWarning,
        )
