"""Values that are copied to the host's memory while the computing goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any


class PendingCopy:
    """Arrays on their way to the host's memory.

    Args:
        get: makes NumPy arrays of them, waiting for them if it has to.
        is_done: tells whether it would not have to.
    """

    def __init__(
        self,
        get: Callable[[], list[Array]],
        is_done: Callable[[], bool] = lambda: True,
    ) -> None:
        self._get, self._is_done = get, is_done

    @property
    def is_done(self) -> bool:
        """Whether they are there, so that `get` does not wait."""
        return self._is_done()

    def get(self) -> list[Array]:
        """The arrays, once they are there."""
        return self._get()
