"""What threads make beside their caller: begun when known of, taken when needed."""

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
    """Makes values in threads.

    Args:
        most: how many at once.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._begun: dict[Asked, Future[Made]] = {}
        # There from the first value that is begun until all that are needed are asked
        # for.
        self._threads: ThreadPoolExecutor | None = None
        self._turn = Lock()

    @abstractmethod
    def make(self, asked: Asked) -> Made:
        """The value that is asked for; called by several threads."""

    def begin(self, asked: Asked) -> bool:
        """Make what `taken` will be asked for; returns whether it was not begun yet."""
        with self._turn:
            if asked in self._begun:
                return False
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.most)
            with suppress(RuntimeError):  # the system has no room for a thread
                self._begun[asked] = self._threads.submit(self.make, asked)
            return True

    def taken(self, asked: Iterable[Asked]) -> dict[Asked, Made]:
        """What was begun, once it is there; without what was cancelled meanwhile."""
        with self._turn:
            begun = {a: self._begun.pop(a) for a in asked if a in self._begun}
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
        made = {}
        try:
            for each, value in begun.items():
                with suppress(CancelledError):  # as another program came to nothing
                    made[each] = value.result()
        except BaseException:
            self._end(threads)
            raise
        return made

    def cancel(self) -> None:
        """Make nothing more of what was begun."""
        with self._turn:
            threads, self._threads = self._threads, None
            self._begun.clear()
        self._end(threads)

    def _end(self, threads: ThreadPoolExecutor | None) -> None:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
