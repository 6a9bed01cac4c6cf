"""Plans of sessions on a cluster: traced by the client, partitioned, run by the
tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.compat.tensorflow.modes import set_run
from toolkit.compat.tensorflow.tensor_classes import DIALECT
from toolkit.compat.tensorflow.v1.cluster import partition
from toolkit.compat.tensorflow.v1.cluster.master import Master, Message
from toolkit.compat.tensorflow.v1.cluster.spec import Task
from toolkit.compat.tensorflow.v1.plan import Plan, Run
from toolkit.compat.tensorflow.v1.tensors import GraphOperation, GraphStep
from toolkit.compat.tensorflow.v1.variables import GraphVariable
from toolkit.core.tensor import Tensor
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.definitions.records import record
from toolkit.errors import TraceError, UnsupportedError
from toolkit.ir import Node
from toolkit.thread_state import restore_on_error

if TYPE_CHECKING:
    from toolkit.ir import Graph

# Steps with only client-side effects: they run before each run.
_CLIENTS = ("MakeIterator",)
_WHY_NOT = {
    "Assert": "whether it raises depends on values, which a program does not inspect",
    "PyFunc": "it is Python code, but a task can only receive data",
}


@record
class Prepared:
    """A plan for arguments of some shapes, registered at tasks.

    Attributes:
        number: of the program.
        parts: the message with the part of each task.
        feeds: for each task, the indices of the arguments to send.
        results: of each fetch: None, an array, or the number of a value; or ("fed", i).
        awaited: a value, as in results, and by task the Variables that must exceed it.
    """

    number: int
    parts: dict[Task, Message]
    feeds: dict[Task, list[int]]
    results: list[Any]
    awaited: list[tuple[Any, dict[Task, list[str]]]]


class RemotePlan(Plan):
    """The operations for a set of fetches, computed by the tasks of a cluster."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._programs: dict[Any, Prepared] = {}
        steps = [(op, op.node.op) for op in self.operations]
        self._clients = [op for op, step in steps if op.type in _CLIENTS]
        self._checked_variables = list(
            dict.fromkeys(v for _, step in steps for v in getattr(step, "asks", ()))
        )
        for op, step in steps:
            uncompiled = isinstance(step, GraphStep) and not step.compiles
            if uncompiled and not step.asks and op.type not in ("Assign", *_CLIENTS):
                reason = _WHY_NOT.get(
                    op.type, "the shape of its result depends on values"
                )
                raise _unsupported_error(op, reason)

    def _check_places(self) -> None:
        """Do nothing: every task name is valid."""

    def __call__(self, values: Any) -> Any:
        for op in self._clients:
            op.node.op.function(self)
        fed = self.fed(values)
        master: Master = self.session.master
        flags = (
            master.are_initialized(map(self.locate, self._checked_variables))
            if self._checked_variables
            else ()
        )
        key = tuple((x.shape, x.dtype) for x in fed), tuple(flags)
        prepared = self._programs.get(key)
        if prepared is None:
            initialized = dict(zip(self._checked_variables, flags, strict=True))
            with self.session.lock:
                prepared = Tracing(self, fed, initialized).prepare()
            self._programs[key] = prepared
        arrays = [x.constant for x in fed]
        fetched = master.run(
            prepared.number,
            prepared.parts,
            {task: [arrays[i] for i in use] for task, use in prepared.feeds.items()},
        )
        results = [_result(x, fetched, arrays) for x in prepared.results]
        for value, names in prepared.awaited:
            number = int(_result(value, fetched, arrays))
            for task, variable_names in names.items():
                master.wait_above(task, variable_names, number)
        if self.sinks:
            self._call_sinks(results[len(self.fetches) :])
        return self.pack(results[: len(self.fetches)])

    def locate(self, variable: GraphVariable) -> tuple[Task, str]:
        """Return the task of a Variable, and its name on the task."""
        master: Master = self.session.master
        task, _ = master.task_of(variable.device, f"variable {variable.path}")
        return task, variable.path


def _result(result: Any, fetched: dict[int, Any], fed: list[Any]) -> Any:
    """Return the result of `session.run` for a fetch."""
    if isinstance(result, int):
        result = fetched[result]
    elif isinstance(result, tuple):
        result = fed[result[1]].copy()
    return result if result is None or result.ndim else result[()]


def _unsupported_error(operation: GraphOperation, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"operation {operation.name!r} ({operation.type}) cannot run on a task: "
        f"{reason}"
    )


