"""Losses of classifiers."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator
from toolkit.models.importing.values import Value

_REDUCTIONS = ("none", "mean", "sum")


def _negative_log_likelihood(
    call: Call, x: Value, target: Value, weight: Value | None = None
) -> Value:
    if x.ndim < 2 or target.shape != (x.shape[0], *x.shape[2:]):
        raise ModelFileError(
            f"targets of shape {target.shape} do not fit scores of shape {x.shape}"
        )
    if weight is not None and weight.shape != x.shape[1:2]:
        raise ModelFileError(
            f"weights of shape {weight.shape} do not fit scores of shape {x.shape}"
        )
    ignored = call.integer("ignore_index", None)
    reduction = call.text("reduction", "mean")
    if reduction not in _REDUCTIONS:
        raise ModelFileError(
            f"expected reduction to be one of {_REDUCTIONS}; received {reduction!r}"
        )
    classes = ops.cast(target.tensor, "int64")
    counts = None if ignored is None else ops.not_equal(classes, ignored)
    if counts is not None:  # an ignored target is not a class
        classes = ops.where(counts, classes, 0)
    log_probability = ops.take_along_axis(x.tensor, ops.expand_dims(classes, 1), axis=1)
    loss = -ops.squeeze(log_probability, axis=1)
    weights = None if weight is None else ops.take(weight.tensor, classes, axis=0)
    if counts is not None:
        is_counted = ops.cast(counts, x.dtype)
        weights = is_counted if weights is None else weights * is_counted
    if weights is not None:
        loss = loss * weights
    return Value(_reduced(loss, weights, reduction))


def _reduced(loss: Any, weights: Any, reduction: str) -> Any:
    if reduction == "none":
        return loss
    if reduction == "mean" and weights is None:
        return ops.mean(loss)
    total = ops.sum(loss)
    return total if reduction == "sum" else total / ops.sum(weights)


def _softmax_crossentropy(
    call: Call, x: Value, target: Value, weight: Value | None = None
) -> Any:
    if x.ndim < 2:
        raise ModelFileError(
            f"expected scores with a class axis; received shape {x.shape}"
        )
    log_probabilities = Value(ops.log_softmax(x.tensor, axis=1))
    loss = _negative_log_likelihood(call, log_probabilities, target, weight)
    return (loss, log_probabilities) if call.is_output_used(1) else loss


OPERATORS = (
    Operator("NegativeLogLikelihoodLoss", _negative_log_likelihood),
    Operator("SoftmaxCrossEntropyLoss", _softmax_crossentropy),
)
