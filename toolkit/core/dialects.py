"""Dialects: the Tensor and Variable classes of a compatibility layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from toolkit.core.tensor import Tensor, state


class Dialect(NamedTuple):
    """Subclasses of Tensor and Variable that a compatibility layer shows to users.

    Results of operations in the context `activate` have these classes. Operations and
    layers on such tensors also return them, wherever they are called. All other results
    have the base classes.
    """

    tensor: type[Tensor]
    variable: type[Any]
    show: Callable[[Any], Any]  # returns a structure with tensors of this class

    def activate(self) -> AbstractContextManager[None]:
        """Return a context in which results and new Variables have its classes."""
        return state.override(dialect=self, marks=True)


def dialect_of(values: Iterable[Any]) -> Dialect | None:
    """Return the dialect of the first value that has one."""
    dialects = (getattr(x, "dialect", None) for x in values)
    return next((dialect for dialect in dialects if dialect is not None), None)
