"""TCP side channel for status requests between ranks, independent of collectives.

Each rank answers in a separate thread. The job's group exchanges addresses and a secret
of each rank. A connection must prove that it has the secret before the listener parses
data. The messages are lines of JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from toolkit.comm.authentication import Acceptor, authenticate
from toolkit.comm.group import Group, exchange
from toolkit.errors import CommunicationError
from toolkit.processes.threads import map_in_threads

# The result of `send_request` for a process that has ended.
PROCESS_ENDED = "gone"
# Seconds to wait for an answer; a stopped or swapping rank needs longer.
REQUEST_TIMEOUT = 0.6
_MAX_MESSAGE = 1 << 20  # bytes of a request or an answer
_ATTEMPTS = 2  # retries for a rank that has too many connections
_MAX_THREADS = 32  # for requests to several ranks

# A request and its response as JSON values.
Request: TypeAlias = dict[str, Any]
Response: TypeAlias = Any
Handler: TypeAlias = Callable[[Request], Response]


class Address(NamedTuple):
    """Address and process of a rank's listener."""

    host: str
    port: int
    secret: str
    machine: str
    pid: int


class SideChannel:
    """Endpoint of this rank.

    Args:
        group: the group of the job; all its ranks create one.
        handle_request: a function from a request dict to the response.

    Attributes:
        addresses: the addresses of all ranks.
    """

    def __init__(self, group: Group, handle_request: Handler) -> None:
        machine = socket.gethostname()
        is_one_machine = len(set(exchange(group, machine))) == 1
        host = "127.0.0.1" if is_one_machine else machine
        self._handle_request = handle_request
        self._secret = secrets.token_hex(16)
        listen_address = ("127.0.0.1" if is_one_machine else "", 0)
        self._socket = socket.create_server(listen_address, backlog=128)
        port = self._socket.getsockname()[1]
        address = Address(host, port, self._secret, machine, os.getpid())
        self.addresses = [Address(*fields) for fields in exchange(group, list(address))]
        self._acceptor = Acceptor(self._socket, self._secret.encode())
        self._thread = threading.Thread(
            target=self._serve, name="toolkit side channel", daemon=True
        )
        self._thread.start()

    def send_request(
        self, rank: int, request: Request, timeout: float = REQUEST_TIMEOUT
    ) -> Response:
        """Return the answer of one rank, or None after `timeout` seconds.

        Return `PROCESS_ENDED` if the listener does not exist any more.
        """
        address, line = self.addresses[rank], json.dumps(request) + "\n"
        response = None
        for _ in range(_ATTEMPTS):
            try:
                with socket.create_connection(
                    (address.host, address.port), timeout=timeout
                ) as connection:
                    authenticate(connection, address.secret.encode(), timeout)
                    connection.sendall(line.encode())
                    return _receive_json(connection, timeout)
            except ConnectionRefusedError:
                return PROCESS_ENDED
            except CommunicationError:
                # A process of another job listens at this address.
                response = PROCESS_ENDED
            except (ConnectionError, EOFError):
                response = None  # the rank ended, or had too many connections
            except (OSError, ValueError, RecursionError):
                return None
        return response

    def send_requests(
        self, ranks: Sequence[int], request: Request
    ) -> dict[int, Response]:
        """Return the answers of several ranks, requested in parallel."""
        responses = map_in_threads(
            lambda rank: self.send_request(rank, request), ranks, _MAX_THREADS
        )
        return dict(zip(ranks, responses, strict=True))

    def close(self) -> None:
        """Stop answering."""
        # Closing the socket does not wake a thread in accept.
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._acceptor.accept()
            except (OSError, ValueError):  # the socket was closed
                self._acceptor.close()
                return
            with connection:
                try:
                    self._respond(connection)
                except Exception:
                    continue  # an invalid request gets no answer

    def _respond(self, connection: socket.socket) -> None:
        request = _receive_json(connection, REQUEST_TIMEOUT)
        response = json.dumps(self._handle_request(request)) + "\n"
        connection.sendall(response.encode())


def _receive_json(connection: socket.socket, timeout: float) -> Response:
    """Return the value of the next line, complete within `timeout` seconds."""
    deadline, received = time.monotonic() + timeout, bytearray()
    while not received.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(1 << 16)
        if not chunk:
            raise EOFError("side channel: no complete line was received")
        received += chunk
        if len(received) > _MAX_MESSAGE:
            raise ValueError("side channel: a line is too long")
        if time.monotonic() > deadline:
            raise TimeoutError("side channel: a line is late")
    return json.loads(received)
