"""Values that threads compute in parallel with their caller (prefetch)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Background(ABC, Generic[Key, Result]):
    """Pool of threads that compute values ahead of use.

    Args:
        max_threads: the maximum number of threads.
    """

    def __init__(self, max_threads: int) -> None:
        self.max_threads = max_threads
        self._started: dict[Key, Future[Result]] = {}
        # The threads exist from the first value that starts until all values are
        # collected.
        self._threads: ThreadPoolExecutor | None = None
        self._lock = Lock()

    @abstractmethod
    def compute(self, key: Key) -> Result:
        """Compute the value for a key; several threads call this."""

    def start(self, key: Key) -> bool:
        """Start to compute a value for `collect`; return whether it is new."""
        with self._lock:
            if key in self._started:
                return False
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.max_threads)
            with suppress(RuntimeError):  # the system has no room for a thread
                self._started[key] = self._threads.submit(self.compute, key)
            return True

    def collect(self, keys: Iterable[Key]) -> dict[Key, Result]:
        """Wait for the started values; return the ones that are not cancelled."""
        with self._lock:
            started = {a: self._started.pop(a) for a in keys if a in self._started}
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
        results = {}
        try:
            for key, value in started.items():
                # another program failed and cancelled it
                with suppress(CancelledError):
                    results[key] = value.result()
        except BaseException:
            self._end(threads)
            raise
        return results

    def cancel(self) -> None:
        """Cancel the values that have not started."""
        with self._lock:
            threads, self._threads = self._threads, None
            self._started.clear()
        self._end(threads)

    def _end(self, threads: ThreadPoolExecutor | None) -> None:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
