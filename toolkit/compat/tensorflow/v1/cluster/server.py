"""Server: a task of a cluster, in threads of the current process."""

from __future__ import annotations

import socket
import threading
from typing import Any

from toolkit.comm.authentication import Acceptor
from toolkit.compat.tensorflow.v1.cluster import frames
from toolkit.compat.tensorflow.v1.cluster.frames import FrameError
from toolkit.compat.tensorflow.v1.cluster.peers import reply_timeout
from toolkit.compat.tensorflow.v1.cluster.service import Client, Service
from toolkit.compat.tensorflow.v1.cluster.spec import ClusterSpec, Task, host_and_port
from toolkit.compat.tensorflow.v1.cluster.token import token
from toolkit.errors import ArgumentError, CommunicationError, ToolkitError

MOST_CONNECTIONS = 4096
PROTOCOL = "tcp"


class Server:
    """A task of a cluster: it stores Variables and runs parts of graphs for Sessions.

    It listens only at its address in the ClusterSpec. It answers only processes with
    the same token: the value of TOOLKIT_CLUSTER_TOKEN, or the content of a file that is
    private to the account and that the first process creates. There is no encryption.
    The messages are data, with limits, and contain no code.

    Args:
        server_or_cluster_def: a ClusterSpec, or its argument.
        job_name: of this task; optional for a cluster with one job.
        task_index: of this task; optional for a job with one task.
        protocol: None or "tcp".
        config: a `ConfigProto`; stored, without effect.
        start: whether to start immediately.

    Raises:
        ArgumentError: if the task does not exist.
        CommunicationError: if it cannot listen at its address, or there is no token.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> server = tf.train.Server.create_local_server()
        >>> with tf.Graph().as_default(), tf.Session(server.target) as session:
        ...     x = tf.placeholder("float32", (2,))
        ...     session.run(x + 1.0, {x: [1.0, 2.0]}).tolist()
        [2.0, 3.0]
        >>> server.stop()
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
    ) -> None:
        if protocol not in (None, PROTOCOL):
            raise ArgumentError(
                f"Server: expected protocol None or {PROTOCOL!r}; received {protocol!r}"
            )
        self.cluster: ClusterSpec = ClusterSpec(server_or_cluster_def)
        self.config = config
        self.task: Task = _resolve_task(self.cluster, job_name, task_index)
        self._socket: socket.socket | None = None
        self._ended = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        if start:
            self.start()

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Server:
        """Create a cluster of one task in this process, at a free local port."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        return Server({"local": [f"127.0.0.1:{port}"]}, config=config, start=start)

    @property
    def target(self) -> str:
        """Return the target for a Session on this cluster."""
        return f"{PROTOCOL}://{self.cluster.task_address(*self.task)}"

    @property
    def server_def(self) -> dict[str, Any]:
        """Return the cluster and this task as plain data."""
        cluster = self.cluster.as_cluster_def()
        return {
            "cluster": cluster,
            "job_name": self.task.job,
            "task_index": self.task.number,
        }

    def start(self) -> None:
        """Listen, and serve in threads; a second call does nothing."""
        if self._socket is not None:
            return
        address = self.cluster.task_address(*self.task)
        host, port = host_and_port(address)
        secret = token()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server(
                (host, port), family=family, backlog=128
            )
        except OSError as error:
            raise CommunicationError(
                f"Server {self.task}: cannot listen at {address}: {error}"
            ) from error
        self.service: Service = Service(self.cluster, self.task)
        gate = Acceptor(self._socket, secret)
        threading.Thread(
            target=self._accept, args=(gate,), name=str(self.task), daemon=True
        ).start()

    def join(self) -> None:
        """Serve until the process ends, or another thread calls `stop`."""
        while not self._ended.wait(3600):
            pass

    def stop(self) -> None:
        """Close all connections, and discard the Variables."""
        self._ended.set()
        with self._lock:
            sockets = list(self._open)
        if self._socket is not None:
            sockets.append(self._socket)
            self.service.peers.close()
        for connection in sockets:
            try:  # `close` does not wake a thread that waits in `accept`
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def _accept(self, gate: Acceptor) -> None:
        while not self._ended.is_set():
            try:
                connection = gate.accept()
            except (OSError, ValueError):  # the server was stopped
                break
            with self._lock:
                if self._ended.is_set() or len(self._open) >= MOST_CONNECTIONS:
                    connection.close()
                    continue
                self._open.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name=f"{self.task}", daemon=True
            ).start()
        gate.close()

    def _serve(self, connection: socket.socket) -> None:
        client = self.service.connected(connection)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._answer(client, connection):
                pass
        except (OSError, EOFError):
            pass  # the peer has closed the connection
        finally:
            client.close()
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _answer(self, client: Client, connection: socket.socket) -> bool:
        """Answer one message; return whether further messages are possible."""
        try:
            header, arrays = frames.receive(connection, reply_timeout())
        except FrameError as error:
            self._send_error(connection, error)
            return False  # the start of the next message is unknown
        try:
            reply = client.answer(header, arrays)
        except (OSError, EOFError) as error:
            if not isinstance(error, ToolkitError):
                raise
            self._send_error(connection, error)
        except Exception as error:  # for invalid data: the task must survive
            self._send_error(connection, error)
        else:
            if reply is not None:
                frames.send(connection, *reply)
        return True

    def _send_error(self, connection: socket.socket, error: Exception) -> None:
        names = [kind.__name__ for kind in type(error).__mro__]
        message = str(error) if isinstance(error, ToolkitError) else repr(error)
        header = {"type": "error", "kinds": names, "message": message[:10_000]}
        frames.send(connection, header)


def _resolve_task(cluster: ClusterSpec, job: str | None, index: int | None) -> Task:
    if job is None:
        if len(cluster.jobs) != 1:
            raise ArgumentError(
                f"Server: expected job_name, one of {', '.join(cluster.jobs)}"
            )
        (job,) = cluster.jobs
    if index is None:
        if cluster.num_tasks(job) != 1:
            raise ArgumentError(
                f"Server: expected task_index, one of {cluster.task_indices(job)}"
            )
        (index,) = cluster.task_indices(job)
    cluster.task_address(job, index)  # raises if the task does not exist
    return Task(job, index)
