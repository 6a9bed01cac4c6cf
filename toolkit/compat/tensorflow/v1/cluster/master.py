"""The master: the client side of a cluster, which sends graph parts and starts runs."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from toolkit import errors
from toolkit.compat.tensorflow.v1.cluster import frames
from toolkit.compat.tensorflow.v1.cluster.peers import (
    connect,
    readable,
    reply_timeout,
    task_lost_error,
)
from toolkit.compat.tensorflow.v1.cluster.spec import ClusterSpec, Task
from toolkit.compat.tensorflow.v1.placement import Place, parse
from toolkit.compat.tensorflow.v1.plan import FailedPreconditionError
from toolkit.errors import (
    ArgumentError,
    CommunicationError,
    RankLostError,
    StalledError,
    ToolkitError,
)

# Each task keeps this number of most recently used programs of a session.
MOST_PROGRAMS = 512
# Interval in seconds between liveness checks of a silent task.
PING = 2.0
Message = tuple[dict[str, Any], Sequence[Any]]
_KINDS: dict[str, type[ToolkitError]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ToolkitError)
    if kind is not errors.UnsupportedOnBackend
} | {"FailedPreconditionError": FailedPreconditionError}


class Master:
    """The connections of a session to its cluster.

    Args:
        target: of the server that reports the cluster, "tcp://host:port".
        deadline: the maximum seconds of a run; None: unlimited.

    Attributes:
        cluster: the tasks.
        default: the task of operations without a device: the task of the target.
    """

    cluster: ClusterSpec
    default: Task

    def __init__(self, target: str, deadline: float | None = None) -> None:
        scheme, _, address = target.partition("://")
        if scheme not in ("tcp", "grpc") or not address:
            raise ArgumentError(
                "Session: expected a target '' or 'tcp://host:port', such as "
                f"server.target; received {target!r}"
            )
        self._deadline = deadline
        self._name = secrets.token_hex(16)
        self._runs = count()
        self._lock = threading.Lock()
        self._idle: list[dict[Task, socket.socket]] = []
        self._met: set[Task] = set()
        # The registered programs of a task, in the order of their use.
        self._registered: defaultdict[Task, dict[int, None]] = defaultdict(dict)
        self.cluster, self.default = _request_cluster(address)

    def task_of(self, device: str | None, operand: str) -> tuple[Task, str | None]:
        """Return the task and the local device of a device name.

        Raises:
            ArgumentError: if the task does not exist.
        """
        requested = Place() if device is None else parse(device)
        job = self.default.job if requested.job is None else requested.job
        index = requested.task
        if index is None:
            index = self.default.number if job == self.default.job else 0
        try:
            self.cluster.task_address(job, index)
        except ToolkitError as error:
            raise ArgumentError(f"{operand} is placed on {device}: {error}") from None
        return Task(job, index), requested.device

    # --- runs -------------------------------------------------------------------------

    def run(
        self,
        program: int,
        messages_by_task: Mapping[Task, Message],
        feeds: Mapping[Task, Sequence[Any]],
    ) -> dict[int, Any]:
        """Run the parts of a program on all its tasks; return the fetched values by
        number.

        Args:
            program: its number; a part is registered at a task that does not have it.
            messages_by_task: the message with the part of each task.
            feeds: the values to send to each task.
        """
        run = next(self._runs)
        header = {"type": "run", "program": program, "run": run}
        channels = self._take(messages_by_task)
        register = {
            task: (self._registration(task, program, description), arrays)
            for task, (description, arrays) in messages_by_task.items()
            if program not in self._registered[task]
        }
        self._exchange(channels, register, None)
        for task in messages_by_task:
            registered = self._registered[task]
            registered.pop(program, None)  # moves it to the end: most recently used
            registered[program] = None
        messages = {task: (header, feeds[task]) for task in messages_by_task}
        replies = self._exchange(channels, messages, run)
        self._give_back(channels)
        fetched: dict[int, Any] = {}
        for task, (reply, arrays) in replies.items():
            with _validate_replies(task):
                fetched.update(zip(reply["fetched"], arrays, strict=True))
        return fetched

    def _registration(
        self, task: Task, program: int, description: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the message that registers a program, and removes the oldest ones."""
        registered = self._registered[task]
        old = list(registered)[: max(0, len(registered) + 1 - MOST_PROGRAMS)]
        for number in old:
            del registered[number]
        return {**description, "type": "register", "program": program, "forget": old}

    def ask(
        self, task: Task, header: dict[str, Any], arrays: Sequence[Any] = ()
    ) -> Any:
        """Send a message to one task, and return the reply."""
        channels = self._take([task])
        reply = self._exchange(channels, {task: (header, arrays)}, None)[task]
        self._give_back(channels)
        return reply[0]

    def are_initialized(self, variables: Iterable[tuple[Task, str]]) -> list[bool]:
        """Return for each Variable whether it has a value."""
        requested = list(variables)
        flag_by_variable: dict[tuple[Task, str], bool] = {}
        for task in dict.fromkeys(task for task, _ in requested):
            names = [name for where, name in requested if where == task]
            flags = self.ask(task, {"type": "known", "names": names})["known"]
            pairs = zip(names, flags, strict=True)
            flag_by_variable.update(((task, name), flag) for name, flag in pairs)
        return [flag_by_variable[variable] for variable in requested]

    def assign(self, task: Task, name: str, array: Any) -> None:
        """Assign a value to a Variable."""
        self.ask(task, {"type": "assign", "name": name}, [array])

    def wait_above(self, task: Task, names: list[str], value: int) -> None:
        """Wait until all of some Variables are above a number.

        Raises:
            StalledError: the wait timed out.
        """
        seconds = self._deadline or reply_timeout()
        header = {"type": "wait", "names": names, "above": value, "patience": seconds}
        self.ask(task, header)

    def close(self) -> None:
        """Close all connections: tasks discard the session, but not its Variables."""
        with self._lock:
            idle, self._idle = self._idle, []
        for channels in idle:
            _close(channels)

    # --- connections ------------------------------------------------------------------

    def _take(self, tasks: Iterable[Task]) -> dict[Task, socket.socket]:
        """Take connections to at least these tasks, which no other thread uses."""
        with self._lock:
            channels = self._idle.pop() if self._idle else {}
        try:
            for task in tasks:
                if task in channels and readable([channels[task]]):
                    # a task sends only replies: the connection is closed
                    channels.pop(task).close()
                if task not in channels:
                    channels[task] = self._open_channel(task)
        except BaseException:
            _close(channels)
            raise
        return channels

    def _give_back(self, channels: dict[Task, socket.socket]) -> None:
        with self._lock:
            self._idle.append(channels)

    def _open_channel(self, task: Task) -> socket.socket:
        address = self.cluster.task_address(*task)
        seconds = reply_timeout()
        # at the start tasks appear in any order, but a known task is not waited for
        try:
            connection = connect(address, seconds, wait=task not in self._met)
        except OSError as error:
            raise task_lost_error(task, address, error) from error
        try:
            self._greet(connection, task, address)
        except BaseException:
            connection.close()
            raise
        return connection

    def _greet(self, connection: socket.socket, task: Task, address: str) -> None:
        """Verify the identity of a task, and open the session."""
        try:
            connection.settimeout(reply_timeout())
            frames.send(connection, {"type": "hello"})
            reply, _ = frames.receive(connection)
            frames.send(connection, {"type": "open", "session": self._name})
            opened, _ = frames.receive(connection)
            connection.settimeout(None)
        except (OSError, EOFError, CommunicationError) as error:
            raise task_lost_error(
                task, address, str(error) or "it has ended"
            ) from error
        with _validate_replies(task):
            cluster, found_task = _parse_identity(reply)
            programs = set(opened["programs"])  # empty after a restart of the task
        if (cluster, found_task) != (self.cluster, task):
            raise CommunicationError(
                f"{task} at {address}: expected this task of {self.cluster}; "
                f"received {found_task} of {cluster}"
            )
        self._met.add(task)
        for number in self._registered[task].keys() - programs:
            del self._registered[task][number]

    def _exchange(
        self,
        channels: dict[Task, socket.socket],
        messages: Mapping[Task, Message],
        run: int | None,
    ) -> dict[Task, Any]:
        """Send a message to each task, and wait for the replies.

        An error of one task aborts the run on all other tasks.
        """
        exchange = _Exchange(self.cluster, channels, self._deadline)
        try:
            replies = exchange(messages)
        # also for Ctrl-C: late replies would be read by the next run
        except BaseException:
            _close(channels)
            raise
        if exchange.error is not None:
            if exchange.broken:
                _close(channels)
            else:
                self._give_back(channels)
            raise exchange.error
        return replies


