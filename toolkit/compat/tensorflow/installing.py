"""What TensorFlow's tensors and Variables have: given to those of the core.

The tensors that layers and optimizers make are the core's, so it is these classes that
get TensorFlow's attributes, when the package is imported. What they return is still a
string or a tuple, and the core works as before; but a Variable's `name` is its path,
`numpy()` of a 0-d tensor is a number of NumPy's, and what is printed looks as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.types import ALL, TensorShape
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.dtypes import is_integer
from toolkit.errors import TraceError

_repr_of_core, _iter_of_core = Tensor.__repr__, Tensor.__iter__


class _VariableName:
    """`path:0`, as TensorFlow prints it; the name itself is kept as it was."""

    def __get__(self, variable: Any, owner: Any = None) -> Any:
        if variable is None:
            return self
        members = variable.__dict__  # without a path while it is being made
        return f"{members['path']}:0" if "path" in members else members["name"]

    def __set__(self, variable: Any, name: str) -> None:
        variable.__dict__["name"] = name


def _get_shape(x: Any) -> TensorShape:
    return TensorShape(x.shape)


def _iter(x: Tensor) -> Iterator[Tensor]:
    """The rows; of integers that a trace knows, such as a range, known ones."""
    array = x.known() if is_integer(x.spec.dtype) else None
    if array is not None and array.ndim:
        return (Tensor(np.asarray(row)) for row in array)
    return _iter_of_core(x)


def _set_shape(x: Any, shape: Any) -> None:
    """Check the shape, which is known: None and wrong extents are told apart."""
    TensorShape(x.shape).assert_is_compatible_with(shape)


class _Reference:
    """A tensor as a key: compared by identity."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def deref(self) -> Any:
        """The tensor."""
        return self._x

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Reference) and self._x is other._x

    def __hash__(self) -> int:
        return id(self._x)


# Each operation asks for shapes: they go by the shortest way.
def _shaped(prop: Any, new: Any = tuple.__new__) -> property:
    getter = prop.fget
    return property(lambda x: new(TensorShape, getter(x)))


def _typed(prop: Any) -> property:
    getter = prop.fget
    return property(lambda x: ALL[getter(x)])


def _numbers(numpy: Any) -> Any:
    """`numpy`, but a 0-d array becomes a number."""
    return lambda x: numpy(x)[()]


# --- how tensors print ----------------------------------------------------------------


def _str(x: Tensor) -> str:
    if x.constant is None:
        return _repr_of_core(x)
    values = str(x.numpy())
    between = "\n" if "\n" in values else ""
    return f"tf.Tensor({between}{values}, shape={x.shape}, dtype={x.dtype})"


def _repr(x: Tensor) -> str:
    if x.constant is None:
        return _repr_of_core(x)
    return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, numpy={_values(x)}>"


def _repr_of_variable(v: Variable) -> str:
    facts = f"shape={v.shape} dtype={v.dtype}"
    return f"<tf.Variable '{v.name}' {facts}, numpy={_values(v)}>"


def _values(x: Any) -> str:
    array = x.numpy()
    shown = repr(array) if array.ndim else str(array)
    return ("\n" if "\n" in shown else "") + shown


def _format(x: Tensor, spec: str) -> str:
    return _repr_of_core(x) if x.constant is None else format(x.numpy(), spec)


def _bool(x: Tensor) -> bool:
    value = x.known()
    if value is None:
        raise TraceError(
            f"a tensor of shape {x.shape} and dtype {x.dtype} has no value inside a "
            "traced function: use tf.cond, tf.while_loop or tf.where instead of "
            "Python's `if`, `while`, `and`, `or` and `not`"
        )
    return bool(value)


# --- installing -----------------------------------------------------------------------


def _members(**members: Any) -> dict[str, Any]:
    return members


_ADDED: dict[type, dict[str, Any]] = {
    Tensor: _members(
        __bool__=_bool,
        __format__=_format,
        __index__=lambda x: index(x.numpy()),
        __iter__=_iter,
        __repr__=_repr,
        __str__=_str,
        dtype=_typed(Tensor.dtype),
        get_shape=_get_shape,
        numpy=_numbers(Tensor.numpy),
        ref=lambda x: _Reference(x),
        set_shape=_set_shape,
        shape=_shaped(Tensor.shape),
    ),
    Variable: _members(
        __repr__=_repr_of_variable,
        dtype=_typed(Variable.dtype),
        get_shape=_get_shape,
        name=_VariableName(),
        numpy=_numbers(Variable.numpy),
        ref=lambda x: _Reference(x),
        read_value=lambda variable: variable.read(),
        shape=_shaped(Variable.shape),
    ),
    KerasTensor: _members(get_shape=_get_shape),
}
_before: dict[type, dict[str, Any]] = {}


def install() -> None:
    """Give the core's classes TensorFlow's attributes, unless they have them."""
    if _before:
        return
    for cls, members in _ADDED.items():
        _before[cls] = {name: vars(cls).get(name) for name in members}
        for name, member in members.items():
            setattr(cls, name, member)


def uninstall() -> None:
    """Undo `install`."""
    for cls, members in _before.items():
        for name, member in members.items():
            if member is None:
                delattr(cls, name)
            else:
                setattr(cls, name, member)
    _before.clear()
