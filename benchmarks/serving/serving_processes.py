"""Server processes and client requests for `serving.py`.

    python benchmarks/serving/serving_processes.py PORT MODEL.keras

runs one of the servers: the standard library's `http.server`, without batching.
"""

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# At the end of the path: the peers' environments contain no toolkit.
sys.path.append(str(ROOT))

import numpy as np  # noqa: E402

import toolkit  # noqa: E402

TICK = 1 / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Return a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ServerProcess:
    """Server process with a socket interface.

    Args:
        command: with {port} for the port.
        environment: additional environment variables.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.port = free_port()
        # One thread: the benchmark measures work, not the synchronization of cores.
        variables = {"TOOLKIT_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [argument.format(port=self.port) for argument in command],
            env=os.environ | variables | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 60
        while True:
            try:
                self.connect().close()
                break
            except ConnectionError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def connect(self) -> socket.socket:
        """Connect to the server."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cpu_seconds(self) -> float:
        """Return the user and system time of the process and its children."""
        total = 0.0
        for pid in self._tree():
            text = Path(f"/proc/{pid}/stat").read_text("utf-8")
            fields = text.rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) * TICK
        return total

    def _tree(self) -> list[int]:
        pids = [self.process.pid]
        for pid in pids:
            for path in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):  # the thread ended after the search
                    pids += map(int, path.read_text().split())
        return pids

    def resident_bytes(self) -> int:
        """Return the memory of the process."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text("utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        """Terminate the process."""
        self.process.terminate()
        self.process.wait(30)


def post(path: str, body: bytes, json_length: int | None = None) -> bytes:
    """Return the bytes of a request."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    if json_length is not None:
        lines.append(f"Inference-Header-Content-Length: {json_length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def binary_request(path: str, name: str, x: np.ndarray[Any, Any]) -> bytes:
    """Return a request with a binary tensor, for a response in binary form."""
    tensor = {"name": name, "shape": list(x.shape), "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": x.nbytes}
    words = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(words).encode()
    return post(path, head + x.tobytes(), len(head))


class Reply:
    """Response that arrives in pieces."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.size: int | None = None

    def add(self, piece: bytes) -> bool:
        """Add bytes; return whether the response is complete."""
        self.data += piece
        if self.size is None:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return False
            head = bytes(self.data[:end]).lower()
            length = head.partition(b"content-length: ")[2].partition(b"\r")[0]
            # The same name with the prefix "inference-" is a different header.
            if b"inference-header-content-length: " in head:
                lines = head.split(b"\r\n")
                (line,) = (x for x in lines if x.startswith(b"content-length"))
                length = line.partition(b":")[2]
            self.size = end + 4 + int(length)
        return len(self.data) >= self.size

    @property
    def status(self) -> int:
        """Return the status code."""
        return int(self.data[9:12])

    @property
    def body(self) -> bytes:
        """Return the bytes after the head."""
        return bytes(self.data).partition(b"\r\n\r\n")[2]

    def outputs(self) -> np.ndarray[Any, Any]:
        """Return its only tensor, in either form."""
        head, _, body = bytes(self.data).partition(b"\r\n\r\n")
        _, separator, tail = head.lower().partition(
            b"inference-header-content-length: "
        )
        if separator:
            length = int(tail.partition(b"\r")[0])
            (output,) = json.loads(body[:length])["outputs"]
            return np.frombuffer(body[length:], "<f4").reshape(output["shape"])
        value = json.loads(body)
        if "predictions" in value or isinstance(value["outputs"][0], list):
            return np.array(value.get("predictions", value.get("outputs")), "float32")
        (output,) = value["outputs"]
        return np.array(output["data"], "float32").reshape(output["shape"])


def load(
    server: ServerProcess,
    connections: int,
    next_request: Callable[[], tuple[bytes, Any] | None],
    take: Callable[[Any, Reply | None], None],
) -> None:
    """Keep some connections busy, with one request of each at a time.

    Args:
        server: the server.
        connections: their number.
        next_request: returns the request and the first argument of `take`; None ends
            the load.
        take: receives each response; None if the connection was closed before.
    """
    poll = selectors.DefaultSelector()
    pending: dict[socket.socket, tuple[Any, Reply]] = {}

    def send(client: socket.socket) -> bool:
        request = next_request()
        if request is not None:
            data, about = request
            client.sendall(data)
            pending[client] = about, Reply()
        return request is not None

    def leave(client: socket.socket) -> None:
        poll.unregister(client)
        client.close()
        pending.pop(client, None)

    for _ in range(connections):
        client = server.connect()
        poll.register(client, selectors.EVENT_READ)
        if not send(client):
            leave(client)
    while pending:
        for key, _ in poll.select():
            assert isinstance(key.fileobj, socket.socket)
            client = key.fileobj
            about, reply = pending[client]
            piece = client.recv(1 << 18)
            if piece and not reply.add(piece):
                continue
            take(about, reply if piece else None)
            if not piece or not send(client):
                leave(client)


def ask(server: ServerProcess, data: bytes) -> Reply | None:
    """Return the response to one request on a new connection, or None."""
    reply = Reply()
    with closing(server.connect()) as client:
        client.sendall(data)
        while piece := client.recv(1 << 18):
            if reply.add(piece):
                return reply
    return None


class Handler(BaseHTTPRequestHandler):
    """Handler of `http.server`, for a request with a binary tensor of one row."""

    protocol_version = "HTTP/1.1"
    compute: Callable[[Any], Any]

    def do_POST(self) -> None:
        """Answer a request; one write for head and body avoids a 40 ms delay."""
        length = int(self.headers["Inference-Header-Content-Length"])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        (entry,) = json.loads(body[:length])["inputs"]
        x = np.frombuffer(body, "<f4", offset=length).reshape(entry["shape"])
        y = type(self).compute(toolkit.ops.convert_to_tensor(x)).numpy()
        tensor = {"name": "y", "datatype": "FP32", "shape": list(y.shape)}
        tensor["parameters"] = {"binary_data_size": y.nbytes}
        head = json.dumps({"model_name": "mlp", "outputs": [tensor]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(head) + y.nbytes))
        self.send_header("Inference-Header-Content-Length", str(len(head)))
        self._headers_buffer.append(b"\r\n")
        written = b"".join(self._headers_buffer) + head + y.tobytes()
        self._headers_buffer = []
        self.wfile.write(written)

    def log_message(self, *args: Any) -> None:
        """Suppress the log."""


def main() -> None:
    """Serve a model by `http.server`."""
    port, path = int(sys.argv[1]), sys.argv[2]
    model = toolkit.saving.load_model(path, compile=False)
    Handler.compute = toolkit.function(lambda x: model(x, training=False))
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
