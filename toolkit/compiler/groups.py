"""Nodes of a graph in groups, each of which is to run as one."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from toolkit.ir import Graph, Kind, Node


class Group:
    """Nodes that will be one, in the order of the graph.

    Sets of nodes are masks: the bit of a node is its place in the graph.

    Attributes:
        members: the nodes.
        sources: the nodes of others that the members read from.
        needs: all nodes that have to run before, with those that run together with one.
        shape: the shape of all results, if the nodes are elementwise and have but one.
    """

    def __init__(self, node: Node, position: int, sources: dict[int, Node]) -> None:
        self.nodes = [node]
        self.members = 1 << position
        self.sources = sources
        self.needs = 0
        result = node.outputs[0]
        elementwise = node.op.kind is Kind.ELEMENTWISE
        self.shape = result.spec.shape if elementwise else None


class Groups:
    """The groups of a graph as they grow; every node is in one, most of them alone.

    Nodes are added in order, each after those that it reads from.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.position = {id(node): i for i, node in enumerate(graph.nodes)}
        self.producers = graph.producers()
        self._group_of: dict[int, Group] = {}
        self._alive: dict[int, Group] = {}

    def add(self, node: Node) -> Group:
        """A group of one node."""
        found = [self.producers.get(id(x)) for x in node.inputs]
        sources = {id(n): n for n in found if n is not None}
        group = Group(node, self.position[id(node)], sources)
        for source in self.sources(group):
            group.needs |= source.needs | source.members
        self._group_of[id(node)] = self._alive[id(group)] = group
        return group

    def of(self, node: Node) -> Group:
        """The group that a node is in."""
        return self._group_of[id(node)]

    def all(self) -> list[Group]:
        """Every group once."""
        return list(self._alive.values())

    def sources(self, group: Group) -> list[Group]:
        """The other groups that a group reads from."""
        found = (self._group_of[i] for i in group.sources)
        return list({id(g): g for g in found}.values())

    def may_join(self, a: Group, b: Group) -> bool:
        """Whether two groups can be one: no way leads out of them and back in."""
        return not any(
            source is not start and source.needs & start.members
            for start, end in ((a, b), (b, a))
            for source in self.sources(end)
        )

    def union(self, a: Group, b: Group) -> list[Node]:
        """The nodes of both, in order."""
        return sorted([*a.nodes, *b.nodes], key=lambda n: self.position[id(n)])

    def join(self, a: Group, b: Group) -> Group:
        """Make two groups one."""
        a.nodes = self.union(a, b)
        a.shape = a.shape if a.shape == b.shape else None
        a.members |= b.members
        a.needs = (a.needs | b.needs) & ~a.members
        a.sources |= b.sources
        del self._alive[id(b)]
        for node in a.nodes:
            self._group_of[id(node)] = a
            a.sources.pop(id(node), None)
        for group in self._alive.values():
            if group.needs & a.members:
                group.needs |= a.needs | a.members
        return a

    def in_order(self) -> list[Group]:
        """The groups, each after those that it reads from."""
        groups = self.all()
        waiting = {id(g): len(self.sources(g)) for g in groups}
        readers: dict[int, list[Group]] = {id(g): [] for g in groups}
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
