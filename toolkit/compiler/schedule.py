"""The order in which nodes run: that of the trace, but what frees memory goes first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from toolkit.compiler.memory import is_elementwise
from toolkit.core.tensor import Tensor
from toolkit.ir import PRIMITIVES, Graph, Kind, Node


def schedule(graph: Graph) -> Graph:
    """Move nodes that free at least as much as they take up to where they are ready.

    An optimizer's update, say, runs as soon as its gradient is there, which then need
    not live until the end of the step. Everything else keeps the order of the trace.
    """
    position = {id(node): i for i, node in enumerate(graph.nodes)}
    producers = graph.producers()
    readers: defaultdict[int, list[Node]] = defaultdict(list)
    waiting: Counter[int] = Counter()
    uses: Counter[int] = Counter(id(value) for value in graph.outputs)
    for node in graph.nodes:
        for source in {id(producers[id(x)]) for x in node.inputs if id(x) in producers}:
            readers[source].append(node)
            waiting[id(node)] += 1
        uses.update({id(x) for x in node.inputs})

    done: set[int] = set()
    order: list[Node] = []

    def frees_memory(node: Node) -> bool:
        if node.op.kind in (Kind.VIEW, Kind.CONTROL):
            return False
        freed: int = sum(
            x.spec.nbytes
            for x in {id(x): x for x in node.inputs}.values()
            if uses[id(x)] == 1 and id(x) in producers
        )
        taken: int = sum(y.spec.nbytes for y in node.outputs)
        return 0 < taken <= freed

    def emit(node: Node) -> None:
        ready = [node]
        while ready:
            current = ready.pop()
            done.add(id(current))
            order.append(current)
            for value in {id(x) for x in current.inputs}:
                uses[value] -= 1
            for reader in sorted(readers[id(current)], key=lambda n: -position[id(n)]):
                waiting[id(reader)] -= 1
                if waiting[id(reader)] == 0 and frees_memory(reader):
                    ready.append(reader)

    for node in graph.nodes:
        if id(node) not in done:
            emit(node)
    return graph.replace(order)


def updates_last(graph: Graph, outputs: Iterable[Any]) -> tuple[Graph, int]:
    """Move the nodes that compute some outputs, and what depends on them, to the end.

    Then all else has read the old values of the Variables, and failed if it fails,
    before the first of them changes.

    Returns:
        The graph in the new order, and the index of the first node that moved.
    """
    late = {id(value) for value in outputs}
    before: list[Node] = []
    after: list[Node] = []
    for node in graph.nodes:
        is_late = any(id(value) in late for value in (*node.inputs, *node.outputs))
        if is_late:
            late.update(id(value) for value in node.outputs)
        (after if is_late else before).append(node)
    return graph.replace([*before, *after]), len(before)


def casts_first(graph: Graph) -> Graph:
    """Move elementwise nodes of inputs alone to the front, if they make no more of it.

    Where starting a kernel takes longer than what it computes: casts of all weights
    stand together there, and can be one start.
    """
    known = {id(x) for x in graph.inputs}

    def is_early(node: Node) -> bool:
        reads = [x for x in node.inputs if x.constant is None]
        if not reads or not all(id(x) in known for x in reads):
            return False
        given: int = sum(x.spec.nbytes for x in reads)
        made: int = sum(y.spec.nbytes for y in node.outputs)
        return made <= given and all(is_elementwise(node, x) for x in reads)

    early = [node for node in graph.nodes if is_early(node)]
    moved = {id(node) for node in early}
    rest = [node for node in graph.nodes if id(node) not in moved]
    return graph.replace([*early, *rest])


def settle(graph: Graph, updates: Sequence[tuple[int, int | None]]) -> Graph:
    """Copy new values last where what computes them may not overwrite the old ones.

    Args:
        graph: in the order in which it will run.
        updates: pairs of an output and the input that it is the new value of, or None.
    """
    producers = graph.producers()
    writers = {i: producers[id(graph.outputs[i])] for i, _ in updates}
    late = {id(writer) for writer in writers.values()}
    readers = _late_readers(graph, late)
    nodes, outputs = list(graph.nodes), list(graph.outputs)
    for i, number in updates:
        if number is None:
            continue
        old, writer = graph.inputs[number], writers[i]
        alone = readers[id(old)] <= {(id(writer), id(old))}
        if not (alone and is_elementwise(writer, old)):
            copy = Tensor(None, outputs[i].spec)
            identity = PRIMITIVES["stop_gradient"]
            nodes.append(Node(identity, (outputs[i],), {}, (copy,)))
            outputs[i] = copy
    return graph.replace(nodes, outputs)


def _late_readers(
    graph: Graph, late: set[int]
) -> defaultdict[int, set[tuple[int, int]]]:
    """The late nodes, and those that depend on them, that read each value.

    Each with what it reads: the value, or a view of it.
    """
    readers: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
    sources: dict[int, int] = {}  # what a value is a view of
    made: set[int] = set()
    for node in graph.nodes:
        is_late = id(node) in late or any(id(x) in made for x in node.inputs)
        if is_late:
            made.update(id(y) for y in node.outputs)
        for x in node.inputs:
            source = sources.get(id(x), id(x))
            if node.op.kind is Kind.VIEW:
                sources[id(node.outputs[0])] = source
            elif is_late:
                readers[source].add((id(node), id(x)))
    return readers
