"""State of a thread (scopes, traces, tapes), and its restoration after an interrupt."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, ContextDecorator
from typing import Any, Self

_instances: list[ThreadState] = []


class ThreadState(threading.local):
    """Base of the state that scopes, traces and tapes of a thread set and restore.

    A scope may change its collections in place; an attribute references the active
    scope.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        instance = super().__new__(cls, *args, **kwargs)
        _instances.append(instance)
        return instance

    def override(self, **values: Any) -> AbstractContextManager[None]:
        """Return a context in which attributes have these values."""
        return _Override(self, values)


class _Override(ContextDecorator):
    """Scope without a generator: an interrupted generator may end at any moment."""

    def __init__(self, state: ThreadState, values: dict[str, Any]) -> None:
        self.state, self.values = state, values
        # one entry for each time that it was entered
        self.outer: list[dict[str, Any]] = []

    def _recreate_cm(self) -> _Override:
        """Return a new instance for each call of a decorated function."""
        return _Override(self.state, self.values)

    def __enter__(self) -> None:
        state = self.state
        self.outer.append({name: getattr(state, name) for name in self.values})
        state.__dict__.update(self.values)

    def __exit__(self, *exception: object) -> None:
        self.state.__dict__.update(self.outer.pop())


class restore_on_error:
    """A context that restores the state of the thread after an error.

    Use it around long sections of package code. Python runs signal handlers at the
    start of a function, so Ctrl-C can interrupt the call that ends a scope. That scope
    would never end, and receive all later assignments of Variables.
    """

    def __enter__(self) -> None:
        self.saved_states: list[tuple[dict[str, Any], dict[str, Any]]] = [
            (attributes, dict(attributes))
            for attributes in (instance.__dict__ for instance in _instances)
        ]

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            for attributes, saved in self.saved_states:
                attributes.clear()
                attributes.update(saved)
