"""A server in a thread, and a client that sends raw requests."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import numpy as np

import toolkit
from toolkit import layers
from toolkit.serving import Batching, Limits, Server, Service


def mlp(features=5, classes=3, name="mlp", seed=0):
    """Return a small model with random weights."""
    toolkit.utils.set_random_seed(seed)
    inputs = toolkit.Input((features,), name="x")
    hidden = layers.Dense(7, activation="relu")(inputs)
    outputs = layers.Dense(classes, activation="softmax", name="y")(hidden)
    return toolkit.Model(inputs, outputs, name=name)


def two_of_each():
    """Return a model with two inputs and two outputs."""
    a = toolkit.Input((2,), name="a")
    b = toolkit.Input((3,), dtype="int32", name="b")
    total = layers.Dense(2, name="total")(layers.Concatenate()([a, a]))
    codes = layers.Lambda(lambda x: x * 2, name="codes")(b)
    return toolkit.Model({"a": a, "b": b}, {"total": total, "codes": codes})


def rows(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype="float32")


@contextmanager
def serving(models, batching=None, limits=None, watch=0.0):
    """Run a server for the duration of the context."""
    service = Service(models, batching or Batching(), limits=limits or Limits())
    server = Server(service, port=0, watch=watch)
    ready, failed = threading.Event(), []

    def run():
        try:
            asyncio.run(server.serve(lambda server: ready.set()))
        except BaseException as error:
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    if failed:
        raise failed[0]
    try:
        yield server
    finally:
        if thread.is_alive():
            server.loop.call_soon_threadsafe(server.stop)
        thread.join(60)
        assert not thread.is_alive() and not failed, failed


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def wait_for_reserved_bytes(server, count):
    """Wait until the server has received this number of bytes of bodies."""
    wait_for(lambda: server._reserved_bytes == count)


def wait_for_unread_response(server):
    """Wait until a client does not read its response."""
    wait_for(lambda: any(c._is_output_full for c in server.connections))


class Process:
    """`toolkit serve` as a separate process."""

    def __init__(self, *arguments, is_ready=True):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "toolkit", "serve", "--port", "0", *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if is_ready:
            self.wait_until_ready()

    def wait_until_ready(self):
        line = self.process.stdout.readline()
        match = re.search(r"http://(.*):(\d+)", line)
        assert match, line + self.process.stderr.read()
        self.host, self.port = match[1], int(match[2])

    def end(self, number=signal.SIGTERM):
        if number is not None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


class Answer:
    """A parsed response."""

    def __init__(self, head, body):
        line, *lines = head.decode().split("\r\n")
        self.status = int(line.split(" ")[1])
        self.headers = dict(x.lower().split(": ", 1) for x in lines)
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """A connection that sends bytes unchanged."""

    def __init__(self, server, timeout=30):
        self.socket = socket.create_connection((server.host, server.port), timeout)
        self.buffer = b""

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def read(self, has_body=True):
        """Return the next response; None if the connection is closed before."""
        while b"\r\n\r\n" not in self.buffer:
            if not self._receive():
                return None
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        answer = Answer(head, b"")
        length = int(answer.headers.get("content-length", 0)) if has_body else 0
        while len(self.buffer) < length:
            assert self._receive(), "the connection was closed within a body"
        answer.body, self.buffer = self.buffer[:length], self.buffer[length:]
        return answer

    def _receive(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            return False
        self.buffer += data
        return bool(data)

    def ask(self, method, path, body=None, **headers):
        self.send(request(method, path, body, **headers))
        return self.read(method != "HEAD")


def request(method, path, body=None, **headers):
    """Return the bytes of a request; a body that is not bytes is encoded as JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def ask(server, method, path, body=None, **headers):
    """Send one request on a new connection."""
    with closing(Client(server)) as client:
        return client.ask(method, path, body, **headers)


def tensor(name, array, **fields):
    """Return an input of the Open Inference Protocol in JSON."""
    array = np.asarray(array)
    datatype = {"f": "FP", "i": "INT"}[array.dtype.kind] + str(array.itemsize * 8)
    return {
        "name": name,
        "shape": list(array.shape),
        "datatype": datatype,
        "data": array.ravel().tolist(),
        **fields,
    }


def binary(words, *arrays):
    """Return the body of a request with binary tensors, and the length of its JSON."""
    head = json.dumps(words).encode()
    return b"".join([head, *(x.tobytes() for x in arrays)]), len(head)


def binary_request(array, name="x", model="mlp", **headers):
    """Return a complete request for one binary tensor with a binary response."""
    spec = tensor(name, array, parameters={"binary_data_size": array.nbytes})
    del spec["data"]
    words = {"inputs": [spec], "parameters": {"binary_data_output": True}}
    body, length = binary(words, array)
    headers["Inference_Header_Content_Length"] = length
    return request("POST", f"/v2/models/{model}/infer", body, **headers)


def binary_output(answer, dtype="float32"):
    """Return the only tensor of a binary response."""
    assert answer.status == 200, answer.body
    length = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.body[:length])["outputs"]
    data = answer.body[length:]
    assert output["parameters"]["binary_data_size"] == len(data)
    return np.frombuffer(data, dtype).reshape(output["shape"])
