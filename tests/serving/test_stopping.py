"""Test a stop: accepted requests are answered, and nothing delays the stop longer."""

import asyncio
import os
import signal
import threading
import time

import numpy as np
import pytest

import toolkit
from tests.serving.gated import Gated
from tests.serving.serve import (
    Client,
    Process,
    ask,
    binary_request,
    mlp,
    request,
    rows,
    serving,
    tensor,
    wait_for,
    wait_for_unread_response,
)
from toolkit.serving import App, Batching, Limits, service
from toolkit.serving.threads import run_in_thread, wait_for_first


def stopping(server, times):
    for _ in range(times):
        server.loop.call_soon_threadsafe(server.stop)


SLOW = """
import time
import toolkit
from toolkit.layers import Layer

@toolkit.saving.register_keras_serializable()
class Slow(Layer):
    supports_jit = False
    def call(self, x):
        time.sleep(0.3)
        return x + 1
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_stop_answers_accepted_requests(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    names = {}
    exec(SLOW, names)
    inputs = toolkit.Input((2,), name="x")
    toolkit.Model(inputs, names["Slow"]()(inputs)).save(tmp_path / "m.keras")
    imported = ["--import", str(tmp_path / "slow.py")]
    process = Process(str(tmp_path / "m.keras"), *imported, "--batch", "1")
    words = {"inputs": [tensor("x", rows(1, 2))]}
    clients = [Client(process) for _ in range(3)]
    for client in clients:
        client.send(request("POST", "/v2/models/m/infer", words))
    ready = Client(process)
    assert ready.ask("GET", "/v2/health/ready").status == 200
    process.process.send_signal(signal.SIGTERM)
    answers = [client.read() for client in clients]
    assert [x.status for x in answers] == [200] * 3
    assert {x.headers["connection"] for x in answers} == {"close"}
    with pytest.raises(ConnectionError):
        ask(process, "GET", "/v2")
    code, errors = process.end(None)
    assert code == 0, errors
    for client in (*clients, ready):
        client.close()


def test_stop_waits_no_longer_than_requests_do():
    servable = Gated()
    with serving({"m": servable}, Batching(timeout=0.5)) as server:
        client = Client(server)
        words = {"inputs": [tensor("x", np.float32([[1]]))]}
        client.send(request("POST", "/v2/models/m/infer", words))
        assert servable.started.acquire(timeout=30)
        start = time.monotonic()
        stopping(server, 1)
        assert client.read().status == 504
        client.close()
        wait_for(lambda: not server.loop.is_running())
        assert time.monotonic() - start < 10
    servable.gate.set()


def test_stop_does_not_wait_for_a_stalled_reader():
    x = np.abs(rows(4, 2**20))
    limits = Limits(read_timeout=0.5)
    with serving({"m": Gated(is_open=True)}, limits=limits) as server:
        client = Client(server)
        client.send(binary_request(x, model="m"))
        wait_for_unread_response(server)
        start = time.monotonic()
        stopping(server, 1)
        wait_for(lambda: not server.loop.is_running())
        assert time.monotonic() - start < 10
        client.close()


def test_second_stop_does_not_wait():
    servable = Gated()
    with serving({"m": servable}, Batching(timeout=1000)) as server:
        client = Client(server)
        words = {"inputs": [tensor("x", np.float32([[1]]))]}
        client.send(request("POST", "/v2/models/m/infer", words))
        assert servable.started.acquire(timeout=30)
        stopping(server, 1)
        time.sleep(0.2)
        assert server.loop.is_running()
        stopping(server, 1)
        wait_for(lambda: not server.loop.is_running())
        assert client.read() is None
        client.close()
    servable.gate.set()


# --- while models are loaded ----------------------------------------------------------

# While a file exists, each load reports it and takes longer than the test's limit.
SLOW_TO_LOAD = """
import pathlib
import time
import toolkit

