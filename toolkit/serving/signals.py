"""Signals of a server, such as that of Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any


class Signals:
    """Has a loop call functions when signals come, from `begin` to `end`.

    What comes then does nothing until the end of `with`, where handlers are as before.
    Only the main thread gets signals; in others this does nothing. The loops of Windows
    take none, so that Python's handlers hand them on.

    Args:
        actions: name of a signal, which a system may lack -> what is called.
    """

    def __init__(self, actions: Mapping[str, Callable[[], Any]]) -> None:
        found = {getattr(signal, name, None): act for name, act in actions.items()}
        self._actions = {n: act for n, act in found.items() if n is not None}
        self._before: dict[int, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._of_loop: list[int] = []
        self._own: list[int] = []

    def __enter__(self) -> Signals:
        # What is there now, and not what `asyncio.run` puts there meanwhile.
        self._before = {number: signal.getsignal(number) for number in self._actions}
        return self

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call the functions in this loop from now on."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._loop = loop
        for number, action in self._actions.items():
            try:
                loop.add_signal_handler(number, action)
                self._of_loop.append(number)
            except NotImplementedError:
                signal.signal(number, self._handed_on(loop, action))
                self._own.append(number)

    def _handed_on(
        self, loop: asyncio.AbstractEventLoop, action: Callable[[], Any]
    ) -> Callable[[int, Any], None]:
        def handle(number: int, frame: Any) -> None:
            loop.call_soon_threadsafe(action)

        return handle

    def end(self) -> None:
        """Call no function any more.

        A closed loop gives signals the handlers of the system, which end the process:
        so they are taken from it before, and none comes in between.
        """
        if self._loop is None:
            return
        for number in self._own:
            signal.signal(number, _ignore)
        if self._of_loop:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._of_loop)
            for number in self._of_loop:
                self._loop.remove_signal_handler(number)
                signal.signal(number, _ignore)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._own += self._of_loop
        self._of_loop = []

    def __exit__(self, *_: object) -> None:
        for number in self._own:
            # None is a handler that Python cannot put there.
            signal.signal(number, self._before[number] or signal.SIG_DFL)


def _ignore(number: int, frame: Any) -> None:
    """Unlike SIG_IGN, it is nothing that processes begun meanwhile would inherit."""
