"""Gradients before an update: their shapes and their norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import ops
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ShapeError


def fit_shape(caller: str, gradient: Any, variable: Variable) -> Tensor:
    """Broadcast a gradient to the shape of its variable.

    Args:
        caller: the caller, for the message.
        gradient: of a shape that broadcasts to the variable's.
        variable: the variable of the gradient.

    Raises:
        ShapeError: if the shapes do not broadcast.
    """
    tensor, shape = convert(gradient), variable.shape
    if tensor.shape == shape:
        return tensor
    try:
        return ops.broadcast_to(tensor, shape)
    except ShapeError as error:
        raise ShapeError(
            f"{caller}: expected a gradient of shape {shape} for the variable "
            f"{variable.path!r}; received shape {tensor.shape}"
        ) from error


def clip_by_norm(g: Tensor, norm: float) -> Tensor:
    """Scale g down to the norm: g * norm / max(|g|, norm)."""
    length = ops.sqrt(ops.sum(ops.square(g)))
    return g * (norm / ops.maximum(length, norm))


def clip_by_global_norm(grads: Sequence[Tensor], norm: float) -> list[Tensor]:
    """Scale all gradients by one factor to a global norm of at most `norm`."""
    total = ops.sqrt(sum((ops.sum(ops.square(g)) for g in grads), start=ops.zeros(())))
    # The difference is 0, or NaN for an infinite norm: then all gradients become NaN.
    scale = norm / ops.maximum(total, norm) + (total - total)
    return [g * convert(scale, g.dtype) for g in grads]