class _Exchange:
    """Messages to several tasks, and their replies."""

    def __init__(
        self,
        cluster: ClusterSpec,
        channels: dict[Task, socket.socket],
        deadline: float | None,
    ) -> None:
        self._cluster, self._channels = cluster, channels
        self._deadline = deadline
        self.error: ToolkitError | None = None
        self.broken = False
        self._waiting: set[Task] = set()
        self._alive: dict[Task, float] = {}

    def __call__(self, messages: Mapping[Task, Message]) -> dict[Task, Any]:
        begin = time.monotonic()
        replies: dict[Task, Any] = {}
        for task, message in messages.items():
            try:
                self._channels[task].settimeout(reply_timeout())
                frames.send(self._channels[task], *message)
                self._channels[task].settimeout(None)
                self._waiting.add(task)
            except OSError as error:
                self._fail(self._lost_error(task, error), True)
                break
        self._alive = dict.fromkeys(self._waiting, begin)
        while self._waiting:
            sockets = {self._channels[task]: task for task in self._waiting}
            answered = readable(sockets, PING)
            for channel in answered:
                self._receive(sockets[channel], replies)
            if not answered:
                self._check_liveness()
            if self._deadline and time.monotonic() - begin > self._deadline:
                tasks = ", ".join(map(str, sorted(self._waiting)))
                text = f"waited {self._deadline:g} s for {tasks}"
                self._fail(StalledError(f"Session.run: {text}"), True)
                return replies
        return replies

    def _receive(self, task: Task, replies: dict[Task, Any]) -> None:
        self._waiting.discard(task)
        try:
            reply, arrays = frames.receive(self._channels[task], reply_timeout())
        except (OSError, EOFError) as error:
            self._fail(self._lost_error(task, error), True)
            return
        if reply.get("type") == "error":
            names = map(str, reply.get("kinds") or ())
            kinds = (_KINDS[name] for name in names if name in _KINDS)
            kind = next(kinds, CommunicationError)
            self._fail(kind(f"{task}: {reply.get('message')}"), False)
            return
        replies[task] = reply, arrays

    def _check_liveness(self) -> None:
        """Check whether silent tasks are alive."""
        for task in list(self._waiting):
            address = self._cluster.task_address(*task)
            if _is_alive(address):
                self._alive[task] = time.monotonic()
            elif time.monotonic() - self._alive[task] > reply_timeout():
                self._waiting.discard(task)
                seconds = reply_timeout()
                self._fail(self._lost_error(task, f"no answer for {seconds:g} s"), True)

    def _lost_error(self, task: Task, reason: object) -> RankLostError:
        address = self._cluster.task_address(*task)
        return task_lost_error(task, address, reason or "it has ended")

    def _fail(self, error: ToolkitError, broken: bool) -> None:
        """Store the first error, and abort the run on all other tasks."""
        self.broken |= broken
        if self.error is not None:
            return
        self.error = error
        for task in self._waiting:
            try:
                frames.send(
                    self._channels[task], {"type": "abort", "reason": str(error)[:1000]}
                )
            except OSError:
                pass  # its own reply has the error


