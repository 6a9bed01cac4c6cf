"""Spec and Value: the edges of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from toolkit import dtypes
from toolkit.ir.extents import Extent, are_always, shape_key


class Spec:
    """The shape, dtype and number of elements of a tensor.

    Immutable and hashable.
    """

    __slots__ = ("dtype", "shape", "size")

    def __init__(self, shape: Iterable[int], dtype: str) -> None:
        self.shape: tuple[int, ...] = tuple(shape)
        self.dtype: str = dtype
        self.size: int = prod(self.shape)  # cached, because passes read it often

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * dtypes.itemsize(self.dtype)

    def with_shape(self, shape: Iterable[int]) -> Spec:
        """Return the same dtype with another shape."""
        return Spec(shape, self.dtype)

    def with_dtype(self, dtype: str) -> Spec:
        """Return the same shape with another dtype."""
        return Spec(self.shape, dtype)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Spec)
            and self.dtype == other.dtype
            and len(self.shape) == len(other.shape)
            and self.shape == other.shape
        )

    def is_always(self, other: Spec) -> bool:
        """Return whether it equals another spec for all values of free extents."""
        return self.dtype == other.dtype and are_always(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((shape_key(self.shape), self.dtype))

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Value:
    """An edge of a graph: an input, a constant, or a result of a node.

    Values are compared by identity, whatever their specs are: passes store facts about
    values in dicts and sets. A `Tensor` is a value that may have data and has
    operators. Its `==` compares elements, so do not use `in` on a list or tuple of
    values.
    """

    __slots__ = ("__weakref__", "_extent", "_is_open", "_origin", "_spec")
    _spec: Spec | None
    _origin: tuple[str, ...]  # set only inside a scope
    _is_open: bool  # set only for values that depend on extents
    _extent: Extent  # set only for numbers that are computed from free extents

    # Whether a narrower dtype may be used for storage; see `Narrow`.
    is_narrow = False

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    @property
    def spec(self) -> Spec:
        """Return its shape and dtype."""
        return self._spec  # type: ignore[return-value]

    @property
    def constant(self) -> Any:
        """Return the array of a value known at compile time, else None."""
        return None

    @property
    def origin(self) -> tuple[str, ...]:
        """Return the name scopes of its trace, for example of layers."""
        return getattr(self, "_origin", ())

    @property
    def is_open(self) -> bool:
        """Return whether it is a constant whose data depends on the traced extents."""
        return getattr(self, "_is_open", False)

    @property
    def extent(self) -> Extent | None:
        """Return the extent that a constant contains, if it is a free one."""
        return getattr(self, "_extent", None)

    def __repr__(self) -> str:
        return f"<value {self.spec}>"


class Narrow(Value):
    """A value that a pass widened, and that the program rounds to its old dtype.

    Its storage may have the narrower dtype.
    """

    __slots__ = ()

    is_narrow = True


class Constant(Value):
    """A value that is known at compile time.

    Args:
        array: its data, in host memory.
        is_open: whether the data depends on the traced extents.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any, is_open: bool = False) -> None:
        super().__init__(Spec(array.shape, dtypes.NAMES[array.dtype]))
        self._array = array
        self._is_open = is_open

    @property
    def constant(self) -> Any:
        return self._array
