"""Collectives beside other steps: what starts them, and what waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[[], None]


class Exchange:
    """A collective of a bound program, started at one step and waited for at another.

    Args:
        background: what runs it beside the steps in between.
        make: returns what runs it on the arrays of a call.
    """

    def __init__(self, background: Any, make: Callable[[], Run]) -> None:
        self._background = background
        self._make = make
        self._pending: Any = None

    def start(self) -> None:
        """Have it run as soon as those before it are done."""
        self._pending = self._background.start(self._make())

    def wait(self) -> tuple[float, float]:
        """Wait for its results; returns when it began and ended."""
        pending, self._pending = self._pending, None
        pending.wait()
        return pending.began, pending.ended

    def settle(self) -> None:
        """Wait until it is over, if it was started: it writes to memory of the call."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.settle()
