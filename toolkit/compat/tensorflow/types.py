"""TensorFlow's dtypes and shapes: strings and tuples with additional attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.errors import ArgumentTypeError, DTypeError, ShapeError, UnsupportedError


class DType(str):
    """A dtype: its name, with TensorFlow's attributes.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.float32.name, tf.float32 == "float32", tf.float32.is_floating
        ('float32', True, True)
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        return str.__str__(self)

    @property
    def base_dtype(self) -> DType:
        return self

    @property
    def real_dtype(self) -> DType:
        return as_dtype(dtypes.real_type(self.name))

    @property
    def as_numpy_dtype(self) -> Any:
        return object if self == dtypes.STRING else dtypes.numpy_dtype(self.name).type

    @property
    def is_bool(self) -> bool:
        return self == "bool"

    @property
    def is_floating(self) -> bool:
        return dtypes.is_float(self)

    @property
    def is_integer(self) -> bool:
        return dtypes.is_integer(self)

    @property
    def is_unsigned(self) -> bool:
        return self.startswith("uint")

    @property
    def is_complex(self) -> bool:
        return dtypes.is_complex(self)

    @property
    def is_numpy_compatible(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return dtypes.itemsize(self.name)

    @property
    def min(self) -> Any:
        return -self.max if self.is_floating else dtypes.lowest(self.name)

    @property
    def max(self) -> Any:
        if self.is_floating:
            return dtypes.largest(self.name)
        return dtypes.highest(self.name)

    @property
    def limits(self) -> tuple[Any, Any]:
        return self.min, self.max

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is this dtype's name, or the same dtype of NumPy.

        Python types are not equal: `float` is compatible with any floating dtype.
        """
        if isinstance(other, str):
            return str.__eq__(self, other)
        is_type = isinstance(other, type) and issubclass(other, np.generic)
        if not is_type and not isinstance(other, np.dtype):
            return False
        try:
            return str.__eq__(self, dtypes.standardize(other))
        except DTypeError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def is_compatible_with(self, other: object) -> bool:
        """Return whether `other` is the same dtype."""
        return self == as_dtype(other)

    def __str__(self) -> str:
        return str.__str__(self)

    def __repr__(self) -> str:
        return f"tf.{self.name}"


ALL = {name: DType(name) for name in (*dtypes.DTYPES, dtypes.STRING)}

bfloat16: DType = ALL["bfloat16"]
float16: DType = ALL["float16"]
float32: DType = ALL["float32"]
float64: DType = ALL["float64"]
int8: DType = ALL["int8"]
int16: DType = ALL["int16"]
int32: DType = ALL["int32"]
int64: DType = ALL["int64"]
uint8: DType = ALL["uint8"]
uint16: DType = ALL["uint16"]
uint32: DType = ALL["uint32"]
uint64: DType = ALL["uint64"]
complex64: DType = ALL["complex64"]
complex128: DType = ALL["complex128"]
half: DType = float16
double: DType = float64
string: DType = ALL[dtypes.STRING]
# this file uses the built-in `bool`
boolean: DType = ALL["bool"]


_OF_PYTHON = {
    bool: boolean,
    int: int64,
    float: float32,
    complex: complex128,
    str: string,
    object: string,
}


def as_dtype(type_value: Any) -> DType:
    """Return the dtype for a name, a Python type, or a dtype of NumPy.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.as_dtype(float), tf.as_dtype(int)
        (tf.float32, tf.int64)
    """
    if type_value in _OF_PYTHON and isinstance(type_value, type):
        return _OF_PYTHON[type_value]
    return ALL[dtypes.standardize(type_value)]


class TensorShape(tuple[Any, ...]):
    """The extents of a tensor, None if dynamic: a tuple with TensorFlow's methods.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.TensorShape([2, None]).as_list(), tf.Variable([3.0]).shape.rank
        ([2, None], 1)
    """

    __slots__ = ()

    def __new__(cls, dims: Iterable[int | None] | int | None) -> TensorShape:
        if dims is None:
            raise UnsupportedError(
                "TensorShape: a shape of unknown rank is not supported; use None for "
                "each unknown extent"
            )
        dims = (dims,) if isinstance(dims, int) else dims
        try:
            return tuple.__new__(cls, (n if n is None else int(n) for n in dims))
        except ValueError:
            raise ArgumentTypeError(
                f"TensorShape: expected integers or None; received {dims!r}"
            ) from None

    def __getitem__(self, key: Any) -> Any:
        result = tuple.__getitem__(self, key)
        return TensorShape(result) if isinstance(key, slice) else result

    @property
    def rank(self) -> int:
        return len(self)

    ndims = rank

    @property
    def dims(self) -> list[int | None]:
        return list(self)

    def as_list(self) -> list[int | None]:
        """Return the extents as a list."""
        return list(self)

    def is_fully_defined(self) -> bool:
        """Return whether all extents are static."""
        return None not in self

    def num_elements(self) -> int | None:
        """Return the product of the extents; None if one is dynamic."""
        return int(np.prod(self, dtype=int)) if self.is_fully_defined() else None

    def is_compatible_with(self, other: Any) -> bool:
        """Return whether the extents that are static in both shapes are equal."""
        other = TensorShape(other)
        return len(self) == len(other) and all(
            m == n or None in (m, n) for m, n in zip(self, other, strict=True)
        )

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise a ShapeError unless the extents that are static in both shapes are
        equal."""
        if not self.is_compatible_with(other):
            raise ShapeError(f"Shapes {self} and {other} are incompatible")

    def merge_with(self, other: Any) -> TensorShape:
        """Return the extents that are static in either shape.

        Raises:
            ShapeError: static extents differ.
        """
        self.assert_is_compatible_with(other)
        pairs = zip(self, TensorShape(other), strict=True)
        return TensorShape([n if m is None else m for m, n in pairs])

    def with_rank(self, rank: int) -> TensorShape:
        """Return the shape.

        Raises:
            ShapeError: it has another number of axes.
        """
        if len(self) != rank:
            raise ShapeError(f"Shape {self} must have rank {rank}")
        return self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """Return the shape.

        Raises:
            ShapeError: it has fewer axes.
        """
        if len(self) < rank:
            raise ShapeError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """Return the shape.

        Raises:
            ShapeError: it has more axes.
        """
        if len(self) > rank:
            raise ShapeError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raise a ShapeError unless there is this number of axes."""
        self.with_rank(rank)

    def assert_is_fully_defined(self) -> None:
        """Raise a ShapeError unless all extents are static."""
        if not self.is_fully_defined():
            raise ShapeError(f"Shape {self} is not fully defined")

    def concatenate(self, other: Any) -> TensorShape:
        """Concatenate the extents of two shapes."""
        return TensorShape((*self, *TensorShape(other)))

    def __str__(self) -> str:
        return tuple.__repr__(self)

    def __repr__(self) -> str:
        return f"TensorShape({list(self)})"
