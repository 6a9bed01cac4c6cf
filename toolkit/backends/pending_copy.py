"""Asynchronous copies to the host's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any


class PendingCopy:
    """Arrays that are being copied to the host's memory.

    Args:
        get: returns NumPy arrays, after a wait if necessary.
        is_done: returns whether no wait is necessary.
    """

    def __init__(
        self, get: Callable[[], list[Array]], is_done: Callable[[], bool] = lambda: True
    ) -> None:
        self._get, self._is_done = get, is_done

    @property
    def is_done(self) -> bool:
        """Return whether the copy is complete, so that `get` does not wait."""
        return self._is_done()

    def get(self) -> list[Array]:
        """Wait for the arrays, and return them."""
        return self._get()
