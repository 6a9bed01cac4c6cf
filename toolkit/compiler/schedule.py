"""The order in which nodes run: that of the trace, but what frees memory goes first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from toolkit.compiler.memory import is_elementwise
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Value


def schedule(graph: Graph) -> Graph:
    """Move nodes that free at least as much as they take up to where they are ready.

    An optimizer's update, say, runs as soon as its gradient is there, which then need
    not live until the end of the step. Everything else keeps the order of the trace.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    producers = graph.producers()
    readers: defaultdict[Node, list[Node]] = defaultdict(list)
    waiting: Counter[Node] = Counter()
    uses: Counter[Value] = Counter(graph.outputs)
    for node in graph.nodes:
        for source in {producers[x] for x in node.inputs if x in producers}:
            readers[source].append(node)
            waiting[node] += 1
        uses.update(set(node.inputs))

    done: set[Node] = set()
    order: list[Node] = []

    def frees_memory(node: Node) -> bool:
        if node.op.kind in (Kind.VIEW, Kind.CONTROL):
            return False
        freed: int = sum(
            x.spec.nbytes for x in set(node.inputs) if uses[x] == 1 and x in producers
        )
        taken: int = sum(y.spec.nbytes for y in node.outputs)
        return 0 < taken <= freed

    def emit(node: Node) -> None:
        ready = [node]
        while ready:
            current = ready.pop()
            done.add(current)
            order.append(current)
            for value in set(current.inputs):
                uses[value] -= 1
            for reader in sorted(readers[current], key=lambda n: -position[n]):
                waiting[reader] -= 1
                if waiting[reader] == 0 and frees_memory(reader):
                    ready.append(reader)

    for node in graph.nodes:
        if node not in done:
            emit(node)
    return graph.replace(order)


def updates_last(graph: Graph, outputs: Iterable[Any]) -> tuple[Graph, int]:
    """Move the nodes that compute some outputs, and what depends on them, to the end.

    Then all else has read the old values of the Variables, and failed if it fails,
    before the first of them changes.

    Returns:
        The graph in the new order, and the index of the first node that moved.
    """
    late = set(outputs)
    before: list[Node] = []
    after: list[Node] = []
    for node in graph.nodes:
        is_late = any(value in late for value in (*node.inputs, *node.outputs))
        if is_late:
            late.update(node.outputs)
        (after if is_late else before).append(node)
    return graph.replace([*before, *after]), len(before)


def casts_first(graph: Graph) -> Graph:
    """Move elementwise nodes of inputs alone to the front, if they make no more of it.

    Where starting a kernel takes longer than what it computes: casts of all weights
    stand together there, and can be one start.
    """
    known = set(graph.inputs)

    def is_early(node: Node) -> bool:
        reads = [x for x in node.inputs if x.constant is None]
        if not reads or not all(x in known for x in reads):
            return False
        given: int = sum(x.spec.nbytes for x in reads)
        made: int = sum(y.spec.nbytes for y in node.outputs)
        return made <= given and all(is_elementwise(node, x) for x in reads)

    early = [node for node in graph.nodes if is_early(node)]
    moved = set(early)
    rest = [node for node in graph.nodes if node not in moved]
    return graph.replace([*early, *rest])


def settle(graph: Graph, updates: Sequence[tuple[int, int | None]]) -> Graph:
    """Copy new values last where what computes them may not overwrite the old ones.

    Args:
        graph: in the order in which it will run.
        updates: pairs of an output and the input that it is the new value of, or None.
    """
    producers = graph.producers()
    writers = {i: producers[graph.outputs[i]] for i, _ in updates}
    late = set(writers.values())
    readers = _late_readers(graph, late)
    nodes, outputs = list(graph.nodes), list(graph.outputs)
    for i, number in updates:
        if number is None:
            continue
        old, writer = graph.inputs[number], writers[i]
        alone = readers[old] <= {(writer, old)}
        if not (alone and is_elementwise(writer, old)):
            copy = Value(outputs[i].spec)
            identity = PRIMITIVES["stop_gradient"]
            nodes.append(Node(identity, (outputs[i],), {}, (copy,)))
            outputs[i] = copy
    return graph.replace(nodes, outputs)


def _late_readers(
    graph: Graph, late: set[Node]
) -> defaultdict[Value, set[tuple[Node, Value]]]:
    """The late nodes, and those that depend on them, that read each value.

    Each with what it reads: the value, or a view of it.
    """
    readers: defaultdict[Value, set[tuple[Node, Value]]] = defaultdict(set)
    sources: dict[Value, Value] = {}  # what a value is a view of
    made: set[Value] = set()
    for node in graph.nodes:
        is_late = node in late or any(x in made for x in node.inputs)
        if is_late:
            made.update(node.outputs)
        for x in node.inputs:
            source = sources.get(x, x)
            if node.op.kind is Kind.VIEW:
                sources[node.outputs[0]] = source
            elif is_late:
                readers[source].add((node, x))
    return readers
