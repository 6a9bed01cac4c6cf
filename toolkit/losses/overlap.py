"""Losses between regions of images, and between embeddings."""

from __future__ import annotations

from typing import Any

from toolkit import ops, settings
from toolkit.arguments import Axes
from toolkit.core.masks import set_mask
from toolkit.core.tensor import Tensor
from toolkit.losses.loss import LossFunctionWrapper
from toolkit.losses.regression import to_tensor_pair
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import DTypeLike, TensorLike


@operation
def dice(y_true: Any, y_pred: Any, axis: Any = None) -> Tensor:
    """Compute 1 - 2 * sum(y_true * y_pred) / (sum(y_true) + sum(y_pred)) over `axis`.

    Args:
        y_true: any shape, in [0, 1].
        y_pred: the same shape, in [0, 1].
        axis: the axes of one region; None: all.

    Returns:
        A tensor: one value in [0, 1] for each region.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.dice([[1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]])
        >>> round(float(loss), 4)
        0.5
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    intersection = 2.0 * ops.sum(y_true * y_pred, axis=axis)
    total = ops.sum(y_true, axis=axis) + ops.sum(y_pred, axis=axis)
    return 1.0 - intersection / (total + settings.epsilon())


@operation
def tversky(
    y_true: Any, y_pred: Any, alpha: float = 0.5, beta: float = 0.5, axis: Any = None
) -> Tensor:
    """Compute 1 - tp / (tp + alpha * fn + beta * fp) over `axis`.

    tp = sum(y_true * y_pred), fn = sum(y_true * (1 - y_pred)) and
    fp = sum(y_pred * (1 - y_true)).

    Args:
        y_true: any shape, in [0, 1].
        y_pred: the same shape, in [0, 1].
        alpha: the weight of missed elements (false negatives).
        beta: the weight of added elements (false positives).
        axis: the axes of one region; None: all.

    Returns:
        A tensor: one value in [0, 1] for each region.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.tversky([[1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]])
        >>> round(float(loss), 4)
        0.5

    Reference:
        [Salehi et al., 2017](https://arxiv.org/abs/1706.05721)
    """
    y_true, y_pred = to_tensor_pair(y_true, y_pred)
    intersection = ops.sum(y_true * y_pred, axis=axis)
    false_negatives = ops.sum(y_true * (1.0 - y_pred), axis=axis)
    false_positives = ops.sum(y_pred * (1.0 - y_true), axis=axis)
    total = intersection + alpha * false_negatives + beta * false_positives
    return 1.0 - intersection / (total + settings.epsilon())


@operation
def circle(
    y_true: TensorLike,
    y_pred: TensorLike,
    ref_labels: Any = None,
    ref_embeddings: Any = None,
    remove_diagonal: bool = True,
    gamma: float = 80,
    margin: float = 0.4,
) -> Tensor:
    """Compute the circle loss: pull equal labels together, push different labels apart.

    Args:
        y_true: (batch,), labels.
        y_pred: (batch, features), embeddings of length 1.
        ref_labels: (references,), labels to compare with; None: y_true.
        ref_embeddings: (references, features), of length 1; None: y_pred.
        remove_diagonal: whether to exclude the pair of the i-th sample and the i-th
            reference.
        gamma: the scale of the loss.
        margin: the margin between the two kinds of pairs.

    Returns:
        (batch,), masked for samples without a loss.

    Example:
        >>> from toolkit import losses
        >>> embeddings = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> losses.circle([0, 0, 1], embeddings, gamma=2.0).shape
        (3,)

    Reference:
        [Sun et al., 2020](https://arxiv.org/abs/2002.10857)
    """
    y_pred = ops.convert_to_tensor(y_pred)
    labels = ops.reshape(ops.cast(y_true, "int32"), (-1, 1))
    references = (
        y_pred if ref_embeddings is None else ops.convert_to_tensor(ref_embeddings)
    )
    reference_labels = labels if ref_labels is None else ops.cast(ref_labels, "int32")
    reference_labels = ops.reshape(reference_labels, (1, -1))

    distance = ops.maximum(1.0 - ops.matmul(y_pred, ops.transpose(references)), 0.0)
    is_positive = ops.equal(labels, reference_labels)
    is_negative = ops.logical_not(is_positive)
    if remove_diagonal:
        off_diagonal = ops.equal(ops.eye(*is_positive.shape), 0)
        is_positive = ops.logical_and(is_positive, off_diagonal)

    positive_logits = gamma * ops.maximum(margin + distance, 0.0) * (distance - margin)
    negative_logits = (
        gamma * ops.maximum(1.0 + margin - distance, 0.0) * (1 - margin - distance)
    )
    minus_infinity = float("-inf")
    positive_terms = ops.logsumexp(
        ops.where(is_positive, positive_logits, minus_infinity), axis=1
    )
    negative_terms = ops.logsumexp(
        ops.where(is_negative, negative_logits, minus_infinity), axis=1
    )
    losses = ops.softplus(positive_terms + negative_terms)
    set_mask(losses, ops.greater(losses, 0))
    return losses


class Dice(LossFunctionWrapper):
    """Dice loss: 1 - twice the overlap over the sum of the areas.

    Args:
        reduction: as for `Loss`.
        name: as for `Loss`.
        axis: the axes of one region; None: all.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> float(losses.Dice()([[1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]))
        0.5
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "dice",
        axis: Axes = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(dice, reduction, name, dtype, axis=axis)
        self.axis = axis


class Tversky(LossFunctionWrapper):
    """Tversky loss: the Dice loss with weights for missed and added elements.

    Args:
        alpha: the weight of missed elements (false negatives).
        beta: the weight of added elements (false positives).
        reduction: as for `Loss`.
        name: as for `Loss`.
        axis: the axes of one region; None: all.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.Tversky(beta=0.25)
        >>> round(float(loss([[1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]])), 4)
        0.4286

    Reference:
        [Salehi et al., 2017](https://arxiv.org/abs/1706.05721)
    """

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "tversky",
        axis: Axes = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            tversky, reduction, name, dtype, alpha=alpha, beta=beta, axis=axis
        )
        self.alpha = alpha
        self.beta = beta
        self.axis = axis


class Circle(LossFunctionWrapper):
    """Circle loss between embeddings of length 1 and their labels.

    Args:
        gamma: the scale of the loss.
        margin: the margin between pairs of equal labels and pairs of different labels.
        remove_diagonal: whether to exclude the pair of a sample and itself.
        reduction: as for `Loss`.
        name: as for `Loss`.
        dtype: as for `Loss`.

    Example:
        >>> from toolkit import losses
        >>> loss = losses.Circle(gamma=2.0)
        >>> embeddings = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> float(loss([0, 0, 1], embeddings)) > 0
        True

    Reference:
        [Sun et al., 2020](https://arxiv.org/abs/2002.10857)
    """

    def __init__(
        self,
        gamma: float = 80.0,
        margin: float = 0.4,
        remove_diagonal: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "circle",
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            circle,
            reduction,
            name,
            dtype,
            gamma=gamma,
            margin=margin,
            remove_diagonal=remove_diagonal,
        )
        self.gamma = gamma
        self.margin = margin
        self.remove_diagonal = remove_diagonal
