"""`tf.keras.layers.Layer` and `tf.keras.Model`: their subclasses get `tf.Tensor`s.

So `call` is given what it is in TensorFlow where `fit` is given arrays, too. What is
made is of toolkit's own classes, and all of these count as theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import tree
from toolkit.compat.tensorflow.views import DIALECT, convert, viewed
from toolkit.layers import Layer
from toolkit.models import Model


class _OfTensors:
    """In front of toolkit's class: calls are of `tf.Tensor`s."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with DIALECT.inside():
            args, kwargs = tree.map_structure(_given, (args, kwargs))
            of_toolkit: Any = super()
            return of_toolkit.__call__(*args, **kwargs)


def _given(x: Any) -> Any:
    return convert(x) if isinstance(x, np.ndarray) and x.dtype != object else viewed(x)


_Kind: Any = type(Layer)


class _Base(_Kind):
    """The class of what stands for one of toolkit's classes, its only base."""

    def __new__(mcs, name: str, bases: Any, members: Any, **options: Any) -> Any:
        if not any(isinstance(base, _Base) for base in bases):
            return super().__new__(mcs, name, bases, members)
        made: list[type] = []  # what a subclass has for the class that stands there
        for base in bases:
            made += (_OfTensors, *base.__bases__) if type(base) is _Base else (base,)
        return _Kind(name, tuple(dict.fromkeys(made)), members, **options)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.__bases__[0](*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__bases__)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.__bases__)


# What stands for a class of toolkit in `tf.keras`.
BASES: dict[type, type] = {
    core: _Base(core.__name__, (core,), {"__doc__": core.__doc__})
    for core in (Layer, Model)
}
