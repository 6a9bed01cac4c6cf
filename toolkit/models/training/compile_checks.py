"""Checks of targets against the compiled losses and outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from toolkit import losses, tree
from toolkit.backends.memory import device_memories
from toolkit.console.frames import warn
from toolkit.core.tensor import Tensor
from toolkit.dtypes import is_float
from toolkit.errors import ArgumentError, OutOfRangeError, ShapeError
from toolkit.ops.checks import broadcast_shapes

Shape = tuple[int, ...]

# Losses with targets in the shape of the outputs.
_ELEMENTWISE = {
    losses.mean_squared_error,
    losses.mean_absolute_error,
    losses.mean_absolute_percentage_error,
    losses.mean_squared_logarithmic_error,
    losses.huber,
    losses.log_cosh,
    losses.cosine_similarity,
    losses.hinge,
    losses.squared_hinge,
    losses.kl_divergence,
    losses.poisson,
}
# Losses with integer labels as targets.
_OF_LABELS = {
    losses.sparse_categorical_crossentropy,
    losses.categorical_generalized_cross_entropy,
}
# Losses with probabilities as targets.
_OF_PROBABILITIES = {
    losses.binary_crossentropy,
    losses.binary_focal_crossentropy,
    losses.categorical_crossentropy,
    losses.categorical_focal_crossentropy,
}


_CATEGORICAL = {
    losses.categorical_crossentropy,
    losses.categorical_focal_crossentropy,
    losses.categorical_hinge,
}


def describe_term(kind: str, name: str, output: object) -> str:
    """Return a name for messages: `loss 'mse' of the output 'score'`."""
    suffix = f" of the output {output!r}" if output and output != name else ""
    return f"{kind} {name!r}{suffix}"


@contextmanager
def add_term_to_shape_errors(
    kind: str, name: str, output: object, true: Any, pred: Any, function: object = None
) -> Iterator[None]:
    """Add the loss or metric, and the likely fix, to errors about shapes in the block.

    Args:
        kind: "loss" or "metric".
        name: the name of the loss or metric.
        output: the name of the output, or None.
        true, pred: tensors or symbols of targets and outputs.
        function: the function of the loss, or None.
    """
    try:
        yield
    except ShapeError as error:
        shapes = (getattr(true, "shape", None), getattr(pred, "shape", None))
        if None in shapes:
            raise
        fix = _fix_of_targets(function, tuple(true.shape), tuple(pred.shape))
        if not fix and shapes[0] == shapes[1]:
            raise
        raise ShapeError(
            f"{describe_term(kind, name, output)}: the targets of shape {shapes[0]} do "
            f"not fit the outputs of shape {shapes[1]}{fix or f' ({error})'}"
        ) from error


def _fix_of_targets(function: object, true: Shape, pred: Shape) -> str:
    """Return the likely fix for targets that do not fit the outputs, or ""."""
    if not pred:
        return ""
    classes, has_labels = pred[-1], true in (pred[:-1], (*pred[:-1], 1))
    sparse = "loss='sparse_categorical_crossentropy'"
    if function in _OF_LABELS and true == pred:
        return (
            ": it expects one integer label per sample. For one-hot targets use "
            "loss='categorical_crossentropy', or convert them by y.argmax(axis=-1)"
        )
    if function in _OF_LABELS and len(pred) > 2 and true in (pred[:1], (*pred[:1], 1)):
        return (
            ": there is one label per sample, but the outputs have more axes than "
            "(batch, classes). Add layers.Flatten, or a GlobalAveragePooling layer, "
            "before the last layer"
        )
    if not has_labels or classes in (1, None):
        return ""
    if function in _CATEGORICAL:
        return (
            f": it expects one-hot targets of shape {pred}. For integer labels use "
            f"{sparse}, or convert them by toolkit.utils.to_categorical(y, {classes})"
        )
    if function in _OF_PROBABILITIES:
        return (
            ": it expects one target per output. For two classes use one unit with "
            f"'sigmoid' in the last layer; for integer labels of {classes} classes use "
            f"'softmax' and {sparse}"
        )
    if function in _ELEMENTWISE:
        return (
            ": it expects one target per output. For one number per sample use one "
            f"unit in the last layer; for integer labels use {sparse}"
        )
    return ""


def check_shapes(loss: Any, output: object, true: Any, pred: Any) -> None:
    """Raise if targets do not fit the outputs; warn if they are broadcast.

    Args:
        loss: the Loss; elementwise and categorical losses are checked.
        output: the name of the output, or None.
        true, pred: tensors or symbols of targets and outputs.
    """
    if not hasattr(true, "shape") or not hasattr(pred, "shape"):
        return
    if _is_among(loss, _CATEGORICAL) and getattr(loss, "axis", -1) == -1:
        _check_one_hot(loss, output, tuple(true.shape), tuple(pred.shape))
    if not _is_among(loss, _ELEMENTWISE):
        return
    shapes = _match_ranks(tuple(true.shape), tuple(pred.shape))
    function = function_of(loss)
    with add_term_to_shape_errors("loss", loss.name, output, true, pred, function):
        broadcast_shapes("targets and outputs", *shapes)
    if shapes[0] != shapes[1]:
        warn(
            f"{describe_term('loss', loss.name, output)}: the targets of shape "
            f"{tuple(true.shape)} and the outputs of shape {tuple(pred.shape)} "
            "differ and are broadcast; give the targets the shape of the outputs"
        )


def _check_one_hot(loss: Any, output: object, true: Shape, pred: Shape) -> None:
    """Raise for integer labels as the targets of a loss that needs one-hot targets."""
    fix = _fix_of_targets(function_of(loss), true, pred)
    if fix:
        raise ShapeError(
            f"{describe_term('loss', loss.name, output)}: the targets of shape {true} "
            f"do not fit the outputs of shape {pred}{fix}"
        )


def check_values(loss: Any, output: object, true: Any, pred: Any) -> None:
    """Raise or warn if the first batch's targets are invalid for the loss."""
    if not isinstance(true, Tensor) or not true.size:
        return
    if _is_among(loss, _OF_LABELS):
        _check_labels(loss, output, true, pred)
    if _is_among(loss, _OF_LABELS) and is_float(true.dtype):
        values = true.numpy().astype("float64")
        fractions = values[values % 1 != 0]
        if fractions.size:
            raise ArgumentError(
                f"{describe_term('loss', loss.name, output)}: expected labels, whole "
                f"numbers; received {fractions[0]:g} among the targets of shape "
                f"{true.shape}"
            )
    elif _is_among(loss, _OF_PROBABILITIES) and true.ndim == len(pred.shape):
        values = true.numpy()
        low, high = float(values.min()), float(values.max())
        if low < 0 or high > 1:
            warn(
                f"{describe_term('loss', loss.name, output)}: expected targets in "
                f"[0, 1]; the first batch has targets from {low:g} to {high:g}"
            )


