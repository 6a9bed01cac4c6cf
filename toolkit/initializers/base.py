"""The base class of initializers."""

from __future__ import annotations

from typing import Any

from toolkit.arguments import Checked
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError


class Initializer(Checked):
    """Makes the first value of a weight: `initializer(shape, dtype)`.

    A subclass defines `__call__`, and `get_config` if its constructor takes arguments.

    Example:
        >>> import toolkit
        >>> class Halves(toolkit.initializers.Initializer):
        ...     def __call__(self, shape, dtype=None):
        ...         return toolkit.ops.full(shape, 0.5, dtype)
        >>> Halves()((2,)).numpy().tolist()
        [0.5, 0.5]
    """

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        """A tensor of `shape` and `dtype` (floatx if None)."""
        raise NotImplementedError(f"{type(self).__name__} does not define `__call__`")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments as plain values."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Initializer:
        """An initializer from what `get_config` returned."""
        return cls(**config)

    def clone(self) -> Initializer:
        """Another initializer with the same arguments."""
        return self.from_config(self.get_config())

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


def checked_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of integers; one with unknown extents cannot be filled."""
    try:
        return tuple(int(n) for n in shape)
    except TypeError:
        raise ArgumentError(
            f"initializer: expected a shape of known extents; received {shape!r}"
        ) from None
