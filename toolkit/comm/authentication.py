"""Authenticated connections between processes that share a secret.

The listening process sends a random nonce. The client answers with a nonce and an HMAC
of both nonces under the secret, and receives another HMAC. Both sides thus prove that
they have the secret, without sending it. Before the proof, the listener reads at most
`_PROOF_SIZE` bytes of a connection and parses nothing. It closes all other connections.
"""

from __future__ import annotations

import errno
import hmac
import secrets
import selectors
import socket
import time

from toolkit.errors import CommunicationError

_NONCE_SIZE = 32  # bytes
_DIGEST_SIZE = 32  # bytes of HMAC-SHA256
_PROOF_SIZE = _NONCE_SIZE + _DIGEST_SIZE
# Seconds in which a connection must prove that it has the secret.
AUTHENTICATION_TIMEOUT = 5.0
# Maximum number of unauthenticated connections. A new one closes the oldest.
MAX_UNAUTHENTICATED = 256
# Seconds between checks for a closed listener, on systems that do not report it.
_POLL_SECONDS = 1.0
_CLOSED_ERRORS = (errno.EINVAL, errno.EBADF, errno.ENOTSOCK)


def authenticate(connection: socket.socket, secret: bytes, timeout: float) -> None:
    """Authenticate to the listening process, and verify it.

    Args:
        connection: a connection to an `Acceptor`. Afterwards it has this timeout.
        secret: the shared secret.
        timeout: the time limit in seconds.

    Raises:
        CommunicationError: the other process does not have the secret, or rejects this
            process.
        OSError: the connection fails.
    """
    deadline = time.monotonic() + timeout
    peer_nonce = receive_exactly(connection, _NONCE_SIZE, deadline)
    nonce = secrets.token_bytes(_NONCE_SIZE)
    connection.sendall(nonce + _digest(secret, b"connects", peer_nonce, nonce))
    try:
        answer = receive_exactly(connection, _DIGEST_SIZE, deadline)
    except (EOFError, ConnectionError):
        answer = b""
    if not hmac.compare_digest(answer, _digest(secret, b"listens", nonce, peer_nonce)):
        raise CommunicationError("the two processes have different secrets")
    connection.settimeout(timeout)


def receive_exactly(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Return the next bytes of a connection.

    Args:
        connection: the connection.
        count: the number of bytes.
        deadline: the time limit, as `time.monotonic`.

    Raises:
        EOFError: the connection ends early.
        TimeoutError: the deadline passes.
    """
    received = bytearray()
    while len(received) < count:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the other process is late")
        connection.settimeout(remaining)
        chunk = connection.recv(min(count - len(received), 1 << 16))
        if not chunk:
            raise EOFError("the connection is closed")
        received += chunk
    return bytes(received)


def _digest(
    secret: bytes, role: bytes, first_nonce: bytes, second_nonce: bytes
) -> bytes:
    return hmac.digest(secret, role + first_nonce + second_nonce, "sha256")


class _Candidate:
    """Unauthenticated connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline = time.monotonic() + AUTHENTICATION_TIMEOUT
        self.nonce = secrets.token_bytes(_NONCE_SIZE)
        self.received = b""


class Acceptor:
    """Acceptor of authenticated connections.

    One thread calls `accept`. Strangers that connect and send nothing, or one byte at a
    time, do not delay it.

    Args:
        listener: a listening socket.
        secret: the shared secret.
    """

    def __init__(self, listener: socket.socket, secret: bytes) -> None:
        self._listener, self._secret = listener, secret
        self._candidates: dict[socket.socket, _Candidate] = {}  # oldest first
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def accept(self) -> socket.socket:
        """Wait for an authenticated connection.

        Raises:
            OSError: the listener was closed.
        """
        while True:
            for key, _ in self._selector.select(self._select_timeout()):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is self._listener:
                    self._accept_candidate()
                elif connection in self._candidates and self._check_proof(connection):
                    connection.setblocking(True)
                    return connection
            if self._listener.fileno() < 0:
                raise OSError(errno.EBADF, "the listener is closed")
            current_time = time.monotonic()
            for candidate in list(self._candidates.values()):
                if candidate.deadline <= current_time:
                    self._close_candidate(candidate.connection)

    def close(self) -> None:
        """Close the listener and all unauthenticated connections."""
        for connection in list(self._candidates):
            self._close_candidate(connection)
        self._selector.close()
        self._listener.close()

    def _select_timeout(self) -> float:
        deadlines = [candidate.deadline for candidate in self._candidates.values()]
        return max(
            0.0,
            min(_POLL_SECONDS, min(deadlines, default=float("inf")) - time.monotonic()),
        )

    def _accept_candidate(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _CLOSED_ERRORS:
                raise
            time.sleep(0.05)  # for example, too many open files
            return
        if len(self._candidates) >= MAX_UNAUTHENTICATED:
            self._close_candidate(next(iter(self._candidates)))
        connection.setblocking(False)
        candidate = self._candidates[connection] = _Candidate(connection)
        self._selector.register(connection, selectors.EVENT_READ)
        try:
            connection.send(candidate.nonce)  # a new connection has buffer space
        except OSError:
            self._close_candidate(connection)

    def _check_proof(self, connection: socket.socket) -> bool:
        """Read the available bytes; return whether they complete a valid proof."""
        candidate = self._candidates[connection]
        try:
            chunk = connection.recv(_PROOF_SIZE - len(candidate.received))
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        candidate.received += chunk
        if chunk and len(candidate.received) < _PROOF_SIZE:
            return False
        peer_nonce, proof = (
            candidate.received[:_NONCE_SIZE],
            candidate.received[_NONCE_SIZE:],
        )
        expected = _digest(self._secret, b"connects", candidate.nonce, peer_nonce)
        if not hmac.compare_digest(proof, expected):
            self._close_candidate(connection)
            return False
        del self._candidates[connection]
        self._selector.unregister(connection)
        try:
            connection.send(
                _digest(self._secret, b"listens", peer_nonce, candidate.nonce)
            )
        except OSError:
            connection.close()
            return False
        return True

    def _close_candidate(self, connection: socket.socket) -> None:
        del self._candidates[connection]
        self._selector.unregister(connection)
        connection.close()
