"""Callbacks that a compatibility layer registers."""

from __future__ import annotations

from collections.abc import Callable

# Called after layers and optimizers created their Variables.
on_new_variables: list[Callable[[], None]] = []


def notify_new_variables() -> None:
    """Call the callbacks for new Variables."""
    for function in on_new_variables:
        function()
