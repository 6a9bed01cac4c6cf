"""Restorations of checkpoints that wait for Variables which are made later."""

from __future__ import annotations

from collections import deque
from typing import Any

from toolkit.core.hooks import on_new_variables
from toolkit.core.tensor import state

_MOST = 32  # restorations that wait; older ones are given up
_waiting: deque[Any] = deque(maxlen=_MOST)


def add(status: Any) -> None:
    """Have a restoration continue when there are new Variables."""
    _waiting.append(status)


def update() -> None:
    """Continue all restorations; not in a trace, where no Variable is assigned."""
    if not _waiting or state.trace is not None:
        return
    for status in list(_waiting):
        if status.update() and status in _waiting:
            _waiting.remove(status)


on_new_variables.append(update)
