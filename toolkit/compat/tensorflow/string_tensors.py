"""Tensors of strings, and functions of each string in a tensor or in ragged rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.types import TensorShape, string
from toolkit.compat.tensorflow.views import DIALECT, convert
from toolkit.core import strings as core
from toolkit.errors import ShapeError


class StringTensor(core.StringTensor):
    """The core's strings with TensorFlow's dtype and shape.

    Args:
        values: a string, bytes, or nested lists or an array of them.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.constant(["a", "b"]).numpy()
        array([b'a', b'b'], dtype=object)
    """

    dtype = string
    dialect = DIALECT

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self._array.shape)

    def get_shape(self) -> TensorShape:
        """The extents."""
        return self.shape

    def __eq__(self, other: Any) -> Any:
        return compared(self, other, "==")

    def __ne__(self, other: Any) -> Any:
        return compared(self, other, "!=")

    __hash__ = core.StringTensor.__hash__

    def __radd__(self, other: Any) -> StringTensor:
        return StringTensor(array_of(other) + self._array)

    def __repr__(self) -> str:
        facts = f"shape={self.shape}, dtype={self.dtype}"
        return f"<tf.Tensor: {facts}, numpy={self.numpy()!r}>"

    def __str__(self) -> str:
        facts = f"shape={self.shape}, dtype={self.dtype}"
        return f"tf.Tensor({self.numpy()}, {facts})"


def as_strings(value: Any) -> StringTensor:
    """Strings as a StringTensor."""
    return value if isinstance(value, StringTensor) else StringTensor(value)


def compared(x: Any, y: Any, sign: str) -> Any:
    """Where strings are equal, or with the sign "!=" where they are not."""
    a, b = array_of(x), array_of(y)
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:
        raise ShapeError(
            f"{sign}: expected strings of shapes that go together; received {a.shape} "
            f"and {b.shape}"
        ) from None
    return convert(np.asarray(a == b if sign == "==" else a != b, bool))


def array_of(value: Any) -> Any:
    """Strings as an array of bytes."""
    return np.asarray(as_strings(value))


def one_string(value: Any, function: str) -> bytes:
    """A single string as bytes; errors name the function that expects it."""
    strings = as_strings(value)
    if strings.ndim:
        raise ShapeError(
            f"{function}: expected a single string; received strings of shape "
            f"{strings.shape}"
        )
    return strings.numpy()


def text_of(value: Any, function: str) -> str:
    """A single string as text; errors name the function that expects it."""
    return value if isinstance(value, str) else one_string(value, function).decode()


def objects(values: Any, shape: tuple[int, ...]) -> Any:
    """An array of these objects, of a shape."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def each(function: Callable[[bytes], Any], value: Any) -> Any:
    """An array of what a function makes of each string."""
    array = array_of(value)
    return objects([function(text) for text in array.ravel().tolist()], array.shape)


def mapped(
    function: Callable[[bytes], Any],
    value: Any,
    made: Callable[[Any], Any] = StringTensor,
) -> Any:
    """What a function makes of each string, in a tensor or in rows like those given.

    Args:
        function: takes bytes.
        value: strings or ragged rows of them.
        made: makes a tensor of an array of what the function returns.
    """
    if getattr(value, "is_composite", False):  # ragged rows
        flat = value.flat_values
        return value.with_flat_values(made(each(function, flat)))
    return made(each(function, value))
