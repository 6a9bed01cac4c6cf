"""Test the application for ASGI servers with calls like those of a server."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.serving.gated import Gated
from tests.serving.serve import (
    Answer,
    ask,
    binary_output,
    binary_request,
    mlp,
    rows,
    tensor,
)
from toolkit.errors import ArgumentError
from toolkit.serving import App, Batching
from toolkit.serving.app import from_environment
from toolkit.serving.http import parse_head
from toolkit.serving.messages import RequestError

INFER = "/v2/models/mlp/infer"


class Caller:
    """A request to an App from a server; `leave` disconnects the client."""

    def __init__(self, app, data):
        head, _, body = data.partition(b"\r\n\r\n")
        line, *lines = head.split(b"\r\n")
        method, path, _ = line.decode().split(" ")
        headers = [x.split(b": ", 1) for x in lines]
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(name.lower(), value) for name, value in headers],
        }
        half = len(body) // 2
        self.pieces = [(body[:half], True), (body[half:], False)]
        self.sent = []
        self.disconnected = asyncio.Event()
        self.task = asyncio.ensure_future(app(self.scope, self.receive, self.send))

    async def receive(self):
        if self.pieces:
            body, has_more = self.pieces.pop(0)
            return {"type": "http.request", "body": body, "more_body": has_more}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    async def answer(self):
        await self.task
        start, body = self.sent
        lines = [f"HTTP/1.1 {start['status']} "]
        lines += [f"{x.decode()}: {y.decode()}" for x, y in start["headers"]]
        return Answer("\r\n".join(lines).encode(), body["body"])


async def started(app):
    """Start the life span of an app; return a function that ends it."""
    messages, replies = asyncio.Queue(), asyncio.Queue()
    life = asyncio.ensure_future(app({"type": "lifespan"}, messages.get, replies.put))
    await messages.put({"type": "lifespan.startup"})
    first = await replies.get()

    async def end():
        await messages.put({"type": "lifespan.shutdown"})
        assert (await replies.get())["type"] == "lifespan.shutdown.complete"
        await life

    return SimpleNamespace(first=first, end=end)


@pytest.mark.parametrize("has_life_span", [True, False])
def test_responses_equal_predict(has_life_span):
    model = mlp()
    xs = [rows(i + 1, 5, seed=i) for i in range(8)]

    async def run():
        app = App({"mlp": model})
        life = await started(app) if has_life_span else None
        callers = [Caller(app, binary_request(x)) for x in xs]
        for x, caller in zip(xs, callers, strict=True):
            outputs = binary_output(await caller.answer())
            np.testing.assert_allclose(outputs, model(x).numpy(), rtol=1e-5)
        if life:
            assert life.first == {"type": "lifespan.startup.complete"}
            await life.end()
            late = await Caller(app, binary_request(xs[0])).answer()
            assert late.status == 503

    asyncio.run(run())


@pytest.mark.parametrize(
    "data, status",
    [
        (b"GET /v2 HTTP/1.1\r\n\r\n", 200),
        (b"HEAD /v2 HTTP/1.1\r\n\r\n", 200),
        (b"GET /nowhere HTTP/1.1\r\n\r\n", 404),
        (b"POST /v2/models/mlp/infer HTTP/1.1\r\n\r\n{}", 400),
        (b"POST /v2/models/mlp/infer HTTP/1.1\r\n\r\n" + b"1" * 2000, 413),
        (b"GET /v2 HTTP/1.1\r\nRequest-Timeout: x\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nInference-Header-Content-Length: -1\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nContent-Encoding: gzip\r\n\r\n", 415),
    ],
)
def test_statuses(data, status):
    async def run():
        app = App({"mlp": Gated()}, max_body=1000)
        answer = await Caller(app, data).answer()
        assert answer.status == status
        assert (answer.body == b"") == data.startswith(b"HEAD")

    asyncio.run(run())


@pytest.mark.parametrize(
    "lines, expected",
    [
        ([], (None, None)),
        (["Inference-Header-Content-Length: 2"], (2, None)),
        (["Request-Timeout: 1.5", "Content-Encoding: Identity"], (None, 1.5)),
        (["Inference-Header-Content-Length: 2"] * 2, 400),
        (["Inference-Header-Content-Length: +2"], 400),
        (["Inference-Header-Content-Length: " + "1" * 16], 400),
        (["Request-Timeout: 0"], 400),
        (["Request-Timeout: 1", "Request-Timeout: 2"], 400),
        (["Content-Encoding: gzip"], 415),
        (["Content-Encoding: gzip", "Content-Encoding: identity"], 415),
    ],
)
def test_header_fields_are_treated_like_in_the_builtin_server(lines, expected):
    head = "\r\n".join(["POST /v2 HTTP/1.1", "Host: a", "Content-Length: 2", *lines])
    requests = []

    async def run():
        app = App({"m": Gated()})
        handle = app.service.handle
        app.service.handle = lambda *arguments: (
            requests.append(arguments[0]) or handle(*arguments)
        )
        return await Caller(app, head.encode() + b"\r\n\r\n{}").answer()

    answer = asyncio.run(run())
    if isinstance(expected, int):
        assert answer.status == expected and not requests
        with pytest.raises(RequestError) as caught:
            parse_head(head.encode())
        assert caught.value.status == expected
        assert answer.json == {"error": str(caught.value)}
    else:
        parsed = parse_head(head.encode())
        assert (parsed.json_length, parsed.timeout) == expected
        assert [(x.json_length, x.timeout) for x in requests] == [expected]


def test_request_of_a_disconnected_client_leaves_the_queue():
    async def run():
        servable = Gated()
        app = App({"mlp": servable}, Batching(size=1))
        x = np.float32([[1]])
        first = Caller(app, binary_request(x))
        assert await asyncio.to_thread(servable.started.acquire)
        second = Caller(app, binary_request(x))
        while not app.service.models["mlp"].batcher.waiting:
            await asyncio.sleep(0.001)
        second.disconnected.set()
        await second.task
        assert second.sent == [] and not app.service.models["mlp"].batcher.waiting
        servable.gate.set()
        assert (await first.answer()).status == 200

    asyncio.run(run())


class Loading(Gated):
    """A servable that warms up slowly."""

    def __init__(self):
        super().__init__(is_open=True)
        self.loads, self.loading, self.fails = 0, threading.Event(), False

    def warm(self):
        self.loads += 1
        assert self.loading.wait(30)
        if self.fails:
            raise ArgumentError("it fails")


def test_disconnect_while_models_load_has_no_effect():
    async def run():
        servable = Loading()
        app = App({"mlp": servable})
        data = binary_request(np.float32([[1]]))
        first, second = Caller(app, data), Caller(app, data)
        await asyncio.sleep(0.05)
        first.task.cancel()
        await asyncio.sleep(0.01)
        third = Caller(app, data)
        servable.loading.set()
        for caller in (second, third, Caller(app, data)):
            assert (await caller.answer()).status == 200
        assert servable.loads == 1

    asyncio.run(run())


def test_failed_load_is_retried():
    async def run():
        servable = Loading()
        servable.loading.set()
        servable.fails = True
        app = App({"other": Gated(is_open=True), "mlp": servable})
        data = binary_request(np.float32([[1]]))
        for _ in range(2):
            with pytest.raises(ArgumentError, match="it fails"):
                await Caller(app, data).answer()
        servable.fails = False
        assert (await Caller(app, data).answer()).status == 200
        assert servable.loads == 3

    asyncio.run(run())


@pytest.mark.parametrize(
    "name, root, path, status",
    [
        ("m", "/api", "/api/v2/models/m", 200),
        ("m", "/api/", "/api/v2/models/m", 200),
        ("m", "/api", "/v2/models/m", 200),  # omitted, as by some servers
        ("m", "/ap", "/api/v2/models/m", 404),
        ("m", "", "/v2/models/m", 200),
        ("two words", "", "/v2/models/two words", 200),
        ("100%25", "", "/v2/models/100%25", 200),
        ("100%", "", "/v2/models/100%25", 404),
        ("why?", "", "/v2/models/why?", 200),
    ],
)
def test_paths(name, root, path, status):
    async def run():
        app = App({name: Gated()})
        caller = Caller(app, b"GET /v2 HTTP/1.1\r\n\r\n")
        caller.scope |= {"root_path": root, "path": path}
        assert (await caller.answer()).status == status

    asyncio.run(run())


def test_unservable_model_fails_the_start():
    async def run():
        life = await started(App({"m": "nowhere.keras"}))
        assert life.first["type"] == "lifespan.startup.failed"
        assert "there is no file" in life.first["message"]

    asyncio.run(run())


def test_other_protocols_are_refused():
    app = App({"m": Gated()})
    with pytest.raises(ArgumentError, match="expected HTTP"):
        asyncio.run(app({"type": "websocket"}, None, None))


@pytest.mark.parametrize("value", [None, "", "m", "=path", "m="])
def test_environment_names_the_models(value, monkeypatch):
    monkeypatch.delenv("TOOLKIT_MODELS", raising=False)
    if value is not None:
        monkeypatch.setenv("TOOLKIT_MODELS", value)
    with pytest.raises(ArgumentError, match="expected TOOLKIT_MODELS"):
        from_environment()


def test_models_of_the_environment(monkeypatch):
    monkeypatch.setenv("TOOLKIT_MODELS", os.pathsep.join(["a=x.keras", "b=/y.keras"]))
    models = from_environment().service.models
    assert {name: m.source for name, m in models.items()} == {
        "a": "x.keras",
        "b": "/y.keras",
    }


# --- real servers ---------------------------------------------------------------------

FACTORY = "toolkit.serving.app:from_environment"
COMMANDS = {
    "uvicorn": ["--factory", FACTORY, "--port", "{port}", "--log-level", "error"],
    "granian": ["--interface", "asgi", "--factory", FACTORY, "--port", "{port}"],
    "hypercorn": [f"{FACTORY}()", "--bind", "127.0.0.1:{port}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_app_in_a_real_server(name, tmp_path):
    pytest.importorskip(name)
    path, model = tmp_path / "mlp.keras", mlp()
    model.save(path)
    port = free_port()
    command = [x.format(port=port) for x in COMMANDS[name]]
    process = subprocess.Popen(
        [sys.executable, "-m", name, *command],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "TOOLKIT_MODELS": f"mlp={path}"},
    )
    server = SimpleNamespace(host="127.0.0.1", port=port)
    try:
        wait_until_ready(server)
        x = rows(3, 5)
        words = {"inputs": [tensor("x", x)]}
        values_of_words = ask(server, "POST", INFER, words).json["outputs"][0]["data"]
        np.testing.assert_allclose(
            np.reshape(values_of_words, (3, 3)), model(x).numpy(), rtol=1e-5
        )
        assert ask(server, "POST", INFER, b"{").status == 400
    finally:
        process.terminate()
        process.wait(30)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_until_ready(server):
    end = time.monotonic() + 60
    while True:
        try:
            if ask(server, "GET", "/v2/health/ready").status == 200:
                return
        except ConnectionError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)
