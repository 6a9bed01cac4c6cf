"""Order of collectives that run in parallel with other nodes.

The order of the collectives is the same on all ranks. The nodes between two of them may
differ.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from operator import itemgetter

from toolkit.backends.target import Target
from toolkit.compiler.control import collective_kernel
from toolkit.ir import Graph, Kind, Node, Value


def start_on_stream(graph: Graph, target: Target) -> Graph:
    """Start collectives on a stream of the device as soon as their operands are ready.

    A gather of inputs is always ready. It starts before the readers of the gather that
    is read before its own readers, because its result needs memory. The nodes after the
    last collective run in the order of the collectives that they wait for.
    """
    collectives = [node for node in _collectives(graph) if _is_on_stream(node, target)]
    if not collectives:
        return graph
    position = {node: i for i, node in enumerate(graph.nodes)}
    starts = _gather_starts(graph, collectives)
    order = _Order(graph)
    for collective in collectives:
        if collective in starts:
            order.emit(graph.nodes[: starts[collective]])
        order.emit([collective, *order.ancestors(collective.inputs)])
    last = _last_collectives(graph, collectives)
    order.nodes += sorted(order.remaining(), key=lambda n: (last[n], position[n]))
    return graph.replace(order.nodes)


def start_in_background(graph: Graph, target: Target) -> Graph:
    """Compute the operands of collectives that a thread runs before other nodes.

    The program waits for a collective at its position in the graph. It waits for a
    reduce-scatter after the operands of the next one, because its own need memory.
    """
    collectives = [
        node
        for node in _collectives(graph)
        if collective_kernel(node).background and not _is_on_stream(node, target)
    ]
    if not collectives:
        return graph
    order = _Order(graph)
    running: Node | None = None
    for collective in collectives:
        # The last input is a token of the collective before it, which need not be
        # complete.
        order.emit(order.ancestors(collective.inputs[:-1], skips_gathers=True))
        if collective.op.name == "reduce_scatter":
            order.emit([running] if running else [])
            running = collective
    first_token = _collectives(graph)[0].inputs[-1]
    nodes = [*order.nodes, *order.remaining()]
    return graph.replace(_with_tokens(nodes, first_token))


class _Order:
    """New order of the nodes of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producers = graph.producers()
        self._position = {node: i for i, node in enumerate(graph.nodes)}
        self._emitted: set[Node] = set()
        self.nodes: list[Node] = []

    def emit(self, nodes: Collection[Node]) -> None:
        """Append the new ones among some nodes, in the order of the graph."""
        new = set(nodes) - self._emitted
        self.nodes += sorted(new, key=self._position.__getitem__)
        self._emitted |= new

    def remaining(self) -> list[Node]:
        """Return the other nodes, in the order of the graph."""
        return [node for node in self._graph.nodes if node not in self._emitted]

    def ancestors(
        self, values: Collection[Value], skips_gathers: bool = False
    ) -> set[Node]:
        """Return the new nodes that compute values.

        Args:
            values: the values.
            skips_gathers: whether gathers of inputs need no collective before them.
        """
        needed: set[Node] = set()
        stack = list(values)
        while stack:
            node = self._producers.get(stack.pop())
            if node is None or node in self._emitted or node in needed:
                continue
            needed.add(node)
            if not (skips_gathers and _gathers_inputs(node, self._producers)):
                stack += node.inputs
        return needed


def _collectives(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op.kind is Kind.COLLECTIVE]


def _is_on_stream(collective: Node, target: Target) -> bool:
    """Return whether a collective runs in parallel with generated code."""
    return target.backend.generator.can_overlap(collective.attrs["axis"].group)


def _gathers_inputs(node: Node, producers: Collection[Value]) -> bool:
    """Return whether a node is a gather of inputs of the graph."""
    operands = node.inputs[:-1]
    return node.op.name == "all_gather" and not any(x in producers for x in operands)


def _gather_starts(graph: Graph, collectives: Sequence[Node]) -> dict[Node, int]:
    """Return the position before which each gather of an input starts."""
    producers = graph.producers()
    gathers = {
        node
        for node in collectives
        if len(node.inputs) == 2 and _gathers_inputs(node, producers)
    }
    sources: dict[Value, Node] = {}  # the gather of each result, or of a view of it
    reads: list[tuple[int, Node]] = []  # the positions at which gathers are read
    starts: dict[Node, int] = {}
    for position, node in enumerate(graph.nodes):
        if node in gathers:
            sources[node.outputs[0]] = node
            starts[node] = position
            if reads:
                _, by_gather = next(groupby(reversed(reads), key=itemgetter(1)))
                starts[node] = min(start for start, _ in by_gather)
            continue
        read = [sources[x] for x in node.inputs if x in sources]
        if node.op.kind is Kind.VIEW and read:
            sources[node.outputs[0]] = read[0]
        else:
            reads += [(position, gather) for gather in read]
    return starts


def _last_collectives(graph: Graph, collectives: Sequence[Node]) -> dict[Node, int]:
    """Return the number of the last collective that each node depends on, or -1."""
    numbers = {node: number for number, node in enumerate(collectives)}
    last: dict[Node, int] = {}
    of_value: dict[Value, int] = {}
    for node in graph.nodes:
        sources = (of_value.get(x, -1) for x in node.inputs)
        last[node] = max(numbers.get(node, -1), *sources, -1)
        of_value.update(dict.fromkeys(node.outputs, last[node]))
    return last


def _with_tokens(order: Sequence[Node], token: Value) -> list[Node]:
    """Return nodes in which each collective reads the token of the one before it."""
    nodes: list[Node] = []
    for node in order:
        if node.op.kind is Kind.COLLECTIVE:
            if node.inputs[-1] is not token:
                node = node.with_inputs([*node.inputs[:-1], token])
            token = node.outputs[-1]
        nodes.append(node)
    return nodes
