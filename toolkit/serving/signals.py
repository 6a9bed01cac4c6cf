"""Signal handling of a server, for example Ctrl-C."""

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
    """Context that calls functions in an event loop on signals, from `begin` to `end`.

    A signal after `end` has no effect until the context ends. The handlers of the loop
    also run. Only the main thread can have handlers; in other threads this does
    nothing.

    The class does not use the loop's `add_signal_handler`. When its handlers are
    removed, or the loop is closed, signals have the system's default action for a
    moment. This ends the process, and no thread can prevent it.

    Args:
        actions: name of a signal, which can be missing on a system -> function.
        is_last: whether the process ends after this: signals are then also ignored
            after the context. Otherwise, or after an error, the previous handlers are
            restored.
    """

    def __init__(
        self, actions: Mapping[str, Callable[[], Any]], is_last: bool = False
    ) -> None:
        by_number = {getattr(signal, name, None): act for name, act in actions.items()}
        self._actions = {n: act for n, act in by_number.items() if n is not None}
        self._is_last = is_last
        self._previous_handlers: dict[int, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup_sockets: tuple[socket.socket, socket.socket] | None = None
        self._previous_wakeup_fd = -1

    def __enter__(self) -> Signals:
        # The handlers before `asyncio.run` sets its own.
        self._previous_handlers = {
            number: signal.getsignal(number) for number in self._actions
        }
        return self

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call the functions in this loop from now on."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._loop = loop
        self._set_wakeup_fd(loop)
        for number, action in self._actions.items():
            _set_handler(number, lambda *_, act=action: loop.call_soon_threadsafe(act))

    def _set_wakeup_fd(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let signals wake the loop, because another thread can receive them."""
        reader, writer = pair = socket.socketpair()
        for endpoint in pair:
            endpoint.setblocking(False)
        try:
            loop.add_reader(reader, self._forward_signals)
        except NotImplementedError:  # a Windows loop, which signals wake anyway
            _close_sockets(pair)
            return
        self._wakeup_sockets, number = pair, writer.fileno()
        self._previous_wakeup_fd = signal.set_wakeup_fd(
            number, warn_on_full_buffer=False
        )

    def _forward_signals(self) -> None:
        """Forward a signal to the previous descriptor, for the loop's handlers."""
        assert self._wakeup_sockets is not None
        numbers = self._wakeup_sockets[0].recv(4096)
        if self._previous_wakeup_fd != -1:
            with suppress(OSError):  # it is full or closed
                os.write(self._previous_wakeup_fd, numbers)

    def end(self) -> None:
        """Stop calling the functions."""
        if self._loop is None:
            return
        for number in self._actions:
            _set_handler(number, _ignore)
        if self._wakeup_sockets is not None:
            reader, writer = self._wakeup_sockets
            descriptor = signal.set_wakeup_fd(self._previous_wakeup_fd)
            if descriptor != writer.fileno():  # replaced by other code
                signal.set_wakeup_fd(descriptor)
            self._loop.remove_reader(reader)
            _close_sockets(self._wakeup_sockets)
            self._wakeup_sockets = None

    def __exit__(self, kind: object, *_: object) -> None:
        if self._loop is None:
            return
        is_last = self._is_last and kind is None
        for number, previous_handler in self._previous_handlers.items():
            # None is a handler that was not installed from Python.
            handler = signal.SIG_IGN if is_last else previous_handler or signal.SIG_DFL
            signal.signal(number, handler)


def _close_sockets(pair: tuple[socket.socket, socket.socket]) -> None:
    for endpoint in pair:
        endpoint.close()


def _set_handler(number: int, handler: Callable[[int, Any], Any]) -> None:
    signal.signal(number, handler)
    if hasattr(signal, "siginterrupt"):  # restarts system calls of libraries
        signal.siginterrupt(number, False)


def _ignore(number: int, frame: Any) -> None:
    """Ignore a signal; unlike SIG_IGN, child processes do not inherit this."""
