"""Questions between ranks beside their collectives, over TCP: where does each stand?

Each rank answers in a thread of its own. Addresses and a secret of each are exchanged
over the job's group. A connection must prove that it knows the secret before anything
of it is parsed. Then lines of JSON go both ways.
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

# What `ask` returns for a process that has ended.
GONE = "gone"
# A rank that is stopped or swaps does not answer within so many seconds.
PATIENCE = 0.6
_LONGEST = 1 << 20  # bytes of a question or an answer
_ATTEMPTS = 2  # to reach a rank that may have too many connections at the moment

Answer = Callable[[dict[str, Any]], Any]


class Address(NamedTuple):
    """Where a rank listens, and which process it is."""

    host: str
    port: int
    secret: str
    machine: str
    pid: int


class SideChannel:
    """This rank's end.

    Args:
        group: the job's; all its ranks make one.
        answer: is given a question, as a dict, and returns what is sent back.

    Attributes:
        addresses: of all ranks.
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
        """The answer of one rank; None if it does not come in `patience` seconds.

        It is `GONE` if nobody listens there any more.
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
                    return _parsed(connection, patience)
            except ConnectionRefusedError:
                return GONE
            except CommunicationError:
                answer = GONE  # a process that is not of this job listens there
            except (ConnectionError, EOFError):
                answer = None  # it has ended, or had too many connections
            except (OSError, ValueError, RecursionError):
                return None
        return answer

    def ask_all(self, ranks: list[int], question: dict[str, Any]) -> dict[int, Any]:
        """The answers of several ranks, asked at once."""
        if not ranks:
            return {}
        with ThreadPoolExecutor(min(len(ranks), 32)) as pool:
            answers = pool.map(lambda rank: self.ask(rank, question), ranks)
            return dict(zip(ranks, answers, strict=True))

    def close(self) -> None:
        """Stop answering."""
        # Closing alone does not wake a thread that waits in accept.
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._gate.accept()
            except (OSError, ValueError):  # it was closed
                self._gate.close()
                return
            with connection:
                try:
                    self._reply(connection)
                except Exception:
                    continue  # what is no question gets no answer

    def _reply(self, connection: socket.socket) -> None:
        question = _parsed(connection, PATIENCE)
        reply = json.dumps(self._answer(question)) + "\n"
        connection.sendall(reply.encode())


def _parsed(connection: socket.socket, patience: float) -> Any:
    """Return the value of the next line, which must be whole in `patience` seconds."""
    end, received = time.monotonic() + patience, bytearray()
    while not received.endswith(b"\n"):
        connection.settimeout(max(0.001, end - time.monotonic()))
        part = connection.recv(1 << 16)
        if not part:
            raise EOFError("side channel: no whole line came")
        received += part
        if len(received) > _LONGEST:
            raise ValueError("side channel: a line is too long")
        if time.monotonic() > end:
            raise TimeoutError("side channel: a line is late")
    return json.loads(received)
