"""Signals of a server, such as that of Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any


class Signals:
    """Has a loop call functions when signals come, from `begin` to `end`.

    What comes then does nothing until the end of `with`. Only the main thread gets
    signals; in others this does nothing.

    The loop's own `add_signal_handler` is not used: when its handlers are taken away,
    or it is closed, signals have the system's for a moment. Those end the process, and
    no thread can keep the others from getting one then.

    Args:
        actions: name of a signal, which a system may lack -> what is called.
        is_last: the process ends behind this: signals are ignored after it, too.
            Otherwise handlers are as before.
    """

    def __init__(
        self, actions: Mapping[str, Callable[[], Any]], is_last: bool = False
    ) -> None:
        found = {getattr(signal, name, None): act for name, act in actions.items()}
        self._actions = {n: act for n, act in found.items() if n is not None}
        self._is_last = is_last
        self._before: dict[int, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakes: tuple[socket.socket, socket.socket] | None = None

    def __enter__(self) -> Signals:
        # What is there now, and not what `asyncio.run` puts there meanwhile.
        self._before = {number: signal.getsignal(number) for number in self._actions}
        return self

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call the functions in this loop from now on."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._loop = loop
        self._begin_to_wake(loop)
        for number, action in self._actions.items():
            _handle(number, lambda *_, act=action: loop.call_soon_threadsafe(act))

    def _begin_to_wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have signals wake the loop: another thread may get one while it waits."""
        by_others = signal.set_wakeup_fd(-1)
        if by_others != -1:  # a loop's own way, as Windows' have it
            signal.set_wakeup_fd(by_others)
            return
        self._wakes = reader, writer = socket.socketpair()
        for end in self._wakes:
            end.setblocking(False)
        loop.add_reader(reader, reader.recv, 4096)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def end(self) -> None:
        """Call no function any more."""
        if self._loop is None:
            return
        for number in self._actions:
            _handle(number, _ignore)
        if self._wakes is not None:
            reader, writer = self._wakes
            found = signal.set_wakeup_fd(-1)
            if found != writer.fileno():  # somebody else's since
                signal.set_wakeup_fd(found)
            self._loop.remove_reader(reader)
            for end in self._wakes:
                end.close()

    def __exit__(self, *_: object) -> None:
        if self._loop is None:
            return
        for number, before in self._before.items():
            # None is a handler that Python cannot put there.
            after = signal.SIG_IGN if self._is_last else before or signal.SIG_DFL
            signal.signal(number, after)


def _handle(number: int, handler: Callable[[int, Any], Any]) -> None:
    signal.signal(number, handler)
    if hasattr(signal, "siginterrupt"):  # calls of libraries go on behind it
        signal.siginterrupt(number, False)


def _ignore(number: int, frame: Any) -> None:
    """Unlike SIG_IGN, it is nothing that processes begun meanwhile would inherit."""
