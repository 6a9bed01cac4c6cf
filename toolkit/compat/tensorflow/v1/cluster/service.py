"""The service of a task for its sessions: it stores parts of graphs, and runs them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolkit.compat.tensorflow.v1.cluster import frames
from toolkit.compat.tensorflow.v1.cluster.frames import FrameError, validate_spec
from toolkit.compat.tensorflow.v1.cluster.graph_codec import Decoder
from toolkit.compat.tensorflow.v1.cluster.mailbox import Mailbox
from toolkit.compat.tensorflow.v1.cluster.peers import Peers, readable
from toolkit.compat.tensorflow.v1.cluster.spec import ClusterSpec, Task
from toolkit.compat.tensorflow.v1.cluster.store import Cell, Store, lock_cells
from toolkit.compiler.mixed import compile_graph
from toolkit.core.tensor import backend
from toolkit.definitions.records import record
from toolkit.errors import CommunicationError, ShapeError
from toolkit.ir import Spec

MOST_SESSIONS = 1024
MOST_PROGRAMS = 1024  # of a session


class Aborted(CommunicationError):
    """Error of a run that the master has aborted."""


@record
class Step:
    """A part of a graph, ready to run; values have numbers."""

    run: Callable[[list[Any]], list[Any]] | None
    inputs: Sequence[tuple[int, Spec]]
    results: Sequence[int]
    takes: Sequence[int]
    reads: Sequence[tuple[Cell, int]]
    writes: Sequence[tuple[Cell, int]]
    gives: Sequence[tuple[int, Sequence[Task]]]
    fetches: Sequence[int]

    def compute(self, values: dict[int, Any]) -> None:
        """Read Variables, compute, and write them, atomically."""
        if not self.writes:
            with lock_cells(cell for cell, _ in self.reads):
                values.update((number, cell.read()) for cell, number in self.reads)
            self._run(values)
            return
        with lock_cells(cell for cell, _ in (*self.reads, *self.writes)):
            values.update((number, cell.read()) for cell, number in self.reads)
            self._run(values)
            for cell, number in self.writes:
                cell.write(values[number])

    def _run(self, values: dict[int, Any]) -> None:
        if self.run is not None:
            arrays = [values[number] for number, _ in self.inputs]
            # Programs are machine code for these shapes, and do not check them.
            for x, (_, spec) in zip(arrays, self.inputs, strict=True):
                if tuple(x.shape) != spec.shape or x.dtype.name != spec.dtype:
                    raise ShapeError(
                        f"expected a value of {spec}; received one of shape "
                        f"{tuple(x.shape)} and dtype {x.dtype.name}"
                    )
            outputs = self.run(arrays)
            values.update(zip(self.results, outputs, strict=True))


@dataclass
class SessionState:
    """The state of one session of a client."""

    mailbox: Mailbox = field(default_factory=Mailbox)
    programs: dict[int, tuple[list[int], list[Step]]] = field(default_factory=dict)
    connections: int = 0


class Service:
    """The handlers of messages.

    Args:
        cluster: all tasks.
        task: this one.
    """

    def __init__(self, cluster: ClusterSpec, task: Task) -> None:
        self.cluster, self.task = cluster, task
        self.store: Store = Store()
        self.peers: Peers = Peers(cluster)
        self._sessions: dict[str, SessionState] = {}
        self._lock = threading.Lock()

    def connected(self, connection: socket.socket) -> Client:
        """Return the client of a new connection."""
        return Client(self, connection)

    def open(self, name: str) -> SessionState:
        """Add a connection to a session."""
        with self._lock:
            if len(self._sessions) >= MOST_SESSIONS and name not in self._sessions:
                raise FrameError(f"a task has at most {MOST_SESSIONS:,} sessions")
            state = self._sessions.setdefault(name, SessionState())
            state.connections += 1
            return state

    def session(self, name: Any) -> SessionState | None:
        """Return the session with this name, or None."""
        with self._lock:
            return self._sessions.get(name) if isinstance(name, str) else None

    def close(self, name: str) -> None:
        """Remove a connection; a session without connections is discarded."""
        with self._lock:
            state = self._sessions[name]
            state.connections -= 1
            if not state.connections:
                del self._sessions[name]
                self.store.forget(f"{name}/")


class Client:
    """One connection: from the client, or from another task that sends values.

    Args:
        service: of this task.
        connection: the connection.
    """

    def __init__(self, service: Service, connection: socket.socket) -> None:
        self.service, self.connection = service, connection
        self._name = ""
        self._state: SessionState | None = None
        self._number = -1  # of the run

    def answer(self, header: dict[str, Any], arrays: list[Any]) -> Any:
        """Return the reply to a message: a header, and arrays; None for no reply."""
        kind = header.get("type")
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        if handler is None:
            raise FrameError(f"{kind!r} is not a message type")
        return handler(self, header, arrays)

    def close(self) -> None:
        """Handle the end of the connection."""
        if self._state is not None:
            self.service.close(self._name)

    # --- handlers ---------------------------------------------------------------------

    def _hello(self, header: dict[str, Any], arrays: list[Any]) -> Any:
        """Return this task and the cluster."""
        service = self.service
        jobs = {
            job: {str(i): address for i, address in tasks.items()}
            for job, tasks in service.cluster.as_cluster_def().items()
        }
        return {"task": list(service.task), "cluster": jobs}, []

    def _open(self, header: dict[str, Any], arrays: list[Any]) -> Any:
        """Open a session, and return its registered programs."""
        name = header.get("session")
        if not isinstance(name, str) or not 16 <= len(name) <= 64 or self._state:
            raise FrameError("open: expected the name of a new session")
        self._name, self._state = name, self.service.open(name)
        return {"programs": list(self._state.programs)}, []

    def _give(self, header: dict[str, Any], arrays: list[Any]) -> None:
        """Receive a value from another task."""
        session = self.service.session(header.get("session"))
        run, number = _number(header, "run"), _number(header, "value")
        if session is not None and len(arrays) == 1:
            session.mailbox.put(run, number, arrays[0])

    def _known(self, header: dict[str, Any], arrays: list[Any]) -> Any:
        """Return for each Variable whether it has a value."""
        return {"known": self.service.store.are_initialized(_names(header))}, []

    def _assign(self, header: dict[str, Any], arrays: list[Any]) -> Any:
        """Assign a value to a Variable."""
        (array,) = arrays
        cell = self._cell(header.get("name"), [array.dtype.name, list(array.shape)])
        with lock_cells([cell]):
            cell.write(array)
        return {}, []

    def _wait(self, header: dict[str, Any], arrays: list[Any]) -> Any:
        """Reply as soon as Variables are above a number."""
        seconds = float(header.get("patience", 0))
        for name in _names(header):
            cell = self.service.store.existing(name)
            cell.wait_above(_number(header, "above"), seconds, self._check)
        return {}, []

    def _register(self, header: dict[str, Any], arrays: list[Any]) -> Any:
        """Register a part of a graph."""
        state = self._session()
        for number in header.get("forget", []):
            state.programs.pop(number, None)
        if len(state.programs) >= MOST_PROGRAMS:
            raise FrameError(f"a session has at most {MOST_PROGRAMS:,} programs")
        for name, index in header.get("locals", []):  # states of random numbers
            array = arrays[index]
            cell = self._cell(name, [array.dtype.name, list(array.shape)])
            with lock_cells([cell]):
                if cell.array is None:
                    cell.write(array)
        steps = [self._step(data, arrays) for data in header["parts"]]
        feeds = [int(i) for i in header["feeds"]]
        state.programs[_number(header, "program")] = feeds, steps
        return {}, []

    def _run(self, header: dict[str, Any], arrays: list[Any]) -> Any:
        """Run a registered part; the reply has the fetched values."""
        state = self._session()
        program = state.programs.get(_number(header, "program"))
        if program is None:
            raise FrameError("run: no such program in this session")
        feeds, steps = program
        self._number = _number(header, "run")
        values = dict(zip(feeds, map(_to_backend, arrays), strict=True))
        fetched: dict[int, Any] = {}
        try:
            for step in steps:
                self._perform(step, values, fetched)
        finally:
            state.mailbox.end(self._number)
        arrays = [_to_host(x) for x in fetched.values()]
        return {"fetched": list(fetched)}, arrays

    def _perform(
        self, step: Step, values: dict[int, Any], fetched: dict[int, Any]
    ) -> None:
        mailbox = self._session().mailbox
        for number in step.takes:
            if number not in values:
                values[number] = _to_backend(
                    mailbox.take(self._number, number, self._check)
                )
        step.compute(values)
        fetched.update((number, values[number]) for number in step.fetches)
        for number, tasks in step.gives:
            header = {
                "type": "give",
                "session": self._name,
                "run": self._number,
                "value": number,
            }
            for task in tasks:
                self.service.peers.send(task, header, [_to_host(values[number])])

    def _ping(self, header: dict[str, Any], arrays: list[Any]) -> Any:
        """Reply to a liveness check."""
        return {}, []

    def _abort(self, header: dict[str, Any], arrays: list[Any]) -> None:
        """Do nothing: the aborted run has already ended on this task."""

    # --- helpers ----------------------------------------------------------------------

    def _session(self) -> SessionState:
        if self._state is None:
            raise FrameError("expected a session to be opened first")
        return self._state

    def _check(self) -> None:
        """Raise if the master has closed the connection, or has aborted the run."""
        if readable([self.connection]):
            # EOFError: the connection is closed
            header, _ = frames.receive(self.connection, 5.0)
            raise Aborted(f"aborted: {header.get('reason', '')}")

    def _cell(self, name: Any, spec: Any) -> Cell:
        dtype, shape = validate_spec(spec)
        if not isinstance(name, str) or not 0 < len(name) < 4096:
            raise FrameError(f"expected the name of a Variable; received {name!r}")
        if name.startswith("//"):  # local to the session
            name = f"{self._name}{name[1:]}"
        return self.service.store.cell(name, Spec(shape, dtype))

    def _step(self, data: Any, arrays: list[Any]) -> Step:
        graph = Decoder(arrays).graph(data["graph"])
        run = compile_graph(graph, backend(), True, ()) if graph.outputs else None
        numbers = [number for number, *_ in data["graph"]["inputs"]]
        specs = [x.spec for x in graph.inputs]
        inputs = list(zip(numbers, specs, strict=True))
        return Step(
            run,
            inputs,
            [int(i) for i in data["results"]],
            [int(i) for i in data["takes"]],
            [(self._cell(n, spec), int(i)) for n, *spec, i in data["reads"]],
            [(self._cell(n, spec), int(i)) for n, *spec, i in data["writes"]],
            [(int(i), [self._task(task) for task in to]) for i, to in data["gives"]],
            [int(i) for i in data["fetches"]],
        )

    def _task(self, data: Any) -> Task:
        task = Task(*data)
        self.service.cluster.task_address(*task)  # raises if the task does not exist
        return task


def _number(header: dict[str, Any], key: str) -> int:
    number = header.get(key)
    if type(number) is not int:
        raise FrameError(f"{header.get('type')}: expected a number as {key}")
    return number


def _names(header: dict[str, Any]) -> list[str]:
    names = header.get("names")
    if not isinstance(names, list):
        raise FrameError(f"{header.get('type')}: expected a list of names")
    return list(map(str, names))


def _to_backend(array: Any) -> Any:
    """Convert a received array to an array of the active backend."""
    return backend().memory.asarray(array, None)


def _to_host(array: Any) -> Any:
    """Convert an array of the backend to one in host memory."""
    return np.asarray(backend().memory.to_numpy(array))


_HANDLERS: dict[str, Callable[[Client, dict[str, Any], list[Any]], Any]] = {
    name: vars(Client)[f"_{name}"]
    for name in (
        *("hello", "open", "give", "known", "assign", "wait", "register", "run"),
        *("ping", "abort"),
    )
}
