"""Checks of targets against the compiled losses and outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from toolkit import losses, tree
from toolkit.console.frames import warn
from toolkit.core.tensor import Tensor
from toolkit.dtypes import is_float
from toolkit.errors import ArgumentError, ShapeError
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


def describe_term(kind: str, name: str, output: Any) -> str:
    """Return a name for messages: `loss 'mse' of the output 'score'`."""
    suffix = f" of the output {output!r}" if output and output != name else ""
    return f"{kind} {name!r}{suffix}"


@contextmanager
def add_term_to_shape_errors(
    kind: str, name: str, output: Any, true: Any, pred: Any
) -> Iterator[Any]:
    """Add the loss or metric to errors about shapes in the block."""
    try:
        yield
    except ShapeError as error:
        shapes = (getattr(true, "shape", None), getattr(pred, "shape", None))
        if None in shapes or shapes[0] == shapes[1]:
            raise
        raise ShapeError(
            f"{describe_term(kind, name, output)}: the targets of shape {shapes[0]} do "
            f"not fit the outputs of shape {shapes[1]} ({error})"
        ) from error


def check_shapes(loss: Any, output: Any, true: Any, pred: Any) -> None:
    """Raise if targets do not fit the outputs; warn if they are broadcast.

    Args:
        loss: the Loss; only elementwise losses are checked.
        output: the name of the output, or None.
        true, pred: tensors or symbols of targets and outputs.
    """
    if not _is_among(loss, _ELEMENTWISE):
        return
    if not hasattr(true, "shape") or not hasattr(pred, "shape"):
        return
    shapes = _match_ranks(tuple(true.shape), tuple(pred.shape))
    with add_term_to_shape_errors("loss", loss.name, output, true, pred):
        broadcast_shapes("targets and outputs", *shapes)
    if shapes[0] != shapes[1]:
        warn(
            f"{describe_term('loss', loss.name, output)}: the targets of shape "
            f"{tuple(true.shape)} and the outputs of shape {tuple(pred.shape)} "
            "differ and are broadcast; give the targets the shape of the outputs"
        )


def check_values(loss: Any, output: Any, true: Any, pred: Any) -> None:
    """Raise or warn if the first batch's targets are invalid for the loss."""
    if not isinstance(true, Tensor) or not true.size:
        return
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


def _is_among(loss: Any, functions: set[Any]) -> bool:
    function = getattr(loss, "fn", None)
    return any(function is candidate for candidate in functions)


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
