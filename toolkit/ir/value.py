"""Spec and Value: what flows along the edges of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from toolkit import dtypes


class Spec:
    """The shape and dtype of a tensor, and how many elements it has.

    Immutable and hashable.
    """

    __slots__ = ("dtype", "shape", "size")

    def __init__(self, shape: Iterable[int], dtype: str) -> None:
        self.shape: tuple[int, ...] = tuple(shape)
        self.dtype: str = dtype
        self.size: int = prod(self.shape)  # asked for again and again by passes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * dtypes.itemsize(self.dtype)

    def with_shape(self, shape: Iterable[int]) -> Spec:
        """The same dtype with another shape."""
        return Spec(shape, self.dtype)

    def with_dtype(self, dtype: str) -> Spec:
        """The same shape with another dtype."""
        return Spec(self.shape, dtype)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Spec)
            and self.shape == other.shape
            and self.dtype == other.dtype
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Value:
    """What flows along the edges of a graph.

    A value is itself and no other, whatever its spec: what a pass knows of values is in
    dicts and sets of them. A `Tensor` is one that may have data and has operators; its
    `==` compares elements, so no list or tuple of values is searched by `in`.
    """

    __slots__ = ("__weakref__", "_is_open", "_origin", "_spec")
    _spec: Spec | None
    _origin: tuple[str, ...]  # set only inside a scope
    _is_open: bool  # set only of what follows from extents

    # Whether it may be stored in a narrower dtype; see `Narrow`.
    is_narrow = False

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    @property
    def spec(self) -> Spec:
        """Its shape and dtype."""
        return self._spec  # type: ignore[return-value]

    @property
    def constant(self) -> Any:
        """The array of a value known at compile time, else None."""
        return None

    @property
    def origin(self) -> tuple[str, ...]:
        """The name scopes, of layers say, that it was traced in."""
        return getattr(self, "_origin", ())

    @property
    def is_open(self) -> bool:
        """Whether it is a constant that would be another one for other extents."""
        return getattr(self, "_is_open", False)

    def __repr__(self) -> str:
        return f"<value {self.spec}>"


class Narrow(Value):
    """A value that the program rounds to a narrower dtype than a pass has given it.

    It may be stored in that.
    """

    __slots__ = ()

    is_narrow = True


class Constant(Value):
    """A value that the compiler knows.

    Args:
        array: its data, in host memory.
        is_open: whether the data would be others for other extents.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any, is_open: bool = False) -> None:
        super().__init__(Spec(array.shape, dtypes.NAMES[array.dtype]))
        self._array = array
        self._is_open = is_open

    @property
    def constant(self) -> Any:
        return self._array
