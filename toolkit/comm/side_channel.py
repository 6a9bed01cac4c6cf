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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from toolkit.comm.authentication import Gate, authenticate
from toolkit.comm.group import Group, exchange
from toolkit.errors import CommunicationError

# The result of `ask` for a process that has ended.
GONE = "gone"
# Seconds to wait for an answer; a stopped or swapping rank needs longer.
PATIENCE = 0.6
_MAX_MESSAGE = 1 << 20  # bytes of a request or an answer
_ATTEMPTS = 2  # retries for a rank that has too many connections

Answer = Callable[[dict[str, Any]], Any]


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
        answer: a function from a request dict to the response.

    Attributes:
        addresses: the addresses of all ranks.
    """

    def __init__(self, group: Group, answer: Answer) -> None:
        machine = socket.gethostname()
        one_machine = len(set(exchange(group, machine))) == 1
        host = "127.0.0.1" if one_machine else machine
        self._answer = answer
        self._secret = secrets.token_hex(16)
        listen_at = ("127.0.0.1" if one_machine else "", 0)
        self._socket = socket.create_server(listen_at, backlog=128)
        port = self._socket.getsockname()[1]
        mine = Address(host, port, self._secret, machine, os.getpid())
        self.addresses = [Address(*told) for told in exchange(group, list(mine))]
        self._gate = Gate(self._socket, self._secret.encode())
        self._thread = threading.Thread(
            target=self._serve, name="toolkit side channel", daemon=True
        )
        self._thread.start()

    def ask(
        self, rank: int, question: dict[str, Any], patience: float = PATIENCE
    ) -> Any:
        """Return the answer of one rank, or None after `patience` seconds.

        Return `GONE` if the listener does not exist any more.
        """
        address, line = self.addresses[rank], json.dumps(question) + "\n"
        answer = None
        for _ in range(_ATTEMPTS):
            try:
                with socket.create_connection(
                    (address.host, address.port), timeout=patience
                ) as connection:
                    authenticate(connection, address.secret.encode(), patience)
                    connection.sendall(line.encode())
                    return _receive_json(connection, patience)
            except ConnectionRefusedError:
                return GONE
            except CommunicationError:
                answer = GONE  # a process of another job listens at this address
            except (ConnectionError, EOFError):
                answer = None  # the rank ended, or had too many connections
            except (OSError, ValueError, RecursionError):
                return None
        return answer

    def ask_all(self, ranks: list[int], question: dict[str, Any]) -> dict[int, Any]:
        """Return the answers of several ranks, requested in parallel."""
        if not ranks:
            return {}
        with ThreadPoolExecutor(min(len(ranks), 32)) as pool:
            answers = pool.map(lambda rank: self.ask(rank, question), ranks)
            return dict(zip(ranks, answers, strict=True))

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
                connection = self._gate.accept()
            except (OSError, ValueError):  # the socket was closed
                self._gate.close()
                return
            with connection:
                try:
                    self._reply(connection)
                except Exception:
                    continue  # an invalid request gets no answer

    def _reply(self, connection: socket.socket) -> None:
        question = _receive_json(connection, PATIENCE)
        reply = json.dumps(self._answer(question)) + "\n"
        connection.sendall(reply.encode())


def _receive_json(connection: socket.socket, patience: float) -> Any:
    """Return the value of the next line, complete within `patience` seconds."""
    end, received = time.monotonic() + patience, bytearray()
    while not received.endswith(b"\n"):
        connection.settimeout(max(0.001, end - time.monotonic()))
        part = connection.recv(1 << 16)
        if not part:
            raise EOFError("side channel: no whole line came")
        received += part
        if len(received) > _MAX_MESSAGE:
            raise ValueError("side channel: a line is too long")
        if time.monotonic() > end:
            raise TimeoutError("side channel: a line is late")
    return json.loads(received)
