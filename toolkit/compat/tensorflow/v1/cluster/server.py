"""Server: a task of a cluster, in threads of this process."""

from __future__ import annotations

import socket
import threading
from typing import Any

from toolkit.comm.authentication import Gate
from toolkit.compat.tensorflow.v1.cluster import frames
from toolkit.compat.tensorflow.v1.cluster.frames import FrameError
from toolkit.compat.tensorflow.v1.cluster.peers import patience
from toolkit.compat.tensorflow.v1.cluster.service import Client, Service
from toolkit.compat.tensorflow.v1.cluster.spec import ClusterSpec, Task, host_and_port
from toolkit.compat.tensorflow.v1.cluster.token import token
from toolkit.errors import ArgumentError, CommunicationError, ToolkitError

MOST_CONNECTIONS = 4096
PROTOCOL = "tcp"


class Server:
    """A task of a cluster: it holds Variables and runs parts of graphs for Sessions.

    It listens at its address in the ClusterSpec and there alone. It answers processes
    that prove that they have the same token: the value of TOOLKIT_CLUSTER_TOKEN, or the
    content of a file that only this account can read and that the first one makes.
    Nothing is encrypted. The messages are data, with limits, and no code.

    Args:
        server_or_cluster_def: a ClusterSpec, or what makes one.
        job_name: of this task; may be left out if there is one job.
        task_index: of this task; may be left out if the job has one.
        protocol: None or "tcp".
        config: a `ConfigProto`; kept, and has no effect.
        start: whether to begin at once.

    Raises:
        ArgumentError: if there is no such task.
        CommunicationError: if its address cannot be listened at, or there is no token.

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
        self.task: Task = _chosen(self.cluster, job_name, task_index)
        self._socket: socket.socket | None = None
        self._ended = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        if start:
            self.start()

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Server:
        """A cluster of one task in this process, at a free port of this machine."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        return Server({"local": [f"127.0.0.1:{port}"]}, config=config, start=start)

    @property
    def target(self) -> str:
        """What a Session takes to run on this cluster."""
        return f"{PROTOCOL}://{self.cluster.task_address(*self.task)}"

    @property
    def server_def(self) -> dict[str, Any]:
        """The cluster and this task, as plain data."""
        cluster = self.cluster.as_cluster_def()
        return {
            "cluster": cluster,
            "job_name": self.task.job,
            "task_index": self.task.number,
        }

    def start(self) -> None:
        """Listen, and serve in threads; a second time it does nothing."""
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
        gate = Gate(self._socket, secret)
        threading.Thread(
            target=self._accept, args=(gate,), name=str(self.task), daemon=True
        ).start()

    def join(self) -> None:
        """Serve until the process ends, or `stop` is called."""
        while not self._ended.wait(3600):
            pass

    def stop(self) -> None:
        """End all connections, and forget the Variables."""
        self._ended.set()
        with self._lock:
            sockets = list(self._open)
        if self._socket is not None:
            sockets.append(self._socket)
            self.service.peers.close()
        for each in sockets:
            try:  # closing alone does not wake a thread that waits in it
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def _accept(self, gate: Gate) -> None:
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
            pass  # whoever it was has gone
        finally:
            client.close()
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _answer(self, client: Client, connection: socket.socket) -> bool:
        """Answer one message; whether there may be more."""
        try:
            header, arrays = frames.receive(connection, patience())
        except FrameError as error:
            self._tell(connection, error)
            return False  # where the next message begins is not known
        try:
            reply = client.answer(header, arrays)
        except (OSError, EOFError) as error:
            if not isinstance(error, ToolkitError):
                raise
            self._tell(connection, error)
        except Exception as error:  # of data that do not fit: the task lives on
            self._tell(connection, error)
        else:
            if reply is not None:
                frames.send(connection, *reply)
        return True

    def _tell(self, connection: socket.socket, error: Exception) -> None:
        names = [kind.__name__ for kind in type(error).__mro__]
        message = str(error) if isinstance(error, ToolkitError) else repr(error)
        header = {"type": "error", "kinds": names, "message": message[:10_000]}
        frames.send(connection, header)


def _chosen(cluster: ClusterSpec, job: str | None, index: int | None) -> Task:
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
    cluster.task_address(job, index)  # raises if there is none
    return Task(job, index)
