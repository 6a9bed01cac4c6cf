"""Signals of a server, such as that of Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any


class Signals:
    """Has a loop call functions when signals come, from `begin` to `end`.

    What comes then does nothing until the end of `with`; what the loop itself was told
    to do, it does as well. Only the main thread may have handlers; in others this does
    nothing.

    The loop's own `add_signal_handler` is not used: when its handlers are taken away,
    or it is closed, signals have the system's for a moment. Those end the process, and
    no thread can keep the others from getting one then.

    Args:
        actions: name of a signal, which a system may lack -> what is called.
        is_last: the process ends behind this: signals are ignored after it, too.
            Otherwise, or after an error, handlers are as before.
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
        self._woken_before = -1

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
        reader, writer = pair = socket.socketpair()
        for end in pair:
            end.setblocking(False)
        try:
            loop.add_reader(reader, self._pass_on)
        except NotImplementedError:  # a loop of Windows, which signals wake anyway
            _close(pair)
            return
        self._wakes, number = pair, writer.fileno()
        self._woken_before = signal.set_wakeup_fd(number, warn_on_full_buffer=False)

    def _pass_on(self) -> None:
        """Have those woken that were before: a loop calls its own handlers then."""
        assert self._wakes is not None
        numbers = self._wakes[0].recv(4096)
        if self._woken_before != -1:
            with suppress(OSError):  # it is full, or closed
                os.write(self._woken_before, numbers)

    def end(self) -> None:
        """Call no function any more."""
        if self._loop is None:
            return
        for number in self._actions:
            _handle(number, _ignore)
        if self._wakes is not None:
            reader, writer = self._wakes
            found = signal.set_wakeup_fd(self._woken_before)
            if found != writer.fileno():  # somebody else's since
                signal.set_wakeup_fd(found)
            self._loop.remove_reader(reader)
            _close(self._wakes)
            self._wakes = None

    def __exit__(self, kind: object, *_: object) -> None:
        if self._loop is None:
            return
        is_last = self._is_last and kind is None
        for number, before in self._before.items():
            # None is a handler that Python cannot put there.
            after = signal.SIG_IGN if is_last else before or signal.SIG_DFL
            signal.signal(number, after)


def _close(pair: tuple[socket.socket, socket.socket]) -> None:
    for end in pair:
        end.close()


def _handle(number: int, handler: Callable[[int, Any], Any]) -> None:
    signal.signal(number, handler)
    if hasattr(signal, "siginterrupt"):  # calls of libraries go on behind it
        signal.siginterrupt(number, False)


def _ignore(number: int, frame: Any) -> None:
    """Unlike SIG_IGN, it is nothing that processes begun meanwhile would inherit."""
