"""Authenticated connections between processes that share a secret.

The listening process sends a random nonce. The client answers with a nonce and an HMAC
of both nonces under the secret, and receives another HMAC. Both sides thus prove that
they have the secret, without sending it. Before the proof, the listener reads at most
`_PROOF` bytes of a connection and parses nothing. It closes all other connections.
"""

from __future__ import annotations

import errno
import hmac
import secrets
import selectors
import socket
import time

from toolkit.errors import CommunicationError

_NONCE = 32  # bytes
_DIGEST = 32  # bytes of HMAC-SHA256
_PROOF = _NONCE + _DIGEST
# Seconds in which a connection must prove that it has the secret.
PATIENCE = 5.0
# Maximum number of unauthenticated connections. A new one closes the oldest.
MAX_UNAUTHENTICATED = 256
# Seconds between checks for a closed listener, on systems that do not report it.
_POLL_SECONDS = 1.0
_CLOSED = (errno.EINVAL, errno.EBADF, errno.ENOTSOCK)


def authenticate(connection: socket.socket, secret: bytes, seconds: float) -> None:
    """Authenticate to the listening process, and verify it.

    Args:
        connection: a connection to a `Gate`. Afterwards it has this timeout.
        secret: the shared secret.
        seconds: the time limit.

    Raises:
        CommunicationError: the other process does not have the secret, or rejects this
            process.
        OSError: the connection fails.
    """
    end = time.monotonic() + seconds
    theirs = receive_exactly(connection, _NONCE, end)
    own = secrets.token_bytes(_NONCE)
    connection.sendall(own + _digest(secret, b"connects", theirs, own))
    try:
        answer = receive_exactly(connection, _DIGEST, end)
    except (EOFError, ConnectionError):
        answer = b""
    if not hmac.compare_digest(answer, _digest(secret, b"listens", own, theirs)):
        raise CommunicationError("the two processes do not know the same secret")
    connection.settimeout(seconds)


def receive_exactly(connection: socket.socket, count: int, end: float) -> bytes:
    """Return the next bytes of a connection.

    Args:
        connection: the connection.
        count: the number of bytes.
        end: the deadline, as `time.monotonic`.

    Raises:
        EOFError: the connection ends early.
        TimeoutError: the deadline passes.
    """
    received = bytearray()
    while len(received) < count:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the other process is late")
        connection.settimeout(left)
        part = connection.recv(min(count - len(received), 1 << 16))
        if not part:
            raise EOFError("the connection has ended")
        received += part
    return bytes(received)


def _digest(secret: bytes, role: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(secret, role + first + second, "sha256")


class _Candidate:
    """Unauthenticated connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.end = time.monotonic() + PATIENCE
        self.nonce = secrets.token_bytes(_NONCE)
        self.received = b""


class Gate:
    """Acceptor of authenticated connections.

    One thread calls `accept`. Strangers that connect and send nothing, or one byte at a
    time, do not delay it.

    Args:
        listener: a listening socket.
        secret: the shared secret.
    """

    def __init__(self, listener: socket.socket, secret: bytes) -> None:
        self._listener, self._secret = listener, secret
        self._waiting: dict[socket.socket, _Candidate] = {}  # oldest first
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def accept(self) -> socket.socket:
        """Wait for an authenticated connection.

        Raises:
            OSError: the listener was closed.
        """
        while True:
            for key, _ in self._selector.select(self._pause()):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is self._listener:
                    self._let_in()
                elif connection in self._waiting and self._proves(connection):
                    connection.setblocking(True)
                    return connection
            if self._listener.fileno() < 0:
                raise OSError(errno.EBADF, "the listener is closed")
            now = time.monotonic()
            for candidate in list(self._waiting.values()):
                if candidate.end <= now:
                    self._drop(candidate.connection)

    def close(self) -> None:
        """Close the listener and all unauthenticated connections."""
        for connection in list(self._waiting):
            self._drop(connection)
        self._selector.close()
        self._listener.close()

    def _pause(self) -> float:
        ends = [candidate.end for candidate in self._waiting.values()]
        return max(
            0.0, min(_POLL_SECONDS, min(ends, default=float("inf")) - time.monotonic())
        )

    def _let_in(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _CLOSED:
                raise
            time.sleep(0.05)  # for example, too many open files
            return
        if len(self._waiting) >= MAX_UNAUTHENTICATED:
            self._drop(next(iter(self._waiting)))
        connection.setblocking(False)
        candidate = self._waiting[connection] = _Candidate(connection)
        self._selector.register(connection, selectors.EVENT_READ)
        try:
            connection.send(candidate.nonce)  # a new connection has buffer space
        except OSError:
            self._drop(connection)

    def _proves(self, connection: socket.socket) -> bool:
        """Read the available bytes; return whether they complete a valid proof."""
        candidate = self._waiting[connection]
        try:
            part = connection.recv(_PROOF - len(candidate.received))
        except BlockingIOError:
            return False
        except OSError:
            part = b""
        candidate.received += part
        if part and len(candidate.received) < _PROOF:
            return False
        theirs, proof = candidate.received[:_NONCE], candidate.received[_NONCE:]
        expected = _digest(self._secret, b"connects", candidate.nonce, theirs)
        if not hmac.compare_digest(proof, expected):
            self._drop(connection)
            return False
        del self._waiting[connection]
        self._selector.unregister(connection)
        try:
            connection.send(_digest(self._secret, b"listens", theirs, candidate.nonce))
        except OSError:
            connection.close()
            return False
        return True

    def _drop(self, connection: socket.socket) -> None:
        del self._waiting[connection]
        self._selector.unregister(connection)
        connection.close()
