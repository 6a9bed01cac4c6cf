"""Partition of a run's graph by task: inputs, outputs, and Variables of each part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.compat.tensorflow.v1.cluster.graph_codec import Encoder
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
        self._part_by_key: defaultdict[tuple[Task, int], Part] = defaultdict(Part)
        stages = self._stages()
        for node in run.graph.nodes:
            stage_key = run.where[node], stages[node]
            self._at.update(dict.fromkeys(node.outputs, stage_key))
            self._part_by_key[stage_key].nodes.append(node)
        self._written = {
            name: self._write_place(task, value) for name, task, value in run.writes
        }
        self._connect()
        self.parts: dict[Task, list[Part]] = defaultdict(list)
        for stage_key in sorted(self._part_by_key, key=lambda stage_key: stage_key[1]):
            self.parts[stage_key[0]].append(self._part_by_key[stage_key])

    def _stages(self) -> dict[Node, int]:
        run = self.run
        stage_of: dict[Node, int] = {}
        at = dict(self._at)
        last: defaultdict[Task, int] = defaultdict(int)
        for node in run.graph.nodes:
            task = run.where[node]
            origins = [at[x] for x in node.inputs if x in at]
            stage = max((s + (where != task) for where, s in origins), default=0)
            stage_of[node], last[task] = stage, max(last[task], stage)
            at.update(dict.fromkeys(node.outputs, (task, stage)))
        for node in self._late_nodes():
            stage_of[node] = last[run.where[node]]
        return stage_of

    def _late_nodes(self) -> list[Node]:
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
        for key, segment in list(self._part_by_key.items()):
            outputs = {y for node in segment.nodes for y in node.outputs}
            for node in segment.nodes:
                for x in node.inputs:
                    if x not in outputs and x.constant is None:
                        self._require(x, key)
        for name, _, value in self.run.writes:
            key = self._written[name]
            self._require(value, key)
            self._part_by_key[key].writes[name] = value
        for value in self._fetched:
            if value in self._at:
                key = self._at[value]
                self._require(value, key)
                self._part_by_key[key].fetches[value] = None

    def _require(self, x: Value, key: tuple[Task, int]) -> None:
        """Make a value available to a part."""
        if x not in self._at:
            if x.constant is not None:
                self._part_by_key[key].results[x] = None
            return  # the master sends it
        task, stage = key
        origin, origin_stage = self._at[x]
        if origin != task:
            self._require(x, (origin, origin_stage))
            self._part_by_key[origin, origin_stage].gives.setdefault(x, {})[task] = None
            self._part_by_key[key].takes[x] = None
        elif x in self.run.variables:
            name, _ = self.run.variables[x]
            # A read after the write of this run must return the old value.
            _, last = self._written.get(name, key)
            self._part_by_key[task, min(stage, last)].reads[x] = None
        else:
            self._part_by_key[origin, origin_stage].results[x] = None

    # --- as data ----------------------------------------------------------------------

    def messages(self) -> dict[Task, tuple[dict[str, Any], list[Any]]]:
        """Return for each task the description of its parts, and the constants."""
        ids: dict[Value, int] = {}
        messages = {}
        for task, segments in self.parts.items():
            arrays: list[Any] = []
            encoder = Encoder(arrays, self.run.names)
            encoder.ids = ids
            texts = [self._encode_part(segment, encoder) for segment in segments]
            fed = [x for x in self.run.feeds if self._is_read(x, segments)]
            messages[task] = (
                {"parts": texts, "feeds": list(map(encoder.id, fed))},
                arrays,
            )
        self.ids = ids
        return messages

    def _is_read(self, x: Value, segments: Iterable[Part]) -> bool:
        read = {
            x for segment in segments for node in segment.nodes for x in node.inputs
        }
        return x in read.union(*(segment.writes.values() for segment in segments))

    def _encode_part(self, segment: Part, encoder: Encoder) -> dict[str, Any]:
        outputs = {y for node in segment.nodes for y in node.outputs}
        read = dict.fromkeys(x for node in segment.nodes for x in node.inputs)
        inputs = [x for x in read if x not in outputs and x.constant is None]
        results = [y for y in segment.results if y in outputs or y.constant is not None]
        graph = Graph(tuple(inputs), tuple(segment.nodes), tuple(results))
        data = encoder.graph(graph)
        identity, names = encoder.id, self.run.variables
        return {
            "graph": data,
            "results": [identity(y) for y in results],
            "takes": [identity(x) for x in segment.takes],
            "reads": [_variable(names[x][0], x, identity(x)) for x in segment.reads],
            "writes": [_variable(n, x, identity(x)) for n, x in segment.writes.items()],
            "gives": [
                [identity(x), [list(task) for task in tasks]]
                for x, tasks in segment.gives.items()
            ],
            "fetches": [identity(x) for x in segment.fetches],
        }


def _variable(name: str, x: Value, number: int) -> list[Any]:
    return [name, x.spec.dtype, [int(n) for n in x.spec.shape], number]
