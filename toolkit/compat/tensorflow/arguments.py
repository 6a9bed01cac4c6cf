"""Conversion of TensorFlow arguments: shapes, dtypes, axes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from toolkit import dtypes, tree
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import (
    ArgumentTypeError,
    DTypeError,
    OutOfRangeError,
    UnsupportedError,
)
from toolkit.type_aliases import DTypeLike, TensorLike


def extents(shape: Any) -> tuple[int, ...]:
    """Convert a shape to integers; it can be a tensor, or a list with 0-d tensors."""
    if isinstance(shape, (Tensor, Variable)):
        shape = shape.numpy().tolist()
    if isinstance(shape, int):
        return (shape,)
    try:
        return tuple([index(n) for n in shape])
    except TypeError:
        raise ArgumentTypeError(
            f"shape: expected integers; received {shape!r}"
        ) from None


def check_within(
    function: str, indices: Any, extent: int, lowest: int | None = 0
) -> None:
    """Check that indices are integers, and below an extent if it is static.

    The values of indices in a trace are not checked.

    Args:
        function: the name of the caller.
        indices: a tensor.
        extent: the size of the axis.
        lowest: the smallest index; None for any.

    Raises:
        OutOfRangeError: an index is out of bounds.
    """
    if indices.dtype == "bool":
        raise DTypeError(f"{function}: expected indices; received booleans")
    values = indices.constant
    if values is None or not values.size:
        return
    minimum, maximum = values.min(), values.max()
    if maximum >= extent or (lowest is not None and minimum < lowest):
        wrong = maximum if maximum >= extent else minimum
        raise OutOfRangeError(
            f"{function}: expected indices in [{lowest or 0}, {extent}); received "
            f"{int(wrong)}"
        )


def axes(axis: Any) -> Any:
    """Convert an axis or several; a list becomes a tuple, and None stays None."""
    if isinstance(axis, Sequence):
        return tuple(int(n) for n in axis)
    return axis if axis is None else int(axis)


def as_array(value: TensorLike) -> Any:
    """Convert a NumPy scalar to an array, which keeps its dtype, unlike a Python
    number."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def fitting(value: TensorLike, dtype: DTypeLike | None, function: str) -> Any:
    """Check that a dtype can hold a value: no fractions in integers, for example.

    Numbers, nests of numbers and tensors are checked; arrays are cast.

    Raises:
        DTypeError: a value does not fit.
    """
    if dtype is None or isinstance(value, (np.ndarray, np.generic)):
        return value
    name = dtypes.standardize(dtype)
    if isinstance(value, (Tensor, Variable)):
        is_cut = dtypes.is_integer(name) and value.dtype in dtypes.INEXACT
        wrong: list[Any] = [value.dtype] if is_cut else []
    else:
        wrong = [x for x in tree.flatten(value) if _is_misfit(x, name)]
    if wrong:
        raise DTypeError(f"{function}: expected {name}; received {wrong[0]!r}")
    return value


def _is_misfit(x: TensorLike, dtype: str) -> bool:
    """Return whether a dtype cannot hold the kind of a leaf."""
    if isinstance(x, (str, bytes)):
        return dtype != dtypes.STRING
    if isinstance(x, (bool, np.bool_)):
        return False
    if dtype == "bool":
        return isinstance(x, (int, float, complex))
    kind = getattr(x, "dtype", None)
    inexact = isinstance(x, (float, complex, np.inexact)) or (
        isinstance(x, Tensor) and kind in dtypes.INEXACT
    )
    if isinstance(x, (complex, np.complexfloating)) and not dtypes.is_complex(dtype):
        return True
    return inexact and dtypes.is_integer(dtype)


def dtype_name(dtype: DTypeLike | None) -> str | None:
    """Return the name of a dtype; None stays None."""
    return None if dtype is None else dtypes.standardize(dtype)


def refuse(function: str, **arguments: tuple[Any, Any]) -> None:
    """Raise for an argument whose value is not the only supported one.

    Args:
        function: the name of the caller.
        **arguments: argument -> (value, the only supported value).
    """
    for argument, (value, supported) in arguments.items():
        if value is not supported and value != supported:
            raise UnsupportedError(
                f"{function}: only {argument}={supported!r} is supported; received "
                f"{value!r}"
            )
