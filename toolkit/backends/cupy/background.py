"""Values that threads compute in parallel with their caller (prefetch)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

Asked = TypeVar("Asked", bound=Hashable)
Made = TypeVar("Made")


class Background(ABC, Generic[Asked, Made]):
    """Pool of threads that compute values ahead of use.

    Args:
        most: the maximum number of threads.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._begun: dict[Asked, Future[Made]] = {}
        # The threads exist from the first value that starts until all values are
        # collected.
        self._threads: ThreadPoolExecutor | None = None
        self._turn = Lock()

    @abstractmethod
    def make(self, asked: Asked) -> Made:
        """Compute the value for a key; several threads call this."""

    def begin(self, asked: Asked) -> bool:
        """Start to compute a value for `taken`; return whether it is new."""
        with self._turn:
            if asked in self._begun:
                return False
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.most)
            with suppress(RuntimeError):  # the system has no room for a thread
                self._begun[asked] = self._threads.submit(self.make, asked)
            return True

    def taken(self, asked: Iterable[Asked]) -> dict[Asked, Made]:
        """Wait for the started values; return the ones that are not cancelled."""
        with self._turn:
            begun = {a: self._begun.pop(a) for a in asked if a in self._begun}
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
        made = {}
        try:
            for each, value in begun.items():
                # another program failed and cancelled it
                with suppress(CancelledError):
                    made[each] = value.result()
        except BaseException:
            self._end(threads)
            raise
        return made

    def cancel(self) -> None:
        """Cancel the values that have not started."""
        with self._turn:
            threads, self._threads = self._threads, None
            self._begun.clear()
        self._end(threads)

    def _end(self, threads: ThreadPoolExecutor | None) -> None:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
