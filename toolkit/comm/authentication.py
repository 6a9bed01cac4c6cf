"""Connections between processes that know a secret; all others are closed unread.

The process that listens sends random bytes. The other one answers with random bytes,
and an HMAC of both under the secret, and gets another HMAC back. So both know that the
other side has the secret, and nobody who listens to the network learns it. Until then
at most `_PROOF` bytes of a connection are read, and nothing is parsed.
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
# Seconds in which a connection must prove that it knows the secret.
PATIENCE = 5.0
# Connections that may do so at a time. The oldest one makes room for a new one.
MOST_WAITING = 256
# Seconds after which a closed listener is noticed on systems that do not tell.
_LOOK = 1.0
_CLOSED = (errno.EINVAL, errno.EBADF, errno.ENOTSOCK)


def authenticate(connection: socket.socket, secret: bytes, seconds: float) -> None:
    """Prove to the listening process that this one knows the secret, and the reverse.

    Args:
        connection: to a `Gate`. It has this timeout afterwards.
        secret: of both processes.
        seconds: how long it may take in all.

    Raises:
        CommunicationError: if the other process does not know the secret, or says so of
            this one.
        OSError: if the connection fails.
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
        connection: where they come from.
        count: how many.
        end: the `time.monotonic` by which all must be there.

    Raises:
        EOFError: if the connection ends before.
        TimeoutError: if they are late.
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
    """A connection that has not proved anything yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.end = time.monotonic() + PATIENCE
        self.nonce = secrets.token_bytes(_NONCE)
        self.received = b""


class Gate:
    """Accepts the connections of processes that know a secret.

    One thread calls `accept`. Any number of strangers that connect and send nothing, or
    one byte at a time, do not delay it.

    Args:
        listener: a socket that listens.
        secret: of all processes that may connect.
    """

    def __init__(self, listener: socket.socket, secret: bytes) -> None:
        self._listener, self._secret = listener, secret
        self._waiting: dict[socket.socket, _Candidate] = {}  # the oldest one first
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def accept(self) -> socket.socket:
        """Wait for a connection that has proved that it knows the secret.

        Raises:
            OSError: if the listener was closed.
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
        """Close the listener and all connections that have proved nothing."""
        for connection in list(self._waiting):
            self._drop(connection)
        self._selector.close()
        self._listener.close()

    def _pause(self) -> float:
        ends = [candidate.end for candidate in self._waiting.values()]
        return max(0.0, min(_LOOK, min(ends, default=float("inf")) - time.monotonic()))

    def _let_in(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _CLOSED:
                raise
            time.sleep(0.05)  # too many open files, for example
            return
        if len(self._waiting) >= MOST_WAITING:
            self._drop(next(iter(self._waiting)))
        connection.setblocking(False)
        candidate = self._waiting[connection] = _Candidate(connection)
        self._selector.register(connection, selectors.EVENT_READ)
        try:
            connection.send(candidate.nonce)  # a new connection has room for it
        except OSError:
            self._drop(connection)

    def _proves(self, connection: socket.socket) -> bool:
        """Read what a connection has sent; whether it is a whole proof."""
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
