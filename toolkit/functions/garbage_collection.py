"""Pause of Python's collection of reference cycles while a program is compiled."""

from __future__ import annotations

import gc
import threading

_lock = threading.Lock()
_pauses: list[bool] = []  # for each pause that has not ended: was the collector enabled


class paused_collection:
    """Context without collections, which several threads can enter at the same time.

    A trace and its graphs are hundreds of thousands of objects, most of which live as
    long as the program. Each full collection during a compilation visits all of them
    and frees few: without a pause this takes a third of the time.

    Example:
        >>> import gc
        >>> from toolkit.functions.garbage_collection import paused_collection
        >>> with paused_collection():
        ...     gc.isenabled()
        False
        >>> gc.isenabled()
        True
    """

    def __enter__(self) -> None:
        with _lock:
            _pauses.append(gc.isenabled())
            gc.disable()

    def __exit__(self, *_: object) -> None:
        with _lock:
            was_enabled = _pauses.pop()
            if not _pauses and was_enabled:
                gc.enable()
