"""Dialects: what tensors and Variables are to those who use a shell of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from toolkit.core.tensor import Tensor, state
from toolkit.data.padding import Ragged

# What makes ragged rows of values and row splits; a shell has a class that computes.
makers: dict[str, Callable[[Any, Any], Any]] = {"ragged": Ragged}


def has_composites() -> bool:
    """Return whether a shell computes with ragged and sparse tensors."""
    return makers["ragged"] is not Ragged


class Dialect(NamedTuple):
    """Subclasses of Tensor and Variable that a shell around the package shows users.

    What is computed `inside` is of these classes, and so is what operations and layers
    make of such tensors, wherever they are called. Nothing else is.
    """

    tensor: type[Tensor]
    variable: type[Any]
    show: Callable[[Any], Any]  # returns a structure with tensors of this class

    def inside(self) -> AbstractContextManager[None]:
        """A context in which results and new Variables are of its classes."""
        return state.inside(dialect=self, marks=True)


def dialect_of(values: Iterable[Any]) -> Dialect | None:
    """The dialect of the first that has one."""
    found = (getattr(x, "dialect", None) for x in values)
    return next((dialect for dialect in found if dialect is not None), None)
