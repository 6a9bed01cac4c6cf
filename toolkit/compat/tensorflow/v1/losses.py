"""`tf.losses` of TensorFlow 1: weighted losses in a collection of the graph."""

from __future__ import annotations

from functools import reduce
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.modes import building_graph
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.v1.graph import get_default_graph, record
from toolkit.compat.tensorflow.v1.variables import GraphKeys
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.type_aliases import TensorLike


class Reduction:
    """Reductions of a loss to a number: the divisor of the weighted sum."""

    NONE = "none"
    SUM = "weighted_sum"
    MEAN = "weighted_mean"  # the sum of the weights
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"  # the number of elements
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Return all reductions."""
        by_weights = cls.SUM_BY_NONZERO_WEIGHTS
        return cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, by_weights


BY_WEIGHTS = Reduction.SUM_BY_NONZERO_WEIGHTS


def add_loss(loss: Any, loss_collection: Any = GraphKeys.LOSSES) -> None:
    """Add a loss to a collection, unless that is None."""
    if loss_collection and building_graph():
        get_default_graph().add_to_collection(loss_collection, loss)


def get_losses(
    scope: str | None = None, loss_collection: Any = GraphKeys.LOSSES
) -> list[Any]:
    """Return the losses of a collection; with `scope`, only those with a matching
    name."""
    return get_default_graph().get_collection(loss_collection, scope)


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """Return the regularization losses; with `scope`, only those with a matching
    name."""
    return get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


def get_regularization_loss(
    scope: str | None = None, name: str = "total_regularization_loss"
) -> Any:
    """Return the sum of the regularization losses; 0 without any."""
    return _total(get_regularization_losses(scope), name)


def get_total_loss(
    add_regularization_losses: bool = True,
    name: str = "total_loss",
    scope: str | None = None,
) -> Any:
    """Return the sum of all losses, by default with regularization losses."""
    penalties = get_regularization_losses(scope) if add_regularization_losses else []
    return _total(get_losses(scope) + penalties, name)


def _total(losses: list[Any], name: str) -> Any:
    def total(losses: list[Any]) -> Tensor:
        return reduce(ops.add, losses) if losses else convert(0.0)

    return record(total, (losses,), name)


def compute_weighted_loss(
    losses: Any,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Multiply losses by weights, reduce them to a number, and add it to a collection.

    Args:
        losses: of any shape.
        weights: a number, or a tensor of the same rank, with equal extents or 1.
        scope: a name for the operations.
        loss_collection: the collection; None for no collection.
        reduction: a member of `Reduction`.
    """
    if reduction not in Reduction.all():
        raise unknown_choice("reduction", reduction, Reduction.all())
    losses = losses if isinstance(losses, KerasTensor) else convert(losses)
    weights = weights if isinstance(weights, KerasTensor) else convert(weights)
    _check_weights(losses, weights)

    def weighted_loss(losses: Tensor, weights: TensorLike) -> Tensor:
        weights = ops.cast(weights, losses.dtype)
        weighted = losses * weights
        if reduction == Reduction.NONE:
            return weighted
        total = ops.sum(weighted)
        if reduction == Reduction.SUM:
            return total
        every = ops.broadcast_to(weights, losses.shape)
        counts = {
            Reduction.MEAN: every,
            BY_WEIGHTS: ops.cast(ops.not_equal(every, 0.0), losses.dtype),
            Reduction.SUM_OVER_BATCH_SIZE: ops.ones_like(losses),
        }
        return ops.divide_no_nan(total, ops.sum(counts[reduction]))

    with get_default_graph().name_scope(scope or "weighted_loss"):
        loss = record(weighted_loss, (losses, weights), "value")
    add_loss(loss, loss_collection)
    return loss


def _check_weights(losses: Any, weights: Any) -> None:
    fits = not weights.shape or (
        len(weights.shape) == len(losses.shape)
        and all(
            m in (1, n) or None in (m, n)
            for m, n in zip(weights.shape, losses.shape, strict=True)
        )
    )
    if not fits:
        raise ShapeError(
            "weights can not be broadcast to values: expected a number or shape "
            f"{tuple(losses.shape)} with extents equal or 1; received "
            f"{tuple(weights.shape)}"
        )


