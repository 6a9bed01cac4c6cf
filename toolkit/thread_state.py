"""What a thread is in the middle of, and how it is put back after an interrupt."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, ContextDecorator
from typing import Any, Self

_all: list[ThreadState] = []


class ThreadState(threading.local):
    """Base of what the scopes, traces, tapes and calls of a thread set and put back.

    What a scope collects may be changed in place; which scope it is, is an attribute.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        found = super().__new__(cls, *args, **kwargs)
        _all.append(found)
        return found

    def inside(self, **values: Any) -> AbstractContextManager[None]:
        """A context in which attributes have these values."""
        return _Inside(self, values)


class _Inside(ContextDecorator):
    """No generator: one that an interrupt leaves open ends at any later moment."""

    def __init__(self, where: ThreadState, values: dict[str, Any]) -> None:
        self.where, self.values = where, values
        self.outer: list[dict[str, Any]] = []  # one for each time that it was entered

    def _recreate_cm(self) -> _Inside:
        """One of its own for each call of a function that it decorates."""
        return _Inside(self.where, self.values)

    def __enter__(self) -> None:
        where = self.where
        self.outer.append({name: getattr(where, name) for name in self.values})
        where.__dict__.update(self.values)

    def __exit__(self, *exception: object) -> None:
        self.where.__dict__.update(self.outer.pop())


class restored:
    """A context after whose errors the thread is in the middle of what it was before.

    For what runs much code of the package at once. Ctrl-C can come at the very call
    that ends a scope, as Python runs the handlers of signals when a function starts;
    that scope would last for ever, and take all that Variables are assigned later.
    """

    def __enter__(self) -> None:
        self.before: list[tuple[dict[str, Any], dict[str, Any]]] = [
            (now, dict(now)) for now in (part.__dict__ for part in _all)
        ]

    def __exit__(self, kind: Any, *error: object) -> None:
        if kind is not None:
            for now, then in self.before:
                now.clear()
                now.update(then)
