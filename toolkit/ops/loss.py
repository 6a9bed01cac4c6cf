"""Cross-entropies, elementwise or along the axis of classes.

From logits, each subtracts the maximum once and never computes the logarithm of a
rounded probability. Probabilities are clipped to a distance of epsilon from 0 and 1.
"""

from __future__ import annotations

import numpy as np

from toolkit import dtypes, settings
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import OutOfRangeError, ShapeError
from toolkit.ops.activation import softplus
from toolkit.ops.checks import normalize_axis
from toolkit.ops.elementwise import maximum, minimum
from toolkit.ops.index import reject_negative, take_along_axis_p
from toolkit.ops.numeric import stop_gradient
from toolkit.ops.reduce import max, sum
from toolkit.ops.shape import expand_dims, squeeze
from toolkit.ops.softmax import log_softmax_p
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import exp, log
from toolkit.type_aliases import TensorLike


def _pair(
    op: str, target: TensorLike, output: TensorLike
) -> tuple[Tensor, Tensor, str]:
    """Return both in float32 or wider, with equal shapes, and the result's dtype."""
    target, output = floating(target, output)
    if target.shape != output.shape:
        raise ShapeError(
            f"{op}: target and output must have the same shape; received "
            f"{target.shape} and {output.shape}"
        )
    wide = dtypes.result_type(output.dtype, "float32")
    return convert(target, wide), convert(output, wide), output.dtype


def _clipped(probabilities: Tensor) -> Tensor:
    epsilon = settings.epsilon()
    return minimum(maximum(probabilities, epsilon), 1 - epsilon)


@operation
def binary_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False
) -> Tensor:
    """Compute -target * log(output) - (1 - target) * log(1 - output), elementwise.

    Args:
        target: probabilities in [0, 1], of any shape.
        output: probabilities in [0, 1], or logits, with the shape of `target`.
            Probabilities are limited to [epsilon, 1 - epsilon].
        from_logits: whether `output` contains logits, to which sigmoid applies.

    Returns:
        A tensor with the shape of `target` and the common floating dtype.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.binary_crossentropy([0.0, 1.0], [0.5, 0.9]), 4))
        [0.6931 0.1054]
    """
    target, output, dtype = _pair("binary_crossentropy", target, output)
    if from_logits:
        return convert(softplus(output) - target * output, dtype)
    p = _clipped(output)
    return convert(-(target * log(p) + (1 - target) * log(1 - p)), dtype)


@operation
def categorical_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1
) -> Tensor:
    """Compute -sum(target * log(output)) along the axis of classes.

    Args:
        target: probabilities of the classes, such as one-hot vectors: (..., classes).
        output: probabilities or logits with the shape of `target`. Probabilities are
            divided by their sum, and limited to [epsilon, 1 - epsilon].
        from_logits: whether `output` contains logits, to which softmax applies.
        axis: the axis of classes. The default is the last axis.

    Returns:
        A tensor without the axis of classes, with the common floating dtype.

    Example:
        >>> from toolkit import ops
        >>> loss = ops.categorical_crossentropy([[0.0, 1.0]], [[0.2, 0.8]])
        >>> print(ops.round(loss, 4))
        [0.2231]
    """
    target, output, dtype = _pair("categorical_crossentropy", target, output)
    axis = _class_axis("categorical_crossentropy", output, axis)
    if from_logits:
        log_p = bind(log_softmax_p, output, axis=(axis,))
    else:
        log_p = log(_clipped(output / sum(output, axis=axis, keepdims=True)))
    return convert(-sum(target * log_p, axis=axis), dtype)


@operation
def sparse_categorical_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1
) -> Tensor:
    """Compute -log(output[target]) along the axis of classes.

    Args:
        target: integers in [0, classes), with the shape of `output` without `axis`, or
            with extent 1 along it.
        output: probabilities or logits, (..., classes). Probabilities are divided by
            their sum, and limited to [epsilon, 1 - epsilon].
        from_logits: whether `output` contains logits, to which softmax applies.
        axis: the axis of classes. The default is the last axis.

    Returns:
        A tensor without the axis of classes, with the floating dtype of `output`.

    Raises:
        OutOfRangeError: a label is not in [0, classes).

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.sparse_categorical_crossentropy([1], [[0.2, 0.8]]), 4))
        [0.2231]
    """
    op = "sparse_categorical_crossentropy"
    (output,) = floating(output)
    dtype = output.dtype
    output = convert(output, dtypes.result_type(dtype, "float32"))
    axis = _class_axis(op, output, axis)
    labels = _labels(op, target, output, axis)
    if not from_logits:
        p = output / sum(output, axis=axis, keepdims=True)
        return convert(-log(_clipped(_picked(op, p, labels, axis))), dtype)
    shifted = output - stop_gradient(max(output, axis=axis, keepdims=True))
    total = log(sum(exp(shifted), axis=axis))
    return convert(total - _picked(op, shifted, labels, axis), dtype)


def _class_axis(op: str, output: Tensor, axis: int) -> int:
    if output.ndim == 0:
        raise ShapeError(f"{op}: expected output with an axis of classes; received ()")
    return normalize_axis(op, axis, output.ndim)


def _labels(op: str, target: TensorLike, output: Tensor, axis: int) -> Tensor:
    """Return the labels as integers, with extent 1 along the axis of classes."""
    labels = convert(target)
    if not dtypes.is_integer(labels.dtype) or labels.dtype in ("uint32", "uint64"):
        labels = convert(labels, "int64")
    elif labels.dtype != "int64":
        labels = convert(labels, "int32")
    expected = (*output.shape[:axis], 1, *output.shape[axis + 1 :])
    if labels.ndim == output.ndim - 1:
        labels = expand_dims(labels, axis)
    if labels.shape != expected:
        raise ShapeError(
            f"{op}: expected target of shape {expected[:axis] + expected[axis + 1 :]} "
            f"for output of shape {output.shape}; received {convert(target).shape}"
        )
    return labels


def _picked(op: str, x: Tensor, labels: Tensor, axis: int) -> Tensor:
    """Return the element of each label's class; negative labels do not wrap around."""
    classes = x.shape[axis]
    indices = reject_negative(labels, classes)
    try:
        picked = bind(take_along_axis_p, x, indices, axis=axis, shifted=True)
        return squeeze(picked, axis)
    except OutOfRangeError:
        values = labels.numpy()
        wrong = values[np.logical_or(values < 0, values >= classes)].flat[0]
        raise OutOfRangeError(
            f"{op}: expected labels in [0, {classes}); received {wrong}"
        ) from None
