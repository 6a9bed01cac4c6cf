"""Background threads that never delay the shutdown of the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

NAME = "toolkit serve"  # name prefix of all serving threads

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run `work` in a separate daemon thread and return its result.

    The end of a loop waits for threads of `asyncio.to_thread`, without a limit. It does
    not wait for this thread, which can be inside a library call.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def tell(result: Any, error: BaseException | None) -> None:
        if not found.done():  # cancelled: no caller waits
            found.set_result((result, error))

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(tell, result, error)
        except RuntimeError:  # the loop is closed
            pass

    threading.Thread(target=run, name=f"{NAME} load").start()
    result, error = await found
    if error is not None:
        raise error
    answer: Result = result
    return answer


async def either(
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


def are_left() -> bool:
    """Return whether abandoned threads are still running."""
    return any(x.name.startswith(NAME) for x in threading.enumerate())