class Tracing(Run):
    """A traced run: nodes have their operation and their task."""

    plan: RemotePlan

    def __init__(
        self, plan: RemotePlan, fed: Sequence[Tensor], initialized: dict[Any, bool]
    ) -> None:
        self._initialized = initialized
        self._trace = Trace("Session.run")
        self._where: dict[Node, tuple[Task, str | None]] = {}
        self._names: dict[Node, str] = {}
        self._operation = ""
        with restore_on_error(), DIALECT.activate(), self._trace as trace:
            stand_ins = tuple(trace.placeholder(x.spec) for x in fed)
            super().__init__(plan, stand_ins)
            with set_run(self):
                self._values = self.results()
                awaited = filter(None, map(_awaited, plan.operations))
                self._awaited = [
                    (self._initial_value(v), variables) for v, *variables in awaited
                ]

    # --- during the trace -------------------------------------------------------------

    def perform(self, operation: GraphOperation) -> None:
        self._operation = operation.name
        try:
            super().perform(operation)
        except TraceError as error:
            raise _unsupported_error(operation, str(error)) from error

    def on(self, where: str | None) -> AbstractContextManager[None]:
        return self._marking(where)

    @contextmanager
    def _marking(self, where: str | None) -> Iterator[None]:
        nodes = self._trace.nodes
        first = len(nodes)
        yield
        description = f"operation {self._operation!r}"
        location = self.session.master.task_of(where, description) if where else None
        for node in nodes[first:]:
            self._names.setdefault(node, self._operation)
            if location is not None:
                self._where.setdefault(node, location)

    def is_initialized(self, variable: Any) -> bool:
        return self._initialized.get(variable, False)

    # --- after the trace --------------------------------------------------------------

    def prepare(self) -> Prepared:
        """Partition the traced graph."""
        trace, session = self._trace, self.session
        tensors = [x for x in self._values if isinstance(x, Tensor)]
        read = [x for x, _ in self._awaited]
        full_graph = trace.finish([*tensors, *read, *trace.writes.values()])
        local = full_graph.outputs[: len(tensors)]
        graph = full_graph.pruned()
        master: Master = session.master
        where = {
            node: self._where.get(node, (master.default, None)) for node in graph.nodes
        }
        for node, (_, device) in where.items():
            node.device = device
        states = self._states(graph, where)
        captures: dict[Any, Any] = dict(trace.captures)
        locations = {
            v: states.get(v) or self._locate_cell(v) for v in (*captures, *trace.writes)
        }
        variables = {value: locations[v] for v, value in captures.items()}
        feeds = list(trace.inputs)
        fetched = [x for x in (*local, *read) if x.constant is None]
        cut = partition.Cut(
            partition.Run(
                graph,
                {node: task for node, (task, _) in where.items()},
                feeds,
                variables,
                [x for x in fetched if x not in set(feeds)],
                [(*locations[v], x) for v, x in trace.writes.items()],
                self._names,
            )
        )
        return self._build_prepared(cut, feeds, local, states)

    def _build_prepared(
        self, cut: Any, feeds: Any, local: Any, states: Any
    ) -> Prepared:
        messages: dict[Task, Message] = {}
        sent: dict[Task, list[int]] = {}
        for task, (description, arrays) in cut.messages().items():
            local_states = []
            for state, (name, owner) in states.items():
                if owner == task:
                    local_states.append([name, len(arrays)])
                    arrays.append(np.asarray(state))
            messages[task] = {**description, "locals": local_states}, arrays
            numbers = {cut.ids[x]: i for i, x in enumerate(feeds) if x in cut.ids}
            sent[task] = [numbers[number] for number in description["feeds"]]
        feed_indices = {x: i for i, x in enumerate(feeds)}
        remaining = iter(local)
        results = [
            _encode_fetch(next(remaining), cut.ids, feed_indices)
            if isinstance(x, Tensor)
            else x
            for x in self._values
        ]
        awaited = [
            (_encode_fetch(x, cut.ids, feed_indices), self._by_task(variables))
            for x, variables in self._awaited
        ]
        number = self.session.next_program()
        return Prepared(number, messages, sent, results, awaited)

    def _initial_value(self, variable: Variable) -> Tensor:
        """Return the value of a Variable at the start of the run: the fed one or its
        own."""
        if variable in self.symbol_values:
            return self.symbol_values[variable]
        return self._trace.capture(self.session.cell(variable))

    def _by_task(self, variables: Sequence[Any]) -> dict[Task, list[str]]:
        names_by_task: dict[Task, list[str]] = {}
        for task, name in map(self.plan.locate, variables):
            names_by_task.setdefault(task, []).append(name)
        return names_by_task

    def _locate_cell(self, cell: Variable) -> tuple[str, Task]:
        """Return the name and the task of the Variable for a local cell."""
        variable = self.session.variable_of(cell)
        if variable is None:
            raise UnsupportedError(
                f"variable {cell.path} cannot be on a task: it belongs to a layer or "
                "to eager mode, and this process stores it. Create it by "
                "tf.get_variable"
            )
        task, name = self.plan.locate(variable)
        return name, task

    def _states(self, graph: Graph, where: Any) -> dict[Variable, tuple[str, Task]]:
        """Return the states of random numbers, each on the task that draws them."""
        captures: dict[Any, Any] = dict(self._trace.captures)
        states: dict[Variable, tuple[str, Task]] = {}
        for v, value in captures.items():
            name = self.session.state_name(v)
            if name is not None:
                readers = (where[n][0] for n in graph.nodes if value in set(n.inputs))
                task = next(readers, self.session.master.default)
                states[v] = f"//{name}", task
        return states


def _encode_fetch(x: Any, ids: dict[Any, int], feeds: dict[Any, int]) -> Any:
    """Return a fetch: a constant array, a feed, or the number of a value."""
    if x.constant is not None:
        return x.constant
    return ("fed", feeds[x]) if x in feeds else ids[x]


def _awaited(operation: GraphOperation) -> tuple[Any, ...]:
    return getattr(operation.node.op, "awaits", ())


def master_of(target: str, config: Any) -> Master:
    """Create the master of a session.

    Raises:
        RankLostError: if no server answers at the target.
    """
    milliseconds = getattr(config, "operation_timeout_in_ms", 0) or 0
    return Master(target, milliseconds / 1000 or None)
