"""Questions between ranks beside their collectives, over TCP: where does each stand?

Each rank answers in a thread of its own. Addresses and a secret of each are exchanged
over the job's group; whoever does not know the secret gets no answer. Lines of JSON go
both ways.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from toolkit.comm.group import Group, exchange

# What `ask` returns for a process that has ended.
GONE = "gone"
# A rank that is stopped or swaps does not answer within so many seconds.
PATIENCE = 0.6
_LONGEST = 1 << 20  # bytes of a question or an answer

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
        address = self.addresses[rank]
        line = json.dumps({**question, "secret": address.secret}) + "\n"
        try:
            with socket.create_connection(
                (address.host, address.port), timeout=patience
            ) as connection:
                connection.sendall(line.encode())
                return json.loads(_line(connection))
        except (ConnectionError, EOFError):
            return GONE
        except (OSError, ValueError):
            return None

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
                connection, _ = self._socket.accept()
            except OSError:  # it was closed
                return
            with connection:
                try:
                    connection.settimeout(PATIENCE)
                    self._reply(connection)
                except (OSError, EOFError, ValueError, TypeError, KeyError):
                    continue  # what is no question gets no answer

    def _reply(self, connection: socket.socket) -> None:
        question = json.loads(_line(connection))
        if hmac.compare_digest(str(question["secret"]), self._secret):
            reply = json.dumps(self._answer(question)) + "\n"
            connection.sendall(reply.encode())


def _line(connection: socket.socket) -> bytes:
    """What arrives up to the end of a line."""
    received = b""
    while not received.endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            raise EOFError("side channel: no whole line came")
        if len(received) > _LONGEST:
            raise ValueError("side channel: a line is too long")
        received += part
    return received
