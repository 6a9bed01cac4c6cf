"""Partition of a run's graph by task: inputs, outputs, and Variables of each part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.compat.tensorflow.v1.cluster.programs import Encoder
from toolkit.compat.tensorflow.v1.cluster.spec import Task
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Value


@dataclass
class Part:
    """Work of a task without a wait; all Variables are written at its end."""

    nodes: list[Node] = field(default_factory=list)
    takes: dict[Value, None] = field(default_factory=dict)
    reads: dict[Value, None] = field(default_factory=dict)
    results: dict[Value, None] = field(default_factory=dict)
    writes: dict[str, Value] = field(default_factory=dict)
    gives: dict[Value, dict[Task, None]] = field(default_factory=dict)
    fetches: dict[Value, None] = field(default_factory=dict)


@record
class Run:
    """A graph to partition.

    Attributes:
        graph: pruned.
        where: the task of each node.
        feeds: values that the master sends to the tasks that read them.
        variables: of inputs that are Variables: their name and task.
        fetches: values to return to the master.
        writes: of Variables that change: name, task and new value.
        names: of the operations of nodes, for errors.
    """

    graph: Graph
    where: Mapping[Node, Task]
    feeds: Sequence[Value]
    variables: Mapping[Value, tuple[str, Task]]
    fetches: Sequence[Value]
    writes: Sequence[tuple[str, Task, Value]]
    names: Mapping[Node, str]


class Cut:
    """The parts of a run by task, in order.

    A part starts as soon as its inputs exist. Nodes that only update Variables are in
    the last part of their task, so that they read the newest values.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._fetched = set(run.fetches)
        self._at: dict[Value, tuple[Task, int]] = {
            x: (task, 0) for x, (_, task) in run.variables.items()
        }
        self._parts: defaultdict[tuple[Task, int], Part] = defaultdict(Part)
        stages = self._stages()
        for node in run.graph.nodes:
            place = run.where[node], stages[node]
            self._at.update(dict.fromkeys(node.outputs, place))
            self._parts[place].nodes.append(node)
        self._written = {
            name: self._write_place(task, value) for name, task, value in run.writes
        }
        self._connect()
        self.parts: dict[Task, list[Part]] = defaultdict(list)
        for place in sorted(self._parts, key=lambda place: place[1]):
            self.parts[place[0]].append(self._parts[place])

    def _stages(self) -> dict[Node, int]:
        run = self.run
        found: dict[Node, int] = {}
        at = dict(self._at)
        last: defaultdict[Task, int] = defaultdict(int)
        for node in run.graph.nodes:
            task = run.where[node]
            places = [at[x] for x in node.inputs if x in at]
            stage = max((s + (where != task) for where, s in places), default=0)
            found[node], last[task] = stage, max(last[task], stage)
            at.update(dict.fromkeys(node.outputs, (task, stage)))
        for node in self._late():
            found[node] = last[run.where[node]]
        return found

    def _late(self) -> list[Node]:
        """Return the nodes that only compute new values of Variables of their task."""
        run = self.run
        changes: defaultdict[Value, set[Task]] = defaultdict(set)
        for _, owner, value in run.writes:
            changes[value].add(owner)
        readers: defaultdict[Value, list[Node]] = defaultdict(list)
        late: dict[Node, None] = {}
        for node in reversed(run.graph.nodes):
            task = run.where[node]
            if all(
                y not in self._fetched
                and changes[y] <= {task}
                and all(n in late and run.where[n] == task for n in readers[y])
                for y in node.outputs
            ):
                late[node] = None
            for x in node.inputs:
                readers[x].append(node)
        return list(late)

    def _write_place(self, task: Task, value: Value) -> tuple[Task, int]:
        where, stage = self._at.get(value, (task, 0))
        return task, stage + (where != task)

    def _connect(self) -> None:
        """Set the received, read, sent and written values of each part."""
        for place, part in list(self._parts.items()):
            made = {y for node in part.nodes for y in node.outputs}
            for node in part.nodes:
                for x in node.inputs:
                    if x not in made and x.constant is None:
                        self._need(x, place)
        for name, _, value in self.run.writes:
            place = self._written[name]
            self._need(value, place)
            self._parts[place].writes[name] = value
        for value in self._fetched:
            if value in self._at:
                place = self._at[value]
                self._need(value, place)
                self._parts[place].fetches[value] = None

    def _need(self, x: Value, place: tuple[Task, int]) -> None:
        """Make a value available to a part."""
        if x not in self._at:
            if x.constant is not None:
                self._parts[place].results[x] = None
            return  # the master sends it
        task, stage = place
        origin, made = self._at[x]
        if origin != task:
            self._need(x, (origin, made))
            self._parts[origin, made].gives.setdefault(x, {})[task] = None
            self._parts[place].takes[x] = None
        elif x in self.run.variables:
            name, _ = self.run.variables[x]
            # A read after the write of this run must return the old value.
            _, last = self._written.get(name, place)
            self._parts[task, min(stage, last)].reads[x] = None
        else:
            self._parts[origin, made].results[x] = None

    # --- as data ----------------------------------------------------------------------

    def messages(self) -> dict[Task, tuple[dict[str, Any], list[Any]]]:
        """Return for each task the description of its parts, and the constants."""
        ids: dict[Value, int] = {}
        found = {}
        for task, parts in self.parts.items():
            arrays: list[Any] = []
            encoder = Encoder(arrays, self.run.names)
            encoder.ids = ids
            texts = [self._part(part, encoder) for part in parts]
            fed = [x for x in self.run.feeds if self._is_read(x, parts)]
            found[task] = {"parts": texts, "feeds": list(map(encoder.id, fed))}, arrays
        self.ids = ids
        return found

    def _is_read(self, x: Value, parts: Iterable[Part]) -> bool:
        read = {x for part in parts for node in part.nodes for x in node.inputs}
        return x in read.union(*(part.writes.values() for part in parts))

    def _part(self, part: Part, encoder: Encoder) -> dict[str, Any]:
        made = {y for node in part.nodes for y in node.outputs}
        read = dict.fromkeys(x for node in part.nodes for x in node.inputs)
        inputs = [x for x in read if x not in made and x.constant is None]
        wanted = [y for y in part.results if y in made or y.constant is not None]
        graph = Graph(tuple(inputs), tuple(part.nodes), tuple(wanted))
        data = encoder.graph(graph)
        identity, names = encoder.id, self.run.variables
        return {
            "graph": data,
            "results": [identity(y) for y in wanted],
            "takes": [identity(x) for x in part.takes],
            "reads": [_variable(names[x][0], x, identity(x)) for x in part.reads],
            "writes": [_variable(n, x, identity(x)) for n, x in part.writes.items()],
            "gives": [
                [identity(x), [list(task) for task in tasks]]
                for x, tasks in part.gives.items()
            ],
            "fetches": [identity(x) for x in part.fetches],
        }


def _variable(name: str, x: Value, number: int) -> list[Any]:
    return [name, x.spec.dtype, [int(n) for n in x.spec.shape], number]
