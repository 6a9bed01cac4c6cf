"""What TensorFlow's functions take for a shape or a dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import UnsupportedError


def extents(shape: Any) -> tuple[int, ...]:
    """A shape as integers: it may be a tensor, or a list that holds 0-d tensors."""
    if isinstance(shape, (Tensor, Variable)):
        shape = shape.numpy().tolist()
    return (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)


def axes(axis: Any) -> Any:
    """An axis or several; a list becomes a tuple, and None stays None."""
    if isinstance(axis, Sequence):
        return tuple(int(n) for n in axis)
    return axis if axis is None else int(axis)


def as_array(value: Any) -> Any:
    """A number of NumPy's as an array: it keeps its dtype, unlike Python's numbers."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def dtype_name(dtype: Any) -> str | None:
    """The name of a dtype; None stays None."""
    return None if dtype is None else dtypes.standardize(dtype)


def refuse(function: str, **given: tuple[Any, Any]) -> None:
    """Refuse arguments that have another value than the only one supported.

    Args:
        function: the name of who was called.
        **given: argument -> (value, the only value that is supported).
    """
    for argument, (value, supported) in given.items():
        if value is not supported and value != supported:
            raise UnsupportedError(
                f"{function}: only {argument}={supported!r} is supported; received "
                f"{value!r}"
            )
