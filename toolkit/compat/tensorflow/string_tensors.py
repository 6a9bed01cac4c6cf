"""Tensors of strings, and functions of each string in a tensor or in ragged rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.tensor_classes import DIALECT, convert
from toolkit.compat.tensorflow.types import TensorShape, string
from toolkit.core import strings as core
from toolkit.core.composites import Composite
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.type_aliases import Array, TensorLike


class StringTensor(core.StringTensor):
    """A tensor of strings with TensorFlow's dtype and shape.

    Args:
        values: a string, bytes, or nested lists or an array of strings.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.constant(["a", "b"]).numpy()
        array([b'a', b'b'], dtype=object)
    """

    dtype = string
    dialect = DIALECT

    @property
    def shape(self) -> TensorShape:
        return TensorShape(super().shape)

    def get_shape(self) -> TensorShape:
        """Return the extents."""
        return self.shape

    def __eq__(self, other: object) -> Any:
        return compare_strings(self, other, "==")

    def __ne__(self, other: object) -> Any:
        return compare_strings(self, other, "!=")

    __hash__ = core.StringTensor.__hash__

    def __radd__(self, other: Any) -> StringTensor:
        return StringTensor(to_bytes_array(other) + to_bytes_array(self))

    def __repr__(self) -> str:
        facts = f"shape={self.shape}, dtype={self.dtype}"
        return f"<tf.Tensor: {facts}, numpy={self.numpy()!r}>"

    def __str__(self) -> str:
        facts = f"shape={self.shape}, dtype={self.dtype}"
        return f"tf.Tensor({self.numpy()}, {facts})"


def as_strings(value: TensorLike) -> StringTensor:
    """Convert to a StringTensor."""
    return value if isinstance(value, StringTensor) else StringTensor(value)


def compare_strings(x: TensorLike, y: Any, sign: str) -> Tensor:
    """Compare strings for equality, or with the sign "!=" for inequality."""
    a, b = to_bytes_array(x), to_bytes_array(y)
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:
        raise ShapeError(
            f"{sign}: expected strings of compatible shapes; received {a.shape} and "
            f"{b.shape}"
        ) from None
    return convert(np.asarray(a == b if sign == "==" else a != b, bool))


def to_bytes_array(value: TensorLike) -> Any:
    """Convert strings to an array of bytes."""
    return np.asarray(as_strings(value))


def to_single_bytes(value: TensorLike, function: str) -> bytes:
    """Return a single string as bytes; errors contain the name of the function."""
    strings = as_strings(value)
    if strings.ndim:
        raise ShapeError(
            f"{function}: expected a single string; received strings of shape "
            f"{strings.shape}"
        )
    return strings.numpy()


def to_text(value: TensorLike, function: str) -> str:
    """Return a single string as text; errors contain the name of the function."""
    return (
        value if isinstance(value, str) else to_single_bytes(value, function).decode()
    )


def object_array(values: Any, shape: tuple[int, ...]) -> Any:
    """Create an object array with a shape."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def map_to_array(function: Callable[[bytes], Any], value: TensorLike) -> Array:
    """Apply a function to each string, and return an array."""
    array = to_bytes_array(value)
    return object_array(
        [function(text) for text in array.ravel().tolist()], array.shape
    )


def map_strings(
    function: Callable[[bytes], Any],
    value: Any,
    build: Callable[[Any], Any] = StringTensor,
) -> Any:
    """Apply a function to each string in a tensor or in ragged rows.

    Args:
        function: takes bytes.
        value: strings or ragged rows of strings.
        build: creates a tensor from an array of results.
    """
    if isinstance(value, Composite):
        rows: Any = value
        return rows.with_flat_values(build(map_to_array(function, rows.flat_values)))
    return build(map_to_array(function, value))