def _match_shapes(
    name: str, labels: TensorLike, predictions: TensorLike
) -> tuple[Any, Any]:
    """Convert both to floating tensors of compatible shapes."""
    predictions = (
        predictions if isinstance(predictions, KerasTensor) else convert(predictions)
    )
    labels = labels if isinstance(labels, KerasTensor) else convert(labels)
    shapes = tuple(labels.shape), tuple(predictions.shape)
    if len(shapes[0]) != len(shapes[1]) or any(
        None not in (m, n) and m != n for m, n in zip(*shapes, strict=True)
    ):
        raise ShapeError(
            f"{name}: expected labels of shape {shapes[1]}, as the predictions; "
            f"received {shapes[0]}"
        )
    return ops.cast(labels, predictions.dtype), predictions


def mean_squared_error(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Return (labels - predictions)², weighted; see `compute_weighted_loss`."""
    y, p = _match_shapes("mean_squared_error", labels, predictions)
    losses = ops.square(p - y)
    scope = scope or "mean_squared_error"
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def absolute_difference(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Return |labels - predictions|, weighted; see `compute_weighted_loss`."""
    y, p = _match_shapes("absolute_difference", labels, predictions)
    losses = ops.abs(p - y)
    scope = scope or "absolute_difference"
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def huber_loss(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Return e²/2 up to |e| = delta, and linear beyond, with e the difference."""
    y, p = _match_shapes("huber_loss", labels, predictions)
    error = ops.abs(p - y)
    near = ops.minimum(error, delta)
    losses = 0.5 * ops.square(near) + delta * (error - near)
    scope = scope or "huber_loss"
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def log_loss(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Return -y log(p + epsilon) - (1 - y) log(1 - p + epsilon), weighted."""
    y, p = _match_shapes("log_loss", labels, predictions)
    losses = -y * ops.log(p + epsilon) - (1.0 - y) * ops.log(1.0 - p + epsilon)
    scope = scope or "log_loss"
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def hinge_loss(
    labels: TensorLike,
    logits: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Return max(0, 1 - (2 * labels - 1) * logits), weighted; labels are 0 or 1."""
    y, p = _match_shapes("hinge_loss", labels, logits)
    losses = ops.relu(1.0 - (2.0 * y - 1.0) * p)
    scope = scope or "hinge_loss"
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def cosine_distance(
    labels: TensorLike,
    predictions: TensorLike,
    axis: int | None = None,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Return 1 - sum(labels * predictions) of unit vectors along `axis`; weighted."""
    if axis is None:
        raise ArgumentError("cosine_distance: You must specify 'axis'.")
    y, p = _match_shapes("cosine_distance", labels, predictions)
    losses = 1.0 - ops.sum(y * p, axis=axis, keepdims=True)
    scope = scope or "cosine_distance_loss"
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def sigmoid_cross_entropy(
    multi_class_labels: TensorLike,
    logits: TensorLike,
    weights: TensorLike = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Return the cross entropy of independent classes, weighted.

    Args:
        multi_class_labels: probabilities, shape as the logits.
        logits: before the sigmoid.
        weights, scope, loss_collection, reduction: as in `compute_weighted_loss`.
        label_smoothing: the weight of 1/2 in the labels.
    """
    y, x = _match_shapes("sigmoid_cross_entropy", multi_class_labels, logits)
    if label_smoothing:
        y = y * (1.0 - label_smoothing) + 0.5 * label_smoothing
    losses = ops.softplus(x) - y * x
    scope = scope or "sigmoid_cross_entropy_loss"
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def softmax_cross_entropy(
    onehot_labels: TensorLike,
    logits: TensorLike,
    weights: TensorLike = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Return the cross entropy of exclusive classes, weighted.

    Args:
        onehot_labels: probabilities, shape (..., classes).
        logits: before the softmax, of the same shape.
        weights, scope, loss_collection, reduction: as in `compute_weighted_loss`;
            weights have one element for each example, or one.
        label_smoothing: the weight of equal probabilities in the labels.
    """
    y, x = _match_shapes("softmax_cross_entropy", onehot_labels, logits)
    if label_smoothing:
        y = y * (1.0 - label_smoothing) + label_smoothing / x.shape[-1]
    losses = ops.categorical_crossentropy(ops.stop_gradient(y), x, from_logits=True)
    scope = scope or "softmax_cross_entropy_loss"
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)


def sparse_softmax_cross_entropy(
    labels: TensorLike,
    logits: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: Any = GraphKeys.LOSSES,
    reduction: str = BY_WEIGHTS,
) -> Any:
    """Return the cross entropy of exclusive classes with integer labels, weighted.

    Args:
        labels: integers, shape (...).
        logits: before the softmax, shape (..., classes).
        weights, scope, loss_collection, reduction: as in `compute_weighted_loss`.
    """
    losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    scope = scope or "sparse_softmax_cross_entropy_loss"
    return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)
