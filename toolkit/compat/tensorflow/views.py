"""`tf.Tensor`, and Variables as TensorFlow shows them: subclasses of the core's.

They answer what TensorFlow's do: a Variable's `name` is its path, `numpy()` of a 0-d
tensor is a number of NumPy's, shapes have `as_list()`, and what is printed looks as
there. `DIALECT` names them to the core, which makes results of them where it computes
with such tensors, or inside of a function of this package; its own classes stay as
they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import Any

import numpy as np

from toolkit import ops, tree
from toolkit.autodiff.tape import alias
from toolkit.compat.tensorflow.operators import install_operators
from toolkit.compat.tensorflow.types import ALL, DType, TensorShape
from toolkit.core import tensor as core
from toolkit.core.convert import convert as core_convert
from toolkit.core.dialects import Dialect
from toolkit.core.tensor import state
from toolkit.core.variable import Variable as CoreVariable
from toolkit.dtypes import is_integer
from toolkit.errors import ShapeError, UnknownTruthError
from toolkit.functions import function as functions


class Reference:
    """A tensor as a key: compared by identity."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def deref(self) -> Any:
        """The tensor."""
        return self._x

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Reference) and self._x is other._x

    def __hash__(self) -> int:
        return hash(self._x)


class _AnyTensor(type):
    """The core's tensors are `tf.Tensor`s too: those of models that get arrays, say."""

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

    # Each operation asks for shapes: they go by the shortest way.
    @property
    def shape(self) -> TensorShape:
        array = self._array
        found = (self.spec if array is None else array).shape
        return tuple.__new__(TensorShape, found)

    @property
    def dtype(self) -> DType:
        return ALL[self._dtype]

    @property
    def device(self) -> str:
        """Where the data is, by TensorFlow's name of the device."""
        return _device_name(self)

    def numpy(self) -> Any:
        """The data as a NumPy array, those of a 0-d tensor as a number of NumPy's."""
        return core.Tensor.numpy(self)[()]

    # --- operators that differ from NumPy's -------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """As in NumPy; a list of indices stands for a tuple of them, as there."""
        key = tuple(key) if type(key) is list else key
        return core.Tensor.__getitem__(self, key)

    def __eq__(self, other: Any) -> Any:
        return _compared(core.Tensor.__eq__, self, other, False)

    def __ne__(self, other: Any) -> Any:
        return _compared(core.Tensor.__ne__, self, other, True)

    __hash__ = core.Tensor.__hash__

    def get_shape(self) -> TensorShape:
        """The extents."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Check the shape, which is known: None and wrong extents are told apart."""
        self.shape.assert_is_compatible_with(shape)

    def ref(self) -> Reference:
        """What stands for it as a key of a dictionary."""
        return Reference(self)

    def __bool__(self) -> bool:
        value = self.known()
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
        """The rows; of integers that a trace knows, such as a range, known ones."""
        array = self.known() if is_integer(self._dtype) else None
        if array is not None and array.ndim:
            return (Tensor(np.asarray(row)) for row in array)
        return core.Tensor.__iter__(self)

    # --- how it prints ----------------------------------------------------------------

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


def _compared(compare: Any, x: Any, y: Any, otherwise: bool) -> Any:
    """What a comparison says, and False or True if the shapes do not go together."""
    try:
        return compare(x, y)
    except ShapeError:
        return Tensor(np.asarray(otherwise))


def _device_name(x: core.Tensor) -> str:
    device = vars(core.Tensor)["device"].fget(x)
    return f"/job:localhost/replica:0/task:0/device:{device.upper()}"


def _shown(x: Any) -> str:
    array = x.numpy()
    shown = repr(array) if array.ndim else str(array)
    return "numpy=" + ("\n" if "\n" in shown else "") + shown


class Value(Tensor):
    """What a Variable holds: `v.value` to Keras, `v.value()` to TensorFlow."""

    __slots__ = ()

    def __call__(self) -> Tensor:
        """The tensor itself."""
        return self


class Part(Tensor):
    """What was taken from a Variable by indices: that part of it can be assigned."""

    __slots__ = ()
    _part: Any  # the Variable, and the indices; a slot of the core's class

    def assign(self, value: Any) -> Any:
        """Replace that part of the Variable; returns the Variable.

        Args:
            value: what broadcasts to the shape of the part.
        """
        variable, key = self._part
        old = variable.read()
        with DIALECT.inside():
            places = core_convert(np.arange(old.size, dtype="int32").reshape(old.shape))
            places = ops.reshape(ops.get_item(places, key), (-1, 1))
            value = core_convert(value, old._dtype)
            if value.ndim > self.ndim:  # axes of one element in front
                value = ops.reshape(value, value.shape[value.ndim - self.ndim :])
            value = ops.reshape(ops.broadcast_to(value, self.shape), (-1,))
            new = ops.scatter_update(ops.reshape(old, (-1,)), places, value)
            return variable.assign(ops.reshape(new, old.shape))


