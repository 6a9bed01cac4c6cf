"""Small NumPy functions for labels and arrays, as in `keras.utils`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, DTypeError, OutOfRangeError
from toolkit.ops.symbolic import KerasTensor
from toolkit.type_aliases import Array


def to_categorical(x: Any, num_classes: int | None = None) -> Any:
    """Return one row per label, with 1 at the label's index and 0 elsewhere.

    Args:
        x: Whole numbers from 0 to num_classes - 1: (...) or (..., 1).
        num_classes: Length of a row; None takes the largest label plus 1.

    Returns:
        float64: (..., num_classes), without the last axis of a (..., 1) input. For a
        tensor or a symbol, which need num_classes, a tensor or a symbol of the default
        dtype.

    Raises:
        ArgumentError: a label is not a whole number in range.

    Example:
        >>> from toolkit.utils import to_categorical
        >>> to_categorical([0, 2], num_classes=3)
        array([[1., 0., 0.],
               [0., 0., 1.]])
    """
    if isinstance(x, (Tensor, KerasTensor)):
        return _one_hot(x, num_classes)
    labels = _to_integers(np.asarray(x))
    if labels.ndim > 1 and labels.shape[-1] == 1:
        labels = labels[..., 0]
    if num_classes is None:
        if labels.size == 0:
            raise ArgumentError(
                "to_categorical: num_classes is required if x has no labels"
            )
        num_classes = int(labels.max()) + 1
    if labels.size and not (0 <= labels.min() and labels.max() < num_classes):
        raise OutOfRangeError(
            f"to_categorical: expected labels from 0 to {num_classes - 1}; received "
            f"labels from {labels.min()} to {labels.max()}"
        )
    return np.eye(num_classes)[labels]


def _one_hot(x: Any, num_classes: int | None) -> Tensor:
    if num_classes is None:
        raise ArgumentError("to_categorical: num_classes is required for a tensor")
    if len(x.shape) > 1 and x.shape[-1] == 1:
        x = ops.squeeze(x, -1)
    return ops.one_hot(ops.cast(x, "int32"), num_classes)


def _to_integers(x: Array) -> NDArray[np.int64]:
    """Return `x` as int64, if this is exact."""
    if x.dtype.kind not in "biuf":
        raise DTypeError(f"to_categorical: expected numbers; received dtype {x.dtype}")
    if x.dtype.kind == "f" and not np.array_equal(x, np.trunc(x)):
        raise ArgumentError(
            "to_categorical: expected whole numbers; received fractions"
        )
    return x.astype(np.int64)


def normalize(x: Any, axis: int = -1, order: float = 2) -> Any:
    """Divide `x` by its norm along `axis`; where the norm is 0, x is unchanged.

    Args:
        x: Numbers: (...).
        axis: The axis along which the norm is taken.
        order: The norm's order, as in `numpy.linalg.norm`: 2 is the Euclidean one.

    Returns:
        An array of x's shape; a tensor or a symbol for a tensor or a symbol.

    Example:
        >>> from toolkit.utils import normalize
        >>> normalize([[3.0, 4.0], [0.0, 0.0]])
        array([[0.6, 0.8],
               [0. , 0. ]])
    """
    if isinstance(x, (Tensor, KerasTensor)):
        norm = ops.norm(x, order, axis, keepdims=True)
        return ops.divide(x, ops.where(ops.equal(norm, 0), 1, norm))
    array = np.atleast_1d(np.asarray(x))
    norm = np.linalg.norm(array, order, axis, keepdims=True)
    return np.asarray(array / np.where(norm == 0, 1, norm))
