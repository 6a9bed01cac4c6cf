"""What TensorFlow's tensors and Variables have: given to those of the core.

The tensors that layers and optimizers make are the core's, so it is these classes that
get TensorFlow's attributes, when the package is imported. What they return is still a
string or a tuple, and the core works as before; only the `name` of a Variable changes.
"""

from __future__ import annotations

from typing import Any

from toolkit.compat.tensorflow.types import TensorShape, as_dtype
from toolkit.keras_tensor import KerasTensor
from toolkit.tensor import Tensor
from toolkit.variable import Variable


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


def _with(getter: Any, change: Any) -> property:
    """A property with a change to what it returns."""
    return property(lambda x: change(getter(x)))


_ADDED: dict[type, dict[str, Any]] = {
    Tensor: {
        "shape": _with(Tensor.shape.fget, TensorShape),  # type: ignore[attr-defined]
        "dtype": _with(Tensor.dtype.fget, as_dtype),  # type: ignore[attr-defined]
        "get_shape": _get_shape,
    },
    Variable: {
        "shape": _with(Variable.shape.fget, TensorShape),  # type: ignore[attr-defined]
        "dtype": _with(Variable.dtype.fget, as_dtype),  # type: ignore[attr-defined]
        "get_shape": _get_shape,
        "read_value": lambda variable: variable.read(),
        "name": _VariableName(),
    },
    KerasTensor: {"get_shape": _get_shape},
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
