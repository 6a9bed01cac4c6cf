"""Graphs on devices of several backends: a program for each partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from toolkit import settings
from toolkit.backends.base import Backend
from toolkit.backends.registry import get_backend
from toolkit.backends.target import Target
from toolkit.compiler.execute import Executable
from toolkit.compiler.passes.placement import assign_devices, transfer_p
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.program import Program
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Value

Array = Any


def compile_graph(
    graph: Graph,
    backend: Backend,
    generate: bool,
    updates: Sequence[tuple[int, int | None]],
    name: str = "a graph",
    rows_independent: bool = False,
    frozen: Collection[int] = (),
) -> Executable | MixedExecutable:
    """Compile a graph to one program, or to one for each backend of device scopes.

    Args:
        graph: the traced graph.
        backend: the backend of nodes outside device scopes.
        generate, updates, rows_independent, frozen: as in the `Target`.
        name: name of the traced function.
    """
    devices = {node.device for node in graph.nodes if node.device is not None}
    if all(settings.backend_of(device) == backend.key for device in devices):
        target = Target(
            backend,
            generate,
            updates=updates,
            rows_independent=rows_independent,
            frozen=frozen,
        )
        return Executable(compile_program(graph, target, name))
    partitions = compile_partitions(graph, backend, generate, name, rows_independent)
    return MixedExecutable(partitions)


@record
class ProgramPartition:
    """Nodes of one backend, with the inputs and outputs of the partition."""

    program: Program
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


@record
class MixedProgram:
    """Sequence of programs on several backends, with copies between them.

    Attributes:
        source: the traced graph.
        graph: the same graph with a device for each node.
        backend: the backend of inputs, outputs, and nodes outside device scopes.
        partitions: in execution order.
        name: name of the traced function.
    """

    source: Graph
    graph: Graph
    backend: Backend
    partitions: Sequence[ProgramPartition]
    name: str = "a graph"

    in_place = False

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arenas."""
        return sum(partition.program.nbytes for partition in self.partitions)


def compile_partitions(
    graph: Graph,
    backend: Backend,
    generate: bool,
    name: str,
    rows_independent: bool = False,
) -> MixedProgram:
    """Compile a program for each partition of a graph that one backend computes."""
    placed = assign_devices(graph, Target(backend))
    graph_without_transfers, partitions = split(placed, backend.key)
    programs = [
        compile_program(
            partition,
            Target(get_backend(key), generate, rows_independent=rows_independent),
        )
        for key, partition in partitions
    ]
    compiled = [
        ProgramPartition(program, partition.inputs, partition.outputs)
        for program, (_, partition) in zip(programs, partitions, strict=True)
    ]
    return MixedProgram(graph, graph_without_transfers, backend, compiled, name)


class MixedExecutable:
    """Programs on several devices, callable as one."""

    def __init__(self, program: MixedProgram) -> None:
        self.program = program
        self.partitions: list[tuple[ProgramPartition, Executable]] = [
            (partition, Executable(partition.program))
            for partition in program.partitions
        ]

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Run the programs; return new arrays on the default backend."""
        graph, backend = self.program.graph, self.program.backend
        arrays = dict(zip(graph.inputs, inputs, strict=True))
        for partition, run in self.partitions:
            outputs = run([arrays[x] for x in partition.inputs])
            arrays.update(zip(partition.outputs, outputs, strict=True))
        results = []
        for y in graph.outputs:
            value = y.constant if y not in arrays else arrays[y]
            results.append(backend.memory.as_row_major(value))
        return results


def split(graph: Graph, default: str) -> tuple[Graph, list[tuple[str, Graph]]]:
    """Split a placed graph into partitions by backend key, in execution order.

    Each partition runs as early as its operands permit. A transfer between backends is
    not a node, because the program that reads a value copies it.

    Returns:
        The graph without these transfers, and the partitions.
    """
    names: dict[Value, Value] = {}  # the source of each transfer's result
    stage: dict[Value, int] = {}
    where: dict[Value, str] = dict.fromkeys(graph.inputs, default)
    groups: defaultdict[tuple[int, str], list[Node]] = defaultdict(list)
    for node in graph.nodes:
        inputs = [names.get(x, x) for x in node.inputs]
        key = settings.backend_of(node.device) if node.device else default
        if node.op is transfer_p and where.get(inputs[0], key) != key:
            names[node.outputs[0]] = inputs[0]
            continue
        steps = (
            stage.get(x, 0) + (where.get(x, key) != key)
            for x in inputs
            if x.constant is None
        )
        step = max(steps, default=0)
        for y in node.outputs:
            stage[y], where[y] = step, key
        groups[step, key].append(node.with_inputs(inputs))
    graph = graph.replace(outputs=[names.get(y, y) for y in graph.outputs])
    order = sorted(groups)
    return graph, [
        (key, _extract_partition(graph, groups, (n, key), order)) for n, key in order
    ]


def _extract_partition(
    graph: Graph, groups: Any, which: tuple[int, str], order: list[tuple[int, str]]
) -> Graph:
    """Return a group of nodes as a graph, with its external inputs and its results."""
    nodes = groups[which]
    results = {y for node in nodes for y in node.outputs}
    read = dict.fromkeys(x for node in nodes for x in node.inputs)
    inputs = [x for x in read if x not in results and x.constant is None]
    external = {
        x for key in order if key != which for n in groups[key] for x in n.inputs
    }
    external |= set(graph.outputs)
    outputs = [y for node in nodes for y in node.outputs if y in external]
    return Graph(tuple(inputs), tuple(nodes), tuple(outputs), graph.names)
