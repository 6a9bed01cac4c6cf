"""Connections to other tasks, opened on demand and cached, and their failures."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any

from toolkit import settings
from toolkit.comm.authentication import authenticate
from toolkit.compat.tensorflow.v1.cluster import frames
from toolkit.compat.tensorflow.v1.cluster.spec import ClusterSpec, Task, host_and_port
from toolkit.compat.tensorflow.v1.cluster.token import token
from toolkit.errors import CommunicationError, RankLostError

# Seconds without any answer after which a task counts as lost.
PATIENCE = 60.0


def reply_timeout() -> float:
    """Return the timeout for answers of a task in seconds: TOOLKIT_TIMEOUT, or 60."""
    return settings.timeout(PATIENCE)


def connect(address: str, seconds: float, wait: bool = False) -> socket.socket:
    """Connect to an address.

    Args:
        address: "host:port".
        seconds: the timeout.
        wait: whether to retry while no server listens.

    Raises:
        OSError: if the connection fails.
        CommunicationError: if the task has another token.
    """
    secret = token()
    end = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection(host_and_port(address), seconds)
            break
        except ConnectionRefusedError:
            if not wait or time.monotonic() > end:
                raise
            time.sleep(0.05)
    try:
        authenticate(connection, secret, seconds)
    except CommunicationError as error:
        connection.close()
        raise CommunicationError(
            f"{address}: expected a task with the same token; {error}. Tasks of other "
            "accounts or machines need the variable TOOLKIT_CLUSTER_TOKEN, with the "
            "same value for all"
        ) from error
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def task_lost_error(task: Task, address: str, reason: object) -> RankLostError:
    """Return the error of a lost task."""
    return RankLostError(f"{task} at {address} is lost: {reason}")


def readable(
    connections: Iterable[socket.socket], seconds: float = 0.0
) -> list[socket.socket]:
    """Return the connections with received data, or closed ones.

    `select` is not used, because it supports only the first 1,024 files of a process.
    """
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        return [key.data for key, _ in selector.select(seconds)]


class Peers:
    """Connections for values that a task sends to other tasks.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: ClusterSpec) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._peers: dict[Task, tuple[threading.Lock, list[socket.socket]]] = {}

    def send(self, task: Task, header: dict[str, Any], arrays: list[Any]) -> None:
        """Send a message to a task, without a reply.

        Raises:
            RankLostError: if the task does not exist, or does not receive.
        """
        address = self._cluster.task_address(*task)
        with self._lock:
            lock, connections = self._peers.setdefault(task, (threading.Lock(), []))
        with lock:
            try:
                if connections and _is_closed(connections[0]):
                    connections.pop().close()
                if not connections:
                    connections.append(connect(address, reply_timeout()))
                    connections[0].settimeout(reply_timeout())
                frames.send(connections[0], header, arrays)
            except OSError as error:
                while connections:
                    connections.pop().close()
                raise task_lost_error(task, address, error) from error

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for _, connections in self._peers.values():
                while connections:
                    connections.pop().close()


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the peer, which never sends data, has closed the connection."""
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(reply_timeout())
