"""State of a thread (scopes, traces, tapes), and its restoration after an interrupt."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, ContextDecorator
from typing import Any, Self

_all: list[ThreadState] = []


class ThreadState(threading.local):
    """Base of the state that scopes, traces and tapes of a thread set and restore.

    A scope may change its collections in place; an attribute references the active
    scope.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        found = super().__new__(cls, *args, **kwargs)
        _all.append(found)
        return found

    def inside(self, **values: Any) -> AbstractContextManager[None]:
        """Return a context in which attributes have these values."""
        return _Inside(self, values)


class _Inside(ContextDecorator):
    """Scope without a generator: an interrupted generator may end at any moment."""

    def __init__(self, where: ThreadState, values: dict[str, Any]) -> None:
        self.where, self.values = where, values
        # one entry for each time that it was entered
        self.outer: list[dict[str, Any]] = []

    def _recreate_cm(self) -> _Inside:
        """Return a new instance for each call of a decorated function."""
        return _Inside(self.where, self.values)

    def __enter__(self) -> None:
        where = self.where
        self.outer.append({name: getattr(where, name) for name in self.values})
        where.__dict__.update(self.values)

    def __exit__(self, *exception: object) -> None:
        self.where.__dict__.update(self.outer.pop())


class restored:
    """A context that restores the state of the thread after an error.

    Use it around long sections of package code. Python runs signal handlers at the
    start of a function, so Ctrl-C can interrupt the call that ends a scope. That scope
    would never end, and receive all later assignments of Variables.
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
