"""The base class of initializers."""

from __future__ import annotations

from typing import Any

from toolkit.arguments import Checked
from toolkit.core.tensor import Tensor
from toolkit.definitions.representations import config_repr
from toolkit.errors import ArgumentError
from toolkit.type_aliases import DTypeLike, Shape


class Initializer(Checked):
    """An initializer computes the first value of a weight: `initializer(shape, dtype)`.

    A subclass defines `__call__`, and `get_config` if its constructor takes arguments.

    Example:
        >>> import toolkit
        >>> class Halves(toolkit.initializers.Initializer):
        ...     def __call__(self, shape, dtype=None):
        ...         return toolkit.ops.full(shape, 0.5, dtype)
        >>> Halves()((2,)).numpy().tolist()
        [0.5, 0.5]
    """

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        """Return a tensor of `shape` and `dtype` (floatx if None).

        Args:
            shape: the shape of the weight.
            dtype: its dtype.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define `__call__`")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain values."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Initializer:
        """Build an initializer from the result of `get_config`.

        Args:
            config: the result of `get_config`.

        Returns:
            The initializer.
        """
        return cls(**config)

    def clone(self) -> Initializer:
        """Return a new initializer with the same arguments."""
        return self.from_config(self.get_config())

    def __repr__(self) -> str:
        return config_repr(self)


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of integers; raise if an extent is unknown."""
    try:
        return tuple(int(n) for n in shape)
    except TypeError:
        raise ArgumentError(
            f"initializer: expected a shape with known extents; received {shape!r}"
        ) from None