@toolkit.saving.register_keras_serializable()
class SlowToLoad(toolkit.layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        path = pathlib.Path(__file__).with_name("slowly")
        if path.exists():
            path.with_name("begun").touch()
            time.sleep(300)
    def call(self, x):
        return x + 1
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("times, is_first", [(1, True), (1, False), (2, False)])
def test_stop_cancels_loads(tmp_path, number, times, is_first):
    (tmp_path / "slow.py").write_text(SLOW_TO_LOAD)
    names = {"__file__": str(tmp_path / "slow.py")}
    exec(SLOW_TO_LOAD, names)
    inputs = toolkit.Input((2,), name="x")
    path = tmp_path / "m.keras"
    toolkit.Model(inputs, names["SlowToLoad"]()(inputs)).save(path)
    if is_first:
        (tmp_path / "slowly").touch()
    imported = ["--import", str(tmp_path / "slow.py")]
    process = Process(str(path), *imported, is_ready=not is_first)
    (tmp_path / "slowly").touch()
    if not is_first:
        process.process.send_signal(signal.SIGHUP)
    wait_for((tmp_path / "begun").exists)
    for _ in range(times):
        process.process.send_signal(number)
    code, errors = process.end(None)
    assert code == 0 and "Traceback" not in errors


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_after_a_stop_are_no_failure(tmp_path, number):
    path = tmp_path / "mlp.keras"
    mlp().save(path)
    process = Process(str(path))
    while process.process.poll() is None:
        process.process.send_signal(number)
        time.sleep(0.0005)
    code, errors = process.end(None)
    assert code == 0 and "Traceback" not in errors


def loads():
    """Return the threads that load a model."""
    return [x for x in threading.enumerate() if x.name == "toolkit serve load"]


def held_up(monkeypatch, path):
    """Block loads of `path` after the first until the returned event is set."""
    open_original, gate, has_started = (
        service.open_servable,
        threading.Event(),
        threading.Event(),
    )
    count = [0]

    def opened(*arguments):
        count[0] += 1
        if count[0] > 1:
            has_started.set()
            assert gate.wait(60)
        return open_original(*arguments)

    mlp().save(path)
    monkeypatch.setattr(service, "open_servable", opened)
    return gate, has_started


def test_loop_ends_while_a_new_version_loads(tmp_path, monkeypatch):
    path = tmp_path / "mlp.keras"
    gate, has_started = held_up(monkeypatch, path)
    with serving({"mlp": path}) as server:
        server.loop.call_soon_threadsafe(server.service.begin_reload, "mlp")
        assert has_started.wait(30)
        assert ask(server, "GET", "/v2/health/ready").status == 200
        stopping(server, 1)
        wait_for(lambda: not server.loop.is_running())
    assert loads() and server.service.models["mlp"].version.number == 1
    gate.set()
    wait_for(lambda: not loads())


def test_application_ends_while_a_new_version_loads(tmp_path, monkeypatch):
    path = tmp_path / "mlp.keras"
    gate, has_started = held_up(monkeypatch, path)

    async def run():
        app = App({"mlp": path})
        sent = asyncio.Queue()
        messages = iter(["startup", "shutdown"])

        async def receive():
            kind = next(messages)
            if kind == "shutdown":
                app.service.begin_reload("mlp")
                while not has_started.is_set():
                    await asyncio.sleep(0.01)
            return {"type": f"lifespan.{kind}"}

        await app({"type": "lifespan"}, receive, sent.put)
        return [(await sent.get())["type"] for _ in range(2)]

    replies = asyncio.run(run())
    assert replies == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert loads()
    gate.set()
    wait_for(lambda: not loads())


@pytest.mark.parametrize("error", [None, ValueError("no"), KeyError("no")])
def test_work_in_a_thread(error):
    def work():
        if error is not None:
            raise error
        return threading.current_thread() is not threading.main_thread()

    if error is None:
        assert asyncio.run(run_in_thread(work))
    else:
        with pytest.raises(type(error), match="no"):
            asyncio.run(run_in_thread(work))


def test_stop_iteration_in_a_thread_does_not_end_the_loop():
    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(asyncio.wait_for(run_in_thread(lambda: next(iter([]))), 30))


async def never():
    await asyncio.Event().wait()


async def return_one():
    return 1


async def failing():
    raise ValueError("no")


def test_wait_for_the_first_of_two():
    assert asyncio.run(wait_for_first(return_one(), never())) is True
    assert asyncio.run(wait_for_first(never(), return_one())) is False
    with pytest.raises(ValueError, match="no"):
        asyncio.run(wait_for_first(failing(), never()))