class Variable(CoreVariable):
    """A Variable with TensorFlow's attributes, one of a layer say."""

    @property
    def value(self) -> Any:
        """The tensor that it holds now; to call that changes nothing."""
        tensor = CoreVariable.value.fget(self)  # type: ignore[attr-defined]
        if type(tensor) is Tensor:
            tensor.__class__ = Value
        return tensor

    @property
    def name(self) -> str:
        """`path:0`, as TensorFlow prints it; the name itself is kept as it was."""
        members = self.__dict__  # without a path while it is being made
        return f"{members['path']}:0" if "path" in members else members["name"]

    @name.setter
    def name(self, name: str) -> None:
        self.__dict__["name"] = name

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self._tensor.shape)

    @property
    def dtype(self) -> DType:
        return ALL[super().dtype]

    @property
    def device(self) -> str:
        """Where the value is, by TensorFlow's name of the device."""
        return _device_name(self._tensor)

    def __getitem__(self, key: Any) -> Any:
        """As of its value."""
        return self.value[key]

    def __eq__(self, other: Any) -> Any:
        return _compared(CoreVariable.__eq__, self, other, False)

    def __ne__(self, other: Any) -> Any:
        return _compared(CoreVariable.__ne__, self, other, True)

    __hash__ = CoreVariable.__hash__

    def get_shape(self) -> TensorShape:
        """The extents."""
        return self.shape

    def ref(self) -> Reference:
        """What stands for it as a key of a dictionary."""
        return Reference(self)

    def read_value(self) -> Any:
        """The tensor that it holds now."""
        return viewed(self.read())

    def assign(self, value: Any) -> Any:
        """Replace the value; returns the new one."""
        with DIALECT.inside():
            return viewed(super().assign(value))

    def assign_add(self, value: Any) -> Any:
        """Add to the value; returns the new one."""
        with DIALECT.inside():
            return super().assign_add(value)

    def assign_sub(self, value: Any) -> Any:
        """Subtract from the value; returns the new one."""
        with DIALECT.inside():
            return super().assign_sub(value)

    def __repr__(self) -> str:
        facts = f"shape={self.shape} dtype={self.dtype}"
        return f"<tf.Variable '{self.name}' {facts}, {_shown(self)}>"


for _kind in (Tensor, Variable):
    install_operators(_kind)


def viewed(found: Any) -> Any:
    """A result with `tf.Tensor`s for the core's tensors in it."""
    if type(found) is core.Tensor:
        return _view(found)
    if isinstance(found, (list, tuple, dict)):
        return tree.map_structure(
            lambda x: _view(x) if type(x) is core.Tensor else x, found
        )
    return found


def _view(x: core.Tensor) -> core.Tensor:
    """The same value as a tensor of its own; tapes and traces know where it is from."""
    if state.tapes or x._array is None:
        with DIALECT.inside():
            new = alias(x)
    else:
        new = Tensor(x._array, x._spec)
    if hasattr(x, "_keras_mask"):
        new._keras_mask = x._keras_mask
    return new


DIALECT = Dialect(Tensor, Variable, viewed)
Tensor.dialect = Variable.dialect = DIALECT


def convert(x: Any, dtype: str | None = None) -> Any:
    """`x` as a `tf.Tensor`, cast to `dtype` if that is given.

    A number of NumPy's has its own dtype, also float64, whose class is a `float`.
    """
    if type(x) is not np.ndarray:
        x = numbers(x)
    return viewed(core_convert(x, dtype))


def numbers(x: Any) -> Any:
    """An array for a number of NumPy's, or for a list that begins with one.

    The array has the dtype that TensorFlow gives it, where the first number in a list
    decides: integers are int32 if they fit. Anything else is returned as it is.
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


def _array(values: Any, dtype: np.dtype[Any]) -> Any:
    """Lists as an array of what is like a dtype; as they are if it cannot be."""
    try:
        array = np.array(values)
    except ValueError:  # of different lengths, which is told where they are converted
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
    """A function whose traces are of `tf.Tensor`s."""

    quick_types: frozenset[type] = functions.Function.quick_types | {Tensor, Value}

    def _trace(self, *arguments: Any) -> Any:
        with DIALECT.inside():
            return super()._trace(*arguments)
