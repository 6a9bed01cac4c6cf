"""`tf.keras.layers.Layer` and `tf.keras.Model`: subclasses receive `tf.Tensor`s.

`call` receives tensors even if `fit` receives arrays. The instances have toolkit's
classes, and all instances of these pass the type checks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import tree
from toolkit.compat.tensorflow.tensor_classes import DIALECT, convert, wrap_tensors
from toolkit.layers import Layer
from toolkit.models import Model
from toolkit.type_aliases import TensorLike


class _OfTensors:
    """Mixin before toolkit's class: calls convert arguments to `tf.Tensor`s."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with DIALECT.activate():
            args, kwargs = tree.map_structure(_convert_argument, (args, kwargs))
            of_toolkit: Any = super()
            return of_toolkit.__call__(*args, **kwargs)


def _convert_argument(x: TensorLike) -> Any:
    return (
        convert(x)
        if isinstance(x, np.ndarray) and x.dtype != object
        else wrap_tensors(x)
    )


_Kind: Any = type(Layer)


class _Base(_Kind):
    """Metaclass of a public base class that replaces the toolkit class in its bases."""

    def __new__(mcs, name: str, bases: Any, members: Any, **options: Any) -> Any:
        if not any(isinstance(base, _Base) for base in bases):
            return super().__new__(mcs, name, bases, members)
        new_bases: list[type] = []  # the bases that replace the public base class
        for base in bases:
            new_bases += (
                (_OfTensors, *base.__bases__) if type(base) is _Base else (base,)
            )
        return _Kind(name, tuple(dict.fromkeys(new_bases)), members, **options)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.__bases__[0](*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__bases__)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.__bases__)


# Class of toolkit -> its public class in `tf.keras`.
BASES: dict[type, type] = {
    core: _Base(core.__name__, (core,), {"__doc__": core.__doc__})
    for core in (Layer, Model)
}
