"""Callbacks that a compatibility layer registers."""

from __future__ import annotations

from collections.abc import Callable

_for_new_variables: list[Callable[[], None]] = []


def on_new_variables(callback: Callable[[], None]) -> None:
    """Register a function to call after layers and optimizers created Variables."""
    _for_new_variables.append(callback)


def notify_new_variables() -> None:
    """Call the callbacks for new Variables."""
    for callback in _for_new_variables:
        callback()
