"""Test the server with all kinds of clients, with signals and with new files."""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from tests.serving.gated import Gated
from tests.serving.malformed import malformed
from tests.serving.serve import (
    Client,
    Process,
    ask,
    binary_output,
    binary_request,
    mlp,
    request,
    rows,
    serving,
    tensor,
    wait_for,
    wait_for_reserved_bytes,
    wait_for_unread_response,
)
from toolkit import cli
from toolkit.serving import Batching, Limits, server as server_module, service
from toolkit.serving.http import MAX_HEAD, parse_head
from toolkit.serving.messages import Response

INFER = "/v2/models/mlp/infer"


# --- connections ----------------------------------------------------------------------


def test_connection_is_kept_open(server):
    with closing(Client(server)) as client:
        for _ in range(3):
            assert client.ask("GET", "/v2/health/live").status == 200


@pytest.mark.parametrize(
    "head, keeps",
    [
        (b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", False),
        (b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", False),
        (b"GET /v2 HTTP/1.0\r\n\r\n", False),
        (b"GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_keep_alive_follows_the_request(server, head, keeps):
    with closing(Client(server)) as client:
        client.send(head)
        answer = client.read()
        assert answer.status == 200
        connection = "keep-alive" if b"1.0" in head else None
        assert answer.headers.get("connection") == (connection if keeps else "close")
        client.send(head)
        assert (client.read() is not None) == keeps


def test_pipelined_requests_are_answered_in_order(server, model):
    xs = [rows(1, 5, seed=i) for i in range(50)]
    with closing(Client(server)) as client:
        sent = [binary_request(x) for x in xs]
        client.send(b"".join(sent) + request("GET", "/v2") * 50)
        for x in xs:
            outputs = binary_output(client.read())
            np.testing.assert_allclose(outputs, model(x).numpy(), rtol=1e-5)
        for _ in range(50):
            assert client.read().json["name"] == "toolkit"


def test_only_a_single_request_is_marked_as_single(model):
    """A request is single if its connection has sent no other request."""
    one = binary_request(rows(1, 5))
    with serving({"mlp": model}) as server, closing(Client(server)) as client:
        handle, requests = server.service.handle, []
        server.service.handle = lambda *arguments: (
            requests.append(arguments[0]) or handle(*arguments)
        )

        def ask_for(count):
            client.send(one * count)
            for _ in range(count):
                assert client.read().status == 200
            flags = [request.is_only_request for request in requests]
            requests.clear()
            return flags

        assert ask_for(1) == [True]
        assert ask_for(3) == [
            False,
            False,
            True,
        ]  # the pipelined data do not contain all requests
        with closing(Client(server)) as other:
            other.ask("GET", "/v2")
            requests.clear()
            assert ask_for(1) == [False]
        wait_for(lambda: len(server.connections) == 1)
        assert ask_for(1) == [True]


@pytest.mark.parametrize("piece", [1, 7, 100])
def test_request_may_arrive_in_pieces(server, model, piece):
    x = rows(3, 5)
    data = binary_request(x) * 2
    with closing(Client(server)) as client:
        for at in range(0, len(data), piece):
            client.send(data[at : at + piece])
        for _ in range(2):
            outputs = binary_output(client.read())
            np.testing.assert_allclose(outputs, model(x).numpy(), rtol=1e-5)


def test_data_that_arrives_before_the_check_for_pipelined_requests(model):
    """The head of a request is complete at that time; the server waits for its body."""
    one, bodies, answers = binary_request(rows(1, 5)), [], []
    with serving({"mlp": model}) as server, closing(Client(server)) as client:
        client.ask("GET", "/v2")
        (connection,) = server.connections

        def handle(request, answer):
            bodies.append(request.body)
            answers.append(answer)

        def feed():
            connection.data_received(one + one[:9])
            answers.pop()(Response(200, b"first"))
            connection.data_received(one[9:-4])

        server.service.handle = handle
        server.loop.call_soon_threadsafe(feed)
        assert client.read().body == b"first"
        client.send(one[-4:])
        wait_for(lambda: answers)
        server.loop.call_soon_threadsafe(answers.pop(), Response(200, b"second"))
        assert client.read().body == b"second"
    assert bodies == [one.partition(b"\r\n\r\n")[2]] * 2


def test_waiting_client_receives_continue(server):
    body = json.dumps({"inputs": [tensor("x", rows(1, 5))]}).encode()
    head, _, _ = request("POST", INFER, body, Expect="100-continue").partition(b"{")
    with closing(Client(server)) as client:
        client.send(head)
        assert client.read().status == 100
        client.send(body)
        assert client.read().status == 200


HOST = b"Host: a\r\n"
REFUSED = {
    "no HTTP": (b"hello\r\n\r\n", 400),
    "a line of two words": (b"GET /v2\r\n\r\n", 400),
    "an empty line first": (b"\r\n\r\n", 400),
    "bytes": (b"\x16\x03\x01\x02\x00\x01\xfc\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\n", 505),
    "an unknown method": (b"BREW /v2 HTTP/1.1\r\n" + HOST + b"\r\n", 501),
    "another target": (b"GET ftp://a/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a target without a host": (b"GET http:/// HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "two empty lines": (b"\r\n\r\nGET /v2 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "no host": (b"GET /v2 HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /v2 HTTP/1.1\r\n" + HOST * 2 + b"\r\n", 400),
    "a space before a colon": (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    "a folded line": (b"GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n", 400),
    "a zero byte": (b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n", 400),
    "chunks": (
        b"POST /v2 HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
        411,
    ),
    "chunks and a length": (
        b"POST /v2 HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
        411,
    ),
    "no length": (b"POST /v2 HTTP/1.1\r\n" + HOST + b"\r\n", 411),
    "two lengths": (
        b"POST /v2 HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n" * 2 + b"\r\n",
        400,
    ),
    "a negative length": (
        b"POST /v2 HTTP/1.1\r\n" + HOST + b"Content-Length: -3\r\n\r\n",
        400,
    ),
    "a length of text": (
        b"POST /v2 HTTP/1.1\r\n" + HOST + b"Content-Length: 0x3\r\n\r\n",
        400,
    ),
    "a large body": (
        b"POST /v2 HTTP/1.1\r\n" + HOST + b"Content-Length: 4194305\r\n\r\n",
        413,
    ),
    "a huge body": (
        b"POST /v2 HTTP/1.1\r\n" + HOST + b"Content-Length: 999999999999999\r\n\r\n",
        413,
    ),
    "a packed body": (
        b"POST /v2 HTTP/1.1\r\n"
        + HOST
        + b"Content-Length: 0\r\nContent-Encoding: gzip\r\n\r\n",
        415,
    ),
    "an expectation": (b"GET /v2 HTTP/1.1\r\n" + HOST + b"Expect: x\r\n\r\n", 417),
    "a large head": (b"GET /v2 HTTP/1.1\r\n" + b"A: b\r\n" * 3000 + b"\r\n", 431),
    "a large head without an end": (b"G" * (MAX_HEAD + 1), 431),
    "a timeout of text": (
        b"GET /v2 HTTP/1.1\r\n" + HOST + b"Request-Timeout: soon\r\n\r\n",
        400,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_request_is_refused_and_the_connection_closed(server, name):
    data, status = REFUSED[name]
    with closing(Client(server)) as client:
        client.send(data)
        answer = client.read()
        assert answer.status == status and list(answer.json) == ["error"]
        assert answer.headers["connection"] == "close"
        assert client.read() is None


@pytest.mark.parametrize(
    "target, status",
    [
        (b"http://a:80/v2", 200),
        (b"HTTPS://a/v2?x=1", 200),
        (b"http://a/nowhere", 404),
        (b"http://a", 404),
        (b"*", 404),
    ],
)
def test_targets_may_name_the_host(server, target, status):
    with closing(Client(server)) as client:
        client.send(b"GET %b HTTP/1.1\r\n" % target + HOST + b"\r\n")
        assert client.read().status == status


@pytest.mark.parametrize("pieces", [[b"\r\n"], [b"\r", b"\n"], [b""]])
def test_empty_line_before_a_request_is_ignored(server, pieces):
    body = json.dumps({"inputs": [tensor("x", rows(1, 5))]}).encode()
    with closing(Client(server)) as client:
        for _ in range(3):
            client.send(request("POST", INFER, body))
            assert client.read().status == 200
            for piece in pieces:
                client.send(piece)
                time.sleep(0.02)


def test_data_after_the_last_request_does_not_lose_the_response():
    """A close with unread bytes would discard the response."""
    with serving({"m": Gated(is_open=True)}) as server:
        for _ in range(5):
            with closing(Client(server)) as client:
                x = np.abs(rows(1, 2**16))
                client.send(binary_request(x, model="m", Connection="close"))
                with contextlib.suppress(ConnectionError):
                    for _ in range(50):
                        client.send(b"x" * 10_000)
                outputs = binary_output(client.read())
                np.testing.assert_array_equal(outputs, 2 * x)
                assert client.read() is None


def test_slow_reader_receives_the_last_response_completely(monkeypatch):
    monkeypatch.setattr(server_module, "LINGER_SECONDS", 0.1)
    x = np.abs(rows(4, 2**20))
    with serving({"m": Gated(is_open=True)}) as server:
        with closing(Client(server)) as client:
            client.send(binary_request(x, model="m", Connection="close"))
            wait_for_unread_response(server)
            time.sleep(2.5)  # two checks of connections
            np.testing.assert_array_equal(binary_output(client.read()), 2 * x)


def test_reading_pauses_while_a_response_is_unread():
    x = np.abs(rows(4, 2**20))
    with serving({"m": Gated(is_open=True)}) as server:
        with closing(Client(server)) as client:
            client.send(binary_request(x, model="m"))
            wait_for_unread_response(server)
            (connection,) = server.connections
            client.socket.settimeout(0.5)
            # The responses are long: all requests are answered before this ends.
            pipelined = request("GET", "/v2", padding="x" * 4000)
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 40 * 2**20:
                    sent += client.socket.send(
                        (pipelined * 10)[sent % len(pipelined) :]
                    )
            assert connection._unparsed_size < 2**20 and sent < 40 * 2**20
            client.socket.settimeout(30)
            np.testing.assert_array_equal(binary_output(client.read()), 2 * x)
            for _ in range(sent // len(pipelined)):
                assert client.read().status == 200


def test_heads_are_parsed():
    head = parse_head(
        b"POST /a HTTP/1.1\r\nHost: a\r\nCONTENT-LENGTH: 12 \r\nrequest-timeout:0.5\r\n"
        b"Inference-Header-Content-Length: 7"
    )
    assert head == ("POST", "/a", 12, 7, 0.5, True, False, False)


# --- limits ---------------------------------------------------------------------------


def test_slow_clients_are_notified_and_closed():
    limits = Limits(read_timeout=0.2, idle_timeout=0.4)
    with serving({"mlp": mlp()}, limits=limits) as server:
        slow, idle, body = Client(server), Client(server), Client(server)
        slow.send(b"GET /v2 HT")
        body.send(b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n1")
        assert slow.read().status == body.read().status == 408
        assert idle.read() is None
        for client in (slow, idle, body):
            client.close()


def test_too_many_connections_are_refused():
    with serving({"mlp": mlp()}, limits=Limits(connections=2)) as server:
        clients = [Client(server) for _ in range(2)]
        for client in clients:
            assert client.ask("GET", "/v2").status == 200
        third = Client(server)
        assert third.read().status == 503
        clients[0].close()
        wait_for(lambda: len(server.connections) < 2)
        assert ask(server, "GET", "/v2").status == 200
        clients[1].close()
        third.close()


def test_total_size_of_bodies_is_limited():
    with serving({"mlp": mlp()}, limits=Limits(held=1000)) as server:
        first, second = Client(server), Client(server)
        head = b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        first.send(head % 900 + b"1" * 500)
        wait_for_reserved_bytes(server, 500)
        first.send(b"1" * 300)
        wait_for_reserved_bytes(server, 800)
        second.send(head % 300 + b"1" * 150)
        wait_for_reserved_bytes(server, 950)
        second.send(b"1" * 100)
        assert second.read().status == 503
        wait_for_reserved_bytes(server, 800)
        second.close()
        third = Client(server)
        third.send(head % 300 + b"1" * 201)
        assert third.read().status == 503
        third.close()
        first.close()
        wait_for_reserved_bytes(server, 0)


def test_announced_missing_bodies_do_not_block_clients(model):
    with serving({"mlp": model}, limits=Limits(body=1000, held=1000)) as server:
        idle = [Client(server) for _ in range(8)]
        for client in idle:
            client.send(b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n1")
        wait_for_reserved_bytes(server, 8)
        data = binary_request(rows(10, 5))
        with closing(Client(server)) as client:
            client.send(data[:-1])
            body = data.partition(b"\r\n\r\n")[2]
            wait_for_reserved_bytes(server, 8 + len(body) - 1)
            client.send(data[-1:])
            assert client.read().status == 200
        wait_for_reserved_bytes(server, 8)
        for client in idle:
            client.close()


def test_full_queue_is_reported_to_clients():
    servable = Gated()
    with serving({"m": servable}, Batching(queue=1)) as server:
        words = {"inputs": [tensor("x", np.float32([[1]]))]}
        clients = [Client(server) for _ in range(3)]
        data = request("POST", "/v2/models/m/infer", words)
        clients[0].send(data)
        assert servable.started.acquire(timeout=30)
        clients[1].send(data)
        wait_for(lambda: server.service.models["m"].batcher.waiting == 1)
        answer = clients[2].ask("POST", "/v2/models/m/infer", words)
        assert answer.status == 429 and answer.headers["retry-after"] == "1"
        servable.gate.set()
        assert [x.read().status for x in clients[:2]] == [200, 200]
        for client in clients:
            client.close()


def test_errors_expose_no_internals(caplog):
    with serving({"m": Gated(is_open=True)}) as server:
        words = {"inputs": [tensor("x", np.float32([[np.nan]]))]}
        answer = ask(server, "POST", "/v2/models/m/infer", words)
        assert answer.json == {"error": "the model failed"} and answer.status == 500
    assert "/secret/path" in caplog.text


@pytest.mark.parametrize("seed", range(4))
def test_malformed_requests(server, model, seed):
    """They get a 4xx, or a response if they are valid."""
    generator = random.Random(seed)
    statuses = set()
    for _ in range(100):
        with closing(Client(server, timeout=10)) as client:
            client.send(malformed(generator))
            client.socket.shutdown(1)
            answer = client.read()
        if answer is not None:
            assert answer.status == 200 or 400 <= answer.status < 600, answer.status
            assert answer.status != 500, answer.body
            statuses.add(answer.status)
    assert {400} < statuses
    x = rows(2, 5)
    with closing(Client(server)) as client:
        client.send(binary_request(x))
        outputs = binary_output(client.read())
    np.testing.assert_allclose(outputs, model(x).numpy(), rtol=1e-5)


# --- metrics --------------------------------------------------------------------------


def test_metrics():
    with serving({'m"x': Gated(is_open=True)}) as server:
        words = {"inputs": [tensor("x", np.float32([[1], [2], [3]]))]}
        path = "/v2/models/m%22x/infer"
        assert ask(server, "POST", path, words).status == 200
        assert ask(server, "POST", path, {}).status == 400
        assert ask(server, "GET", "/nowhere").status == 404
        answer = ask(server, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    samples = dict(
        line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")
    )
    label = 'model="m\\"x"'
    assert samples[f'toolkit_requests_total{{{label},code="200"}}'] == "1"
    assert samples[f'toolkit_requests_total{{{label},code="400"}}'] == "1"
    assert samples['toolkit_requests_total{model="",code="404"}'] == "1"
    assert samples[f'toolkit_batch_rows_bucket{{{label},le="2"}}'] == "0"
    assert samples[f'toolkit_batch_rows_bucket{{{label},le="4"}}'] == "1"
    assert samples[f"toolkit_batch_rows_sum{{{label}}}"] == "3"
    name = "toolkit_request_duration_seconds"
    assert samples[f"{name}_count{{{label}}}"] == "2"
    assert samples[f'{name}_bucket{{{label},le="+Inf"}}'] == "2"
    assert samples[f"toolkit_queue_length{{{label}}}"] == "0"
    assert samples[f"toolkit_model_version{{{label}}}"] == "1"
    described = set(re.findall(r"# TYPE (\w+)", text))
    names = {re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", key) for key in samples}
    assert names == described


# --- new versions ---------------------------------------------------------------------


def answer_of(server, x):
    """Return the model's version and response."""
    words = {"inputs": [tensor("x", x)]}
    response = ask(server, "POST", INFER, words).json
    return response["model_version"], np.reshape(
        response["outputs"][0]["data"], (len(x), -1)
    )


def reload(server):
    future = asyncio.run_coroutine_threadsafe(server.service.reload("mlp"), server.loop)
    return future.result(60)


def test_new_version_responds_and_a_broken_one_does_not(tmp_path, caplog):
    path, x = tmp_path / "mlp.keras", rows(2, 5)
    first, second = mlp(seed=1), mlp(seed=2)
    first.save(path)
    with serving({"mlp": path}) as server:
        number, actual = answer_of(server, x)
        assert number == "1"
        np.testing.assert_allclose(actual, first(x).numpy(), rtol=1e-5)
        second.save(path)
        assert reload(server)
        number, actual = answer_of(server, x)
        assert number == "2"
        np.testing.assert_allclose(actual, second(x).numpy(), rtol=1e-5)
        assert ask(server, "GET", "/v2/models/mlp/versions/1").status == 404
        path.write_bytes(b"broken")
        assert not reload(server)
        assert answer_of(server, x)[0] == "2"
        metrics = ask(server, "GET", "/metrics").body.decode()
        assert 'toolkit_reloads_total{model="mlp",result="failure"} 1' in metrics
    assert (
        "the old version stays active, because the new file is invalid" in caplog.text
    )


def test_changed_file_is_reloaded(tmp_path):
    path, x = tmp_path / "mlp.keras", rows(2, 5)
    mlp(seed=1).save(path)
    with serving({"mlp": path}, watch=0.05) as server:
        assert answer_of(server, x)[0] == "1"
        mlp(seed=2).save(path)
        wait_for(lambda: answer_of(server, x)[0] == "2")


def test_file_changed_during_a_load_is_reloaded(tmp_path, monkeypatch):
    path, x = tmp_path / "mlp.keras", rows(2, 5)
    first, second = mlp(seed=1), mlp(seed=2)
    first.save(path)
    open_original = service.open_servable

    def opened(*arguments):
        servable = open_original(*arguments)
        monkeypatch.setattr(service, "open_servable", open_original)
        second.save(path)
        return servable

    monkeypatch.setattr(service, "open_servable", opened)
    with serving({"mlp": path}, watch=0.05) as server:
        wait_for(lambda: answer_of(server, x)[0] == "2")
        np.testing.assert_allclose(answer_of(server, x)[1], second(x).numpy(), 1e-5)


def test_no_request_is_lost_while_versions_change(tmp_path):
    path, x = tmp_path / "mlp.keras", rows(2, 5)
    models = [mlp(seed=i) for i in range(3)]
    expected = [model(x).numpy() for model in models]
    models[0].save(path)
    failures, count, over = [], [0], threading.Event()

    def client(server):
        with closing(Client(server)) as connection:
            while not over.is_set():
                connection.send(binary_request(x))
                answer = connection.read()
                count[0] += 1
                if answer is None or answer.status != 200:
                    failures.append(answer)
                    return
                outputs = binary_output(answer)
                if not any(np.allclose(outputs, y, 1e-4) for y in expected):
                    failures.append(outputs)

    with serving({"mlp": path}) as server:
        threads = [threading.Thread(target=client, args=[server]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for model in (*models[1:], *models):
            model.save(path)
            assert reload(server)
        over.set()
        for thread in threads:
            thread.join()
    assert failures == [] and count[0] > 10


# --- the command ----------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_command_serves_reloads_and_stops(tmp_path):
    path, x = tmp_path / "mlp.keras", rows(2, 5)
    first, second = mlp(seed=1), mlp(seed=2)
    first.save(path)
    process = Process(str(path), f"again={path}", "--wait", "0.5ms")
    assert process.host == "127.0.0.1"
    np.testing.assert_allclose(answer_of(process, x)[1], first(x).numpy(), rtol=1e-5)
    assert ask(process, "GET", "/v2/models/again").status == 200
    second.save(path)
    process.process.send_signal(signal.SIGHUP)
    wait_for(lambda: answer_of(process, x)[0] == "2")
    np.testing.assert_allclose(answer_of(process, x)[1], second(x).numpy(), rtol=1e-5)
    code, errors = process.end()
    assert code == 0 and "version 2 is active" in errors


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["none.keras"], 1, "serve: there is no file 'none.keras'"),
        (["m.so"], 1, "there is no file 'm.so'"),
        (["a.keras", "b/a.keras"], 1, "expected each name once; received 'a'"),
        (["a", "--port", "70000"], 2, "expected 0 to 65535"),
        (["a", "--batch", "0"], 2, "expected a number >= 1"),
        (["a", "--wait", "soon"], 2, "expected a time such as 0.5ms"),
        (["a", "--timeout", "0"], 2, "expected a time > 0"),
        (["a", "--max-body", "1TB"], 2, "expected a size such as 16MB"),
    ],
)
def test_arguments_are_checked(arguments, code, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        exit_status = cli.main(["serve", *arguments])
    except SystemExit as left:
        exit_status = left.code
    assert exit_status == code and words in capsys.readouterr().err


def test_invalid_library_is_not_served(tmp_path, capsys):
    (tmp_path / "m.so").write_bytes(b"\x7fELF")
    assert cli.main(["serve", str(tmp_path / "m.so")]) == 1
    assert "expected a shared library" in capsys.readouterr().err


def test_package_import_does_not_import_the_server():
    code = "import sys, toolkit; from toolkit import layers, models, optimizers; "
    code += "print([x for x in sys.modules if 'serving' in x or x == 'asyncio'])"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert process.stdout.strip() == "[]", process.stderr


def test_small_models_are_computed_without_a_thread(model):
    with serving({"mlp": model}) as server:
        before = set(threading.enumerate())
        for _ in range(3):
            answer = ask(server, "POST", INFER, {"inputs": [tensor("x", rows(1, 5))]})
            assert answer.status == 200
        assert set(threading.enumerate()) <= before