def _is_alive(address: str) -> bool:
    try:
        with connect(address, PING) as probe:
            probe.settimeout(PING)
            frames.send(probe, {"type": "ping"})
            frames.receive(probe)
            return True
    except (OSError, EOFError, CommunicationError):
        return False


def _request_cluster(address: str) -> tuple[ClusterSpec, Task]:
    """Request the cluster and the task of a server."""
    try:
        with connect(address, reply_timeout(), wait=True) as connection:
            connection.settimeout(reply_timeout())
            frames.send(connection, {"type": "hello"})
            reply, _ = frames.receive(connection)
    except (OSError, EOFError, CommunicationError) as error:
        raise RankLostError(
            f"Session: no server answers at {address}: {error}"
        ) from error
    with _validate_replies(address):
        return _parse_identity(reply)


def _parse_identity(reply: dict[str, Any]) -> tuple[ClusterSpec, Task]:
    """Parse the cluster and the task from a server's reply."""
    jobs = reply["cluster"].items()
    numbered = {job: {int(i): x for i, x in tasks.items()} for job, tasks in jobs}
    cluster, task = ClusterSpec(numbered), Task(*reply["task"])
    cluster.task_address(*task)  # raises if the task does not exist
    return cluster, task


@contextmanager
def _validate_replies(peer: object) -> Iterator[None]:
    """Raise a clear error for an invalid reply."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CommunicationError(
            f"{peer}: its answer is not from a server of this version: {error!r}"
        ) from error


def _close(channels: dict[Task, socket.socket]) -> None:
    for channel in channels.values():
        channel.close()
    channels.clear()
