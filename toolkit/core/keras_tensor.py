"""KerasTensor: a symbolic tensor without data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from toolkit import dtypes, tree
from toolkit.core.naming import auto_name
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import TensorLike


class KerasHistory(NamedTuple):
    """The node that a KerasTensor is an output of."""

    operation: Any
    node_index: int
    tensor_index: int


class _ReadOnlyAttribute(property):
    """Attribute that the constructor sets once, under `_name`."""

    def __init__(self, description: str) -> None:
        super().__init__()
        self.__doc__ = description

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, symbol: Any, owner: Any = None) -> Any:
        return self if symbol is None else symbol.__dict__["_" + self.name]

    def __set__(self, symbol: Any, value: Any) -> None:
        raise AttributeError(
            f"The `{self.name}` attribute of KerasTensor is immutable."
        )


class KerasTensor:
    """A symbol: the shape and dtype of a future input of a model.

    Args:
        shape: extents; None where unknown.
        dtype: the dtype's name.
        sparse: only False; toolkit has no sparse tensors.
        ragged: only False.
        record_history: whether a functional model may be built from it.
        name: generated if not given.

    Example:
        >>> import toolkit
        >>> x = toolkit.KerasTensor((None, 3))
        >>> (2 * x).shape, x.ndim
        ((None, 3), 2)
    """

    if TYPE_CHECKING:  # `toolkit.ops` installs the operators

        def __add__(self, other: object) -> KerasTensor: ...
        def __radd__(self, other: object) -> KerasTensor: ...
        def __sub__(self, other: object) -> KerasTensor: ...
        def __rsub__(self, other: object) -> KerasTensor: ...
        def __mul__(self, other: object) -> KerasTensor: ...
        def __rmul__(self, other: object) -> KerasTensor: ...
        def __truediv__(self, other: object) -> KerasTensor: ...
        def __rtruediv__(self, other: object) -> KerasTensor: ...
        def __floordiv__(self, other: object) -> KerasTensor: ...
        def __mod__(self, other: object) -> KerasTensor: ...
        def __pow__(self, other: object) -> KerasTensor: ...
        def __rpow__(self, other: object) -> KerasTensor: ...
        def __matmul__(self, other: object) -> KerasTensor: ...
        def __rmatmul__(self, other: object) -> KerasTensor: ...
        def __and__(self, other: object) -> KerasTensor: ...
        def __or__(self, other: object) -> KerasTensor: ...
        def __xor__(self, other: object) -> KerasTensor: ...
        def __lt__(self, other: object) -> KerasTensor: ...
        def __le__(self, other: object) -> KerasTensor: ...
        def __gt__(self, other: object) -> KerasTensor: ...
        def __ge__(self, other: object) -> KerasTensor: ...
        def __getitem__(self, key: object) -> KerasTensor: ...
        def __neg__(self) -> KerasTensor: ...
        def __abs__(self) -> KerasTensor: ...

    __array_priority__ = 2000
    # Receives calls with this symbol, by `add(node)`; a compatibility layer sets it.
    graph: Any = None

    def __init__(
        self,
        shape: Any,
        dtype: Any = "float32",
        sparse: bool = False,
        ragged: bool = False,
        record_history: bool = True,
        name: str | None = None,
    ) -> None:
        if sparse and ragged:
            raise ArgumentError(
                "KerasTensor: a symbol cannot have `sparse=True` and `ragged=True`"
            )
        if sparse or ragged:
            raise ArgumentError(
                "KerasTensor: sparse and ragged tensors are unsupported"
            )
        self._shape: tuple[int | None, ...] = standardize_shape(shape)
        self._dtype = dtypes.standardize(dtype)
        self._sparse = self._ragged = False
        self.record_history = record_history
        self.name: str = name or auto_name("keras_tensor")
        self._keras_history: KerasHistory | None = None
        self._keras_mask: Any = None

    shape: Any = _ReadOnlyAttribute("Return the extents; None where unknown.")
    dtype: Any = _ReadOnlyAttribute("Return the name of the dtype.")
    sparse: Any = _ReadOnlyAttribute("Return False: there are no sparse tensors.")
    ragged: Any = _ReadOnlyAttribute("Return False: there are no ragged tensors.")

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int | None:
        """Return the number of elements, or None if an extent is unknown."""
        return None if None in self.shape else int(np.prod(self.shape))

    def __len__(self) -> int:
        if not self.shape or self.shape[0] is None:
            raise TypeError(f"len() of a symbol of shape {self.shape}")
        return self.shape[0]

    def __iter__(self) -> Any:
        raise NotImplementedError(
            "a KerasTensor cannot be iterated over; index or split it"
        )

    def __bool__(self) -> bool:
        raise TypeError(
            "a KerasTensor has no value and cannot be used as a boolean. Use ops.where "
            "or ops.cond"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise ArgumentError(
            f"a KerasTensor of shape {self.shape} doesn't have any actual numerical "
            "value; use a function of toolkit.ops instead of a NumPy function"
        )

    __float__: Any = __array__
    __int__: Any = __array__
    __index__: Any = __array__

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self.shape}, dtype={self.dtype}, name={self.name}>"


def set_shape(symbol: KerasTensor, shape: tuple[int | None, ...]) -> None:
    """Replace the shape of a symbol, after a more precise inference of its extents."""
    symbol._shape = shape


def standardize_shape(shape: Any) -> tuple[int | None, ...]:
    """Return a shape as a checked tuple of ints and Nones."""
    try:
        extents = tuple(None if n is None else int(n) for n in shape)
    except TypeError:
        raise ShapeError(f"shape: expected a sequence; received {shape!r}") from None
    if any(n is not None and n < 0 for n in extents):
        raise ShapeError(f"shape: extents must be >= 0; received {shape!r}")
    return extents


def is_symbolic(x: TensorLike) -> bool:
    """Return whether x is a KerasTensor."""
    return isinstance(x, KerasTensor)


def any_symbolic(*structures: Any) -> bool:
    """Return whether any leaf is a KerasTensor."""
    for x in structures:
        if isinstance(x, KerasTensor):
            return True
        if tree.is_nested(x):
            if any_symbolic(*(x.values() if isinstance(x, dict) else x)):
                return True
    return False
