"""Test signals of a server: their callbacks, and that none ends the process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from functools import partial

import pytest

from toolkit.serving.signals import Signals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a process sends itself one")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signal_calls_a_function_of_the_loop(name):
    number, received = getattr(signal, name), []
    before = signal.getsignal(number)

    async def wait(signals):
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        signals_of[0] = lambda: (
            received.append(asyncio.get_running_loop()),
            ended.set(),
        )
        signals.begin(loop)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(ended.wait(), 30)
        assert received == [loop]
        signals.end()
        os.kill(os.getpid(), number)  # no task waits for it

    signals_of = [None]
    actions = {name: lambda: signals_of[0](), "SIGNONE": None}
    with Signals(actions) as signals:
        asyncio.run(wait(signals))
        os.kill(os.getpid(), number)  # the loop is closed, and the process survives
    assert len(received) == 1 and signal.getsignal(number) is before


async def begin_and_end(signals, between=lambda: None):
    signals.begin(asyncio.get_running_loop())
    between()
    signals.end()


def test_running_loop_is_restored():
    async def run():
        loop = asyncio.get_running_loop()
        handler = signal.getsignal(signal.SIGHUP)
        with Signals({"SIGHUP": list}) as signals:
            await begin_and_end(signals)
        assert signal.getsignal(signal.SIGHUP) is handler
        assert not loop.remove_signal_handler(signal.SIGHUP)

    asyncio.run(run())


@pytest.mark.parametrize("is_last", [True, False])
def test_signals_never_have_the_default_handler(monkeypatch, is_last):
    before, set_handler, handlers = signal.getsignal(signal.SIGTERM), signal.signal, []

    def recorded(number, handler):
        if number == signal.SIGTERM:
            handlers.append(handler)
        return set_handler(number, handler)

    try:
        with Signals({"SIGTERM": list}, is_last) as signals:
            monkeypatch.setattr(signal, "signal", recorded)
            asyncio.run(begin_and_end(signals))
            assert len(handlers) > 1 and signal.SIG_DFL not in handlers
        assert handlers[-1] is (signal.SIG_IGN if is_last else before)
    finally:
        set_handler(signal.SIGTERM, before)


def test_signal_in_another_thread_wakes_the_loop():
    async def wait(signals):
        ended = asyncio.Event()
        called[0] = ended.set
        signals.begin(asyncio.get_running_loop())
        threading.Timer(0.2, kill_this_thread).start()
        await asyncio.wait_for(ended.wait(), 30)
        signals.end()

    def kill_this_thread():
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    called = [None]
    start = time.monotonic()
    with Signals({"SIGUSR1": lambda: called[0]()}) as signals:
        asyncio.run(wait(signals))
    assert time.monotonic() - start < 20


def test_handlers_of_the_loop_are_also_called():
    async def run():
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, arrived.set)
        with Signals({"SIGUSR2": list}) as signals:
            signals.begin(loop)
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(arrived.wait(), 30)
            signals.end()
            signals.end()

    asyncio.run(run())


def test_loops_without_socket_readers_are_woken_differently():
    """This is the case for the Proactor loops of Windows."""

    def refuse(*_):
        raise NotImplementedError

    async def run():
        loop = asyncio.get_running_loop()
        loop.add_reader = refuse
        before = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(before)
        with Signals({"SIGUSR2": list}) as signals:
            signals.begin(loop)
            os.kill(os.getpid(), signal.SIGUSR2)
            assert signal.set_wakeup_fd(before) == before
            signals.end()

    asyncio.run(run())


def test_error_does_not_end_the_process():
    before = signal.getsignal(signal.SIGUSR2)

    async def run():
        with Signals({"SIGUSR2": list}, is_last=True) as signals:
            await begin_and_end(signals)
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(run())
    assert signal.getsignal(signal.SIGUSR2) is before


def test_existing_wakeup_descriptor_is_kept():
    async def run():
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, arrived.set)
        with Signals({"SIGUSR2": list}) as signals:
            await begin_and_end(signals)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(arrived.wait(), 30)

    arrived = asyncio.Event()
    asyncio.run(run())


def test_later_wakeup_descriptor_is_kept():
    async def run():
        loop = asyncio.get_running_loop()
        with Signals({"SIGUSR2": list}) as signals:
            add = partial(loop.add_signal_handler, signal.SIGUSR1, arrived.set)
            await begin_and_end(signals, add)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(arrived.wait(), 30)

    arrived = asyncio.Event()
    asyncio.run(run())
