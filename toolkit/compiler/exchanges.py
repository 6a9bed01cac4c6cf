"""Collectives that run in parallel with other steps: their start and their wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[[], None]


class Exchange:
    """A collective of a bound program that one step starts and a later step waits for.

    Args:
        background: runs the collective in parallel with the steps in between.
        make: returns a function that runs it on the arrays of a call.
    """

    def __init__(self, background: Any, make: Callable[[], Run]) -> None:
        self._background = background
        self._make = make
        self._pending: Any = None

    def start(self) -> None:
        """Queue the collective; it runs as soon as all earlier ones are complete."""
        self._pending = self._background.start(self._make())

    def wait(self) -> tuple[float, float]:
        """Wait for the results; return the start time and the end time."""
        pending, self._pending = self._pending, None
        pending.wait()
        return pending.start_time, pending.end_time

    def settle(self) -> None:
        """Wait for a started collective, because it writes to memory of the call."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.join()
