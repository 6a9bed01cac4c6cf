"""Fusion: elementwise nodes of one shape become one node, one pass over memory.

A fused node holds its members as a graph; the values between them never reach memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from toolkit.ir import Graph, Kind, Node, Primitive, Spec

# Below this many elements NumPy's kernels are as quick, and nothing is compiled.
LEAST_ELEMENTS = 4096
# A single node gains too little to be worth compiling.
LEAST_NODES = 2


def _spec(*inputs: Spec, body: Graph) -> Any:
    specs = tuple(value.spec for value in body.outputs)
    return specs if len(specs) > 1 else specs[0]


# Not in the registry: it exists in compiled programs only, and has no gradient.
fused_p = Primitive("fused", Kind.ELEMENTWISE, _spec)


class _Group:
    """Nodes that will be one."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = list(nodes)


class _Fusion:
    """The groups of a graph as they grow; every node is in one, most of them alone."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.position = {id(node): i for i, node in enumerate(graph.nodes)}
        self.producers = graph.producers()
        self.group_of = {id(node): _Group([node]) for node in graph.nodes}

    def sources(self, group: _Group) -> list[_Group]:
        """The other groups that a group reads from."""
        found = {}
        for node in group.nodes:
            for value in node.inputs:
                producer = self.producers.get(id(value))
                if producer is not None:
                    source = self.group_of[id(producer)]
                    if source is not group:
                        found[id(source)] = source
        return list(found.values())

    def may_join(self, a: _Group, b: _Group) -> bool:
        """Whether two groups can be one: no way leads out of them and back in."""
        first = min(self.position[id(node)] for node in (*a.nodes, *b.nodes))
        inside = {id(a), id(b)}
        stack = [s for g in (a, b) for s in self.sources(g) if id(s) not in inside]
        seen: set[int] = set()
        while stack:
            group = stack.pop()
            if id(group) in inside:
                return False
            if id(group) in seen:
                continue
            seen.add(id(group))
            if max(self.position[id(node)] for node in group.nodes) > first:
                stack += self.sources(group)
        return True

    def join(self, a: _Group, b: _Group) -> None:
        """Make two groups one."""
        a.nodes = sorted([*a.nodes, *b.nodes], key=lambda n: self.position[id(n)])
        for node in b.nodes:
            self.group_of[id(node)] = a

    def in_order(self) -> list[_Group]:
        """The groups, each after those that it reads from."""
        groups = list({id(g): g for g in self.group_of.values()}.values())
        waiting = {id(g): len(self.sources(g)) for g in groups}
        readers: dict[int, list[_Group]] = {id(g): [] for g in groups}
        for group in groups:
            for source in self.sources(group):
                readers[id(source)].append(group)
        by_last = {self.position[id(g.nodes[-1])]: g for g in groups}
        ready = [i for i, g in by_last.items() if not waiting[id(g)]]
        heapify(ready)
        order = []
        while ready:
            group = by_last[heappop(ready)]
            order.append(group)
            for reader in readers[id(group)]:
                waiting[id(reader)] -= 1
                if not waiting[id(reader)]:
                    heappush(ready, self.position[id(reader.nodes[-1])])
        return order


def fuse(graph: Graph, fusable: Callable[[Node], bool]) -> Graph:
    """Join elementwise nodes with the elementwise nodes that they read from.

    Args:
        graph: an optimized graph.
        fusable: whether the backend can compute a node inside a fused kernel.
    """
    able = {id(node) for node in graph.nodes if _is_large(node) and fusable(node)}
    if not able:
        return graph
    fusion = _Fusion(graph)
    for node in graph.nodes:
        if id(node) not in able:
            continue
        for value in node.inputs:
            producer = fusion.producers.get(id(value))
            if producer is None or id(producer) not in able:
                continue
            mine, theirs = fusion.group_of[id(node)], fusion.group_of[id(producer)]
            same_shape = value.spec.shape == node.outputs[0].spec.shape
            if mine is not theirs and same_shape and fusion.may_join(theirs, mine):
                fusion.join(theirs, mine)
    outputs = {id(value) for value in graph.outputs}
    nodes = []
    for group in fusion.in_order():
        if len(group.nodes) < LEAST_NODES:
            nodes += group.nodes
        else:
            nodes.append(_fused(group.nodes, graph, outputs))
    return graph.replace(nodes)


def _is_large(node: Node) -> bool:
    kind = node.op.kind
    return kind is Kind.ELEMENTWISE and node.outputs[0].spec.size >= LEAST_ELEMENTS


def _fused(members: list[Node], graph: Graph, graph_outputs: set[int]) -> Node:
    inside = {id(node) for node in members}
    made = {id(node.outputs[0]) for node in members}
    read_outside = {
        id(value)
        for node in graph.nodes
        if id(node) not in inside
        for value in node.inputs
    } | graph_outputs
    inputs = {
        id(x): x
        for node in members
        for x in node.inputs
        if id(x) not in made and not is_literal(x)
    }
    outputs = [n.outputs[0] for n in members if id(n.outputs[0]) in read_outside]
    body = Graph(tuple(inputs.values()), tuple(members), tuple(outputs))
    return Node(fused_p, body.inputs, {"body": body}, outputs)


def is_literal(value: Any) -> bool:
    """Whether a value is a number that a kernel can have written into it."""
    return value.constant is not None and value.spec.size == 1
