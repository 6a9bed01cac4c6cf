"""Background threads that never delay the shutdown of the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

THREAD_NAME = "toolkit serve"  # name prefix of all serving threads

Result = TypeVar("Result")


async def run_in_thread(function: Callable[[], Result]) -> Result:
    """Run `work` in a separate thread and return its result.

    The end of a loop waits for threads of `asyncio.to_thread`, without a limit. It does
    not wait for this thread, which can be inside a library call.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def set_result(result: Any, error: BaseException | None) -> None:
        if not future.done():  # cancelled: no caller waits
            future.set_result((result, error))

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = function()
        except BaseException as exception:
            error = exception
        try:
            loop.call_soon_threadsafe(set_result, result, error)
        except RuntimeError:  # the loop is closed
            pass

    threading.Thread(target=run, name=f"{THREAD_NAME} load").start()
    result, error = await future
    if error is not None:
        raise error
    answer: Result = result
    return answer


async def wait_for_first(
    first: Coroutine[Any, Any, Any], second: Coroutine[Any, Any, Any]
) -> bool:
    """Wait until one of two is done, and cancel the other.

    Returns:
        Whether the first is done; its error is raised.
    """
    tasks = [asyncio.ensure_future(x) for x in (first, second)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if tasks[0].cancelled():
        return False
    tasks[0].result()
    return True


def has_running_threads() -> bool:
    """Return whether abandoned threads are still running."""
    return any(x.name.startswith(THREAD_NAME) for x in threading.enumerate())
