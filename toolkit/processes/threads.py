"""Functions that run in several threads, also after the main thread has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], max_threads: int
) -> list[Result]:
    """Return the results of a function, computed in parallel, in the order of items.

    The calling thread iterates over the items. If the system refuses a thread, fewer
    threads compute the results, or the calling thread does.

    `ThreadPoolExecutor` refuses all work after the end of the main thread. At that
    time, other threads of the program may still save a checkpoint or train.

    Args:
        function: the function, which several threads call.
        items: its arguments.
        max_threads: the maximum number of threads.

    Raises:
        BaseException: the first error of the function or of the iterator, after all
            threads have ended.
    """
    queue: SimpleQueue[tuple[int, Item] | None] = SimpleQueue()
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def work() -> None:
        while (entry := queue.get()) is not None:
            if errors:
                continue
            try:
                results[entry[0]] = function(entry[1])
            except BaseException as error:
                errors.append(error)

    threads: list[Thread] = []
    try:
        for entry in enumerate(items):
            queue.put(entry)
            if len(threads) < max_threads:
                with suppress(RuntimeError):  # the system has no room for a thread
                    thread = Thread(target=work, name="toolkit map", daemon=True)
                    thread.start()
                    threads.append(thread)
    finally:
        for _ in range(len(threads) or 1):
            queue.put(None)
        if not threads:
            work()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(results))]
