"""`tf.Tensor` and `tf.Variable` as subclasses of toolkit's classes.

They have TensorFlow's attributes: a Variable's `name` is its path, `numpy()` of a 0-d
tensor is a NumPy scalar, shapes have `as_list()`, and the printed form is TensorFlow's.
`DIALECT` registers them in the core. Its results have these classes if an operand has
them, or inside a function of this package. The core classes do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import index
from typing import Any

import numpy as np

from toolkit import ops, tree
from toolkit.compat.tensorflow.operators import install_operators
from toolkit.compat.tensorflow.types import ALL, DType, TensorShape
from toolkit.core import tensor as core
from toolkit.core.convert import convert as core_convert
from toolkit.core.dialects import Dialect, change_class, dtype_of
from toolkit.core.variable import Variable as CoreVariable
from toolkit.dtypes import is_integer
from toolkit.errors import ShapeError, UnknownTruthError
from toolkit.functions import function as functions
from toolkit.type_aliases import Shape, TensorLike


class Reference:
    """A hashable reference to a tensor, compared by identity."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def deref(self) -> Any:
        """Return the tensor."""
        return self._x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._x is other._x

    def __hash__(self) -> int:
        return hash(self._x)


class _AnyTensor(type):
    """Metaclass: core tensors are `tf.Tensor`s, too, for example in models with array
    inputs."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, core.Tensor)


class Tensor(core.Tensor, metaclass=_AnyTensor):
    """A tensor with TensorFlow's attributes; see `toolkit.Tensor`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> x = tf.constant([[1.0, 2.0]])
        >>> x.shape.as_list(), x.dtype, tf.reduce_sum(x)
        ([1, 2], tf.float32, <tf.Tensor: shape=(), dtype=float32, numpy=3.0>)
    """

    __slots__ = ()

    # Each operation reads shapes, so this is a fast path.
    @property
    def shape(self) -> TensorShape:
        return tuple.__new__(TensorShape, super().shape)

    @property
    def dtype(self) -> DType:
        return ALL[super().dtype]

    @property
    def device(self) -> str:
        """Return the device of the data, by TensorFlow's name."""
        return f"/job:localhost/replica:0/task:0/device:{super().device.upper()}"

    def numpy(self) -> Any:
        """Return the data as a NumPy array, or a NumPy scalar for a 0-d tensor."""
        return core.Tensor.numpy(self)[()]

    # --- operators that differ from NumPy
    # -----------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """Index as NumPy; as in TensorFlow, a list of indices means a tuple."""
        key = tuple(key) if type(key) is list else key
        return core.Tensor.__getitem__(self, key)

    def __eq__(self, other: object) -> Any:
        return _compare(core.Tensor.__eq__, self, other, False)

    def __ne__(self, other: object) -> Any:
        return _compare(core.Tensor.__ne__, self, other, True)

    __hash__ = core.Tensor.__hash__

    def get_shape(self) -> TensorShape:
        """Return the extents."""
        return self.shape

    def set_shape(self, shape: Shape) -> None:
        """Check the shape, which is static: None matches any extent."""
        self.shape.assert_is_compatible_with(shape)

    def ref(self) -> Reference:
        """Return a hashable reference to the tensor."""
        return Reference(self)

    def __bool__(self) -> bool:
        value = self.static_value()
        if value is None:
            raise UnknownTruthError(
                f"a tensor of shape {self.shape} and dtype {self.dtype} has no value "
                "inside a traced function: use tf.cond, tf.while_loop or tf.where "
                "instead of Python's `if`, `while`, `and`, `or` and `not`"
            )
        return bool(value)

    def __index__(self) -> int:
        return index(self.numpy())

    def __iter__(self) -> Iterator[Any]:
        """Iterate over rows; static integers, such as a range, have static rows."""
        array = self.static_value() if is_integer(dtype_of(self)) else None
        if array is not None and array.ndim:
            return (Tensor(np.asarray(row)) for row in array)
        return core.Tensor.__iter__(self)

    # --- printed form -----------------------------------------------------------------

    def __repr__(self) -> str:
        if self.constant is None:
            return core.Tensor.__repr__(self)
        return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype}, {_shown(self)}>"

    def __str__(self) -> str:
        if self.constant is None:
            return core.Tensor.__repr__(self)
        values = str(self.numpy())
        between = "\n" if "\n" in values else ""
        return f"tf.Tensor({between}{values}, shape={self.shape}, dtype={self.dtype})"

    def __format__(self, spec: str) -> str:
        if self.constant is None:
            return core.Tensor.__repr__(self)
        return format(self.numpy(), spec)


def _compare(compare: Any, x: TensorLike, y: Any, otherwise: bool) -> Tensor:
    """Return the comparison, or `otherwise` if the shapes do not broadcast."""
    try:
        return compare(x, y)
    except ShapeError:
        return Tensor(np.asarray(otherwise))


def _shown(x: Any) -> str:
    array = x.numpy()
    shown = repr(array) if array.ndim else str(array)
    return "numpy=" + ("\n" if "\n" in shown else "") + shown


class Value(Tensor):
    """The tensor of a Variable: `v.value` in Keras, `v.value()` in TensorFlow."""

    __slots__ = ()

    def __call__(self) -> Tensor:
        """Return the tensor."""
        return self


