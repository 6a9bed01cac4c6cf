"""Signals of a server: in loops that take them, and in Windows' loops, which do not."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from toolkit.serving.signals import Signals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a process sends itself one")


def refuse(number, action):
    raise NotImplementedError


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("taken", [True, False])
def test_a_signal_calls_a_function_of_the_loop(name, taken):
    number, came = getattr(signal, name), []
    before = signal.getsignal(number)

    async def wait(signals):
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        signals_of[0] = lambda: (came.append(asyncio.get_running_loop()), ended.set())
        if not taken:
            loop.add_signal_handler = refuse
        signals.begin(loop)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(ended.wait(), 30)
        assert came == [loop]
        signals.end()
        os.kill(os.getpid(), number)  # nobody waits for it

    signals_of = [None]
    actions = {name: lambda: signals_of[0](), "SIGNONE": None}
    with Signals(actions) as signals:
        asyncio.run(wait(signals))
        os.kill(os.getpid(), number)  # the loop is closed, which ends no process
    assert len(came) == 1 and signal.getsignal(number) is before


def test_a_loop_that_goes_on_is_left_without_them():
    async def begin_and_end():
        loop = asyncio.get_running_loop()
        with Signals({"SIGHUP": list}) as signals:
            signals.begin(loop)
            signals.end()
        assert not loop.remove_signal_handler(signal.SIGHUP)

    asyncio.run(begin_and_end())