def _check_labels(loss: Any, output: object, true: Tensor, pred: Any) -> None:
    """Raise for labels that have no class; warn if there is a single class."""
    classes = pred.shape[-1] if pred.shape else None
    if classes is None or getattr(loss, "axis", -1) != -1:
        return
    if tuple(true.shape) not in (tuple(pred.shape[:-1]), (*pred.shape[:-1], 1)):
        return
    if device_memories:  # a read would wait for the accelerator
        return
    labels = true.numpy()
    ignored = getattr(loss, "ignore_class", None)
    labels = labels[labels != ignored] if ignored is not None else labels
    if not labels.size:
        return
    low, high = labels.min(), labels.max()
    term = describe_term("loss", loss.name, output)
    if classes == 1:
        warn(
            f"{term}: the outputs have one unit, so there is one class. For two "
            "classes use loss='binary_crossentropy' and 'sigmoid'; for more classes, "
            "one unit per class"
        )
    elif low < 0 or high >= classes:
        fix = (
            f"subtract {low:g} from the labels, or "
            if low > 0 and high - low < classes
            else ""
        )
        raise OutOfRangeError(
            f"{term}: expected labels from 0 to {classes - 1}, because the outputs "
            f"have {classes} units; received labels from {low:g} to {high:g}; {fix}use "
            "one unit per class in the last layer"
        )


def function_of(loss: object) -> object:
    """Return the function of a loss, or None if its class computes it."""
    function = getattr(loss, "fn", None)
    return function if callable(function) and _is_hashable(function) else None


def _is_hashable(value: object) -> bool:
    return type(value).__hash__ is not None


def _is_among(loss: object, functions: set[Any]) -> bool:
    return function_of(loss) in functions


def _match_ranks(x1: Shape, x2: Shape) -> tuple[Shape, Shape]:
    """Return two shapes after `match_ranks`."""
    if len(x1) == len(x2) + 1 and x1[-1] == 1:
        return (x1, (*x2, 1)) if len(x2) == 1 else (x1[:-1], x2)
    if len(x2) == len(x1) + 1 and x2[-1] == 1:
        x2, x1 = _match_ranks(x2, x1)
    return x1, x2


def describe_indices(batch: Any) -> str:
    """Return the range of possible indices, for an error message."""
    terms = zip(("x", "y"), batch if type(batch) is tuple else (batch,), strict=False)
    results = [
        f"{name} has values from {array.min():g} to {array.max():g}"
        for name, term in terms
        for array in map(np.asarray, tree.flatten(term))
        if array.dtype.kind in "iuf" and array.size and (array % 1 == 0).all()
    ]
    return "in this batch " + ", ".join(results or ["no array contains integers"])
