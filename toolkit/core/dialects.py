"""Dialects: the Tensor and Variable classes of a compatibility layer.

A layer defines subclasses of the core's classes and lists them in a `Dialect`. The core
creates results of these classes, and does not depend on the layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

from toolkit import tree
from toolkit.core.masks import mask_of, set_mask
from toolkit.core.tensor import Tensor, bind, state
from toolkit.ir import PRIMITIVES

T = TypeVar("T")


class Dialect(NamedTuple):
    """Subclasses of Tensor and Variable that a compatibility layer shows to users.

    Results of operations in the context `activate` have these classes. Operations and
    layers on such tensors also return them, wherever they are called. All other results
    have the base classes.

    The class of an existing tensor can change, so the subclass of Tensor must not add
    slots. It can store one object in `Tensor.dialect_data`.
    """

    tensor: type[Tensor]
    variable: type[Any]

    def activate(self) -> AbstractContextManager[None]:
        """Return a context in which results and new Variables have its classes."""
        return state.override(dialect=self, marks=True)

    def wrap(self, result: object) -> Any:
        """Convert the tensors of the core in a result to tensors of the dialect."""
        if type(result) is Tensor:
            return self._wrap_tensor(result)
        if isinstance(result, (list, tuple, dict)):
            return tree.map_structure(
                lambda x: self._wrap_tensor(x) if type(x) is Tensor else x, result
            )
        return result

    def _wrap_tensor(self, x: Tensor) -> Tensor:
        """Return the same value, which tapes and traces can follow."""
        if state.tapes or x._array is None:
            with self.activate():
                new = bind(PRIMITIVES["reshape"], x, shape=x.shape)
        else:
            new = self.tensor(x._array, x._spec)
        mask = mask_of(x)
        if mask is not None:
            set_mask(new, mask)
        return new


def dialect_of(values: Iterable[Any]) -> Dialect | None:
    """Return the dialect of the first value that has one."""
    dialects = (getattr(x, "dialect", None) for x in values)
    return next((dialect for dialect in dialects if dialect is not None), None)


def dtype_of(x: Tensor) -> str:
    """Return the name of a tensor's dtype, independent of its dialect."""
    return x._dtype


def change_class(x: Any, kind: type[T]) -> T:
    """Change the class of a tensor or symbol that tapes or traces refer to.

    Args:
        x: the tensor or symbol.
        kind: the subclass, with the same memory layout.
    """
    x.__class__ = kind
    return x
