"""Restores of checkpoints that wait for future Variables."""

from __future__ import annotations

from collections import deque
from typing import Any

from toolkit.core.hooks import on_new_variables
from toolkit.core.tensor import state

_MOST = 32  # maximum number of pending restores; the oldest one is dropped
_waiting: deque[Any] = deque(maxlen=_MOST)


def add(status: Any) -> None:
    """Continue a restore when there are new Variables."""
    _waiting.append(status)


def update() -> None:
    """Continue all restores; not in a trace, which cannot assign Variables."""
    if not _waiting or state.trace is not None:
        return
    for status in list(_waiting):
        if status.update() and status in _waiting:
            _waiting.remove(status)


on_new_variables(update)
