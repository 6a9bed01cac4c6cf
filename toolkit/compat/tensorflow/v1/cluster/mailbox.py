"""Values that tasks exchange during a run, by run and value number."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from toolkit.compat.tensorflow.v1.cluster.frames import FrameError

MOST = 100_000
# Number of ended runs to remember, because a value can arrive late.
_REMEMBERED = 256


class Mailbox:
    """The received values of one session."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._values: dict[tuple[int, int], Any] = {}
        self._ended: deque[int] = deque(maxlen=_REMEMBERED)

    def put(self, run: int, number: int, array: Any) -> None:
        """Store a received value."""
        with self._arrived:
            if run in self._ended:
                return
            if len(self._values) >= MOST:
                raise FrameError(f"more than {MOST:,} values that no task has received")
            self._values[run, number] = array
            self._arrived.notify_all()

    def take(self, run: int, number: int, check: Callable[[], None]) -> Any:
        """Wait for a value.

        Args:
            run, number: the keys of the value.
            check: called repeatedly; raises to stop the wait.
        """
        key = run, number
        while True:
            with self._arrived:
                if key not in self._values:
                    self._arrived.wait(0.05)
                if key in self._values:
                    return self._values.pop(key)
            check()

    def end(self, run: int) -> None:
        """Discard the values of a run, also future ones."""
        with self._arrived:
            self._ended.append(run)
            for key in [key for key in self._values if key[0] == run]:
                del self._values[key]
