"""Conversion of gradients for optimizers."""

from __future__ import annotations

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
