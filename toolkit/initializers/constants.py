"""Initializers without randomness."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes, ops
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.initializers.base import Initializer, checked_shape
from toolkit.serialization import deserialize_keras_object, serialize_keras_object
from toolkit.type_aliases import DTypeLike, Shape, TensorLike


class Constant(Initializer):
    """Initializer that fills a weight with one value.

    Args:
        value: a number, or an array that broadcasts to the weight's shape.

    Example:
        >>> from toolkit import initializers
        >>> initializers.Constant(2.0)((3,)).tolist()
        [2.0, 2.0, 2.0]
    """

    def __init__(self, value: TensorLike = 0.0) -> None:
        self.value = value

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        value = convert(self.value, dtypes.standardize(dtype))
        return ops.broadcast_to(value, checked_shape(shape))

    def get_config(self) -> dict[str, Any]:
        return {"value": serialize_keras_object(self.value)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Constant:
        return cls(deserialize_keras_object(config["value"]))


class Zeros(Initializer):
    """Initializer that returns zeros.

    Example:
        >>> from toolkit import initializers
        >>> initializers.Zeros()((3,)).tolist()
        [0.0, 0.0, 0.0]
    """

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        return ops.zeros(checked_shape(shape), dtype)


class Ones(Initializer):
    """Initializer that returns ones.

    Example:
        >>> from toolkit import initializers
        >>> initializers.Ones()((3,)).tolist()
        [1.0, 1.0, 1.0]
    """

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        return ops.ones(checked_shape(shape), dtype)


class Identity(Initializer):
    """Initializer that returns `gain` times the identity matrix.

    Args:
        gain: the value on the diagonal.

    Example:
        >>> from toolkit import initializers
        >>> initializers.Identity(gain=2.0)((2, 2)).tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        shape = checked_shape(shape)
        if len(shape) != 2:
            raise ShapeError(f"Identity: expected a shape of 2 axes; received {shape}")
        name = dtypes.standardize(dtype)
        return convert(self.gain, name) * ops.eye(shape[0], shape[1], dtype=name)

    def get_config(self) -> dict[str, Any]:
        return {"gain": self.gain}