class Part(Tensor):
    """A slice of a Variable, which can be assigned."""

    __slots__ = ()

    def assign(self, value: Any) -> Any:
        """Replace this slice of the Variable; return the Variable.

        Args:
            value: broadcasts to the shape of the slice.
        """
        variable, key = self.dialect_data  # set by Variable.__getitem__
        old = variable.read()
        with DIALECT.activate():
            offsets = core_convert(
                np.arange(old.size, dtype="int32").reshape(old.shape)
            )
            offsets = ops.reshape(ops.get_item(offsets, key), (-1, 1))
            value = core_convert(value, dtype_of(old))
            if value.ndim > self.ndim:  # leading axes of one element
                value = ops.reshape(value, value.shape[value.ndim - self.ndim :])
            value = ops.reshape(ops.broadcast_to(value, self.shape), (-1,))
            new = ops.scatter_update(ops.reshape(old, (-1,)), offsets, value)
            return variable.assign(ops.reshape(new, old.shape))


class Variable(CoreVariable):
    """A Variable with TensorFlow's attributes, for example of a layer."""

    @property
    def value(self) -> Any:
        """Return the current tensor; a call of it returns the same tensor."""
        tensor = CoreVariable.value.fget(self)  # type: ignore[attr-defined]
        if type(tensor) is Tensor:
            change_class(tensor, Value)
        return tensor

    @property
    def name(self) -> str:
        """Return `path:0`, as TensorFlow; the stored name does not change."""
        members = self.__dict__  # without a path during construction
        return f"{members['path']}:0" if "path" in members else members["name"]

    @name.setter
    def name(self, name: str) -> None:
        self.__dict__["name"] = name

    @property
    def shape(self) -> TensorShape:
        return TensorShape(super().shape)

    @property
    def dtype(self) -> DType:
        return ALL[super().dtype]

    def __getitem__(self, key: Any) -> Tensor:
        """Index the value."""
        return self.value[key]

    def __eq__(self, other: object) -> Any:
        return _compare(CoreVariable.__eq__, self, other, False)

    def __ne__(self, other: object) -> Any:
        return _compare(CoreVariable.__ne__, self, other, True)

    __hash__ = CoreVariable.__hash__

    def get_shape(self) -> TensorShape:
        """Return the extents."""
        return self.shape

    def ref(self) -> Reference:
        """Return a hashable reference to the Variable."""
        return Reference(self)

    def read_value(self) -> Any:
        """Return the current tensor."""
        return wrap_tensors(self.read())

    def assign(self, value: Any) -> Tensor:
        """Replace the value; return the new one."""
        with DIALECT.activate():
            return wrap_tensors(super().assign(value))

    def assign_add(self, value: Any) -> Any:
        """Add to the value; return the new one."""
        with DIALECT.activate():
            return super().assign_add(value)

    def assign_sub(self, value: Any) -> Any:
        """Subtract from the value; return the new one."""
        with DIALECT.activate():
            return super().assign_sub(value)

    def __repr__(self) -> str:
        facts = f"shape={self.shape} dtype={self.dtype}"
        return f"<tf.Variable '{self.name}' {facts}, {_shown(self)}>"


for _kind in (Tensor, Variable):
    install_operators(_kind)


DIALECT = Dialect(Tensor, Variable)
Tensor.dialect = Variable.dialect = DIALECT
wrap_tensors: Callable[[Any], Any] = DIALECT.wrap


def convert(x: Any, dtype: str | None = None) -> Any:
    """Convert `x` to a `tf.Tensor`, cast to `dtype` if that is given.

    A NumPy scalar keeps its dtype, also float64, whose class is a `float`.
    """
    if type(x) is not np.ndarray:
        x = scalars_to_array(x)
    return wrap_tensors(core_convert(x, dtype))


def scalars_to_array(x: Any) -> Any:
    """Convert a NumPy scalar, or a list that starts with one, to an array.

    The array has TensorFlow's dtype, which depends on the first number of a list:
    integers are int32 if they fit. Any other value is unchanged.
    """
    if isinstance(x, np.generic):
        return np.asarray(x)
    first = x
    while type(first) in (list, tuple) and first:
        first = first[0]
    if first is x or not isinstance(first, np.generic):
        return x
    leaves = tree.flatten(x)
    if not all(isinstance(leaf, (np.generic, *_PYTHONS)) for leaf in leaves):
        return x
    return _array(x, first.dtype)


_PYTHONS = (bool, int, float, complex)


def _array(values: TensorLike, dtype: np.dtype[Any]) -> Any:
    """Convert lists to an array with a dtype of this kind, or return them unchanged."""
    try:
        array = np.array(values)
    except ValueError:  # ragged lists, which raise an error at their conversion
        return values
    if dtype.kind not in "iu":
        return array.astype(dtype) if array.dtype.kind not in "OSU" else values
    if array.dtype.kind == "f":
        return array.astype("float32")
    for name in ("int32", "int64") if array.dtype.kind in "iub" else ():
        limits = np.iinfo(name)
        if not array.size or limits.min <= array.min() and array.max() <= limits.max:
            return array.astype(name)
    return values


class Function(functions.Function):
    """A function whose traces contain `tf.Tensor`s."""

    dialect = DIALECT
    fast_types: frozenset[type] = functions.Function.fast_types | {Tensor, Value}
