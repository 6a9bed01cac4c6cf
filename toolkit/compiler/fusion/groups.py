"""Nodes of a graph in groups, each of which is to run as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from toolkit.ir import Graph, Kind, Node, Value

# Groups that are looked at to see whether two may be joined; where that does not tell,
# they stay apart, so that a graph costs time in proportion to its nodes.
MOST_VISITED = 500


class Group:
    """Nodes that will be one, in the order of the graph.

    Attributes:
        sources: the nodes of others that the members read from.
        level: higher than that of every group that the members read from.
        shape: the shape of all results, if the nodes are elementwise and have but one.
    """

    def __init__(self, node: Node, sources: Iterable[Node], level: int) -> None:
        self.nodes: list[Node] = [node]
        self.sources: dict[Node, None] = dict.fromkeys(sources)
        self.level: int = level
        result = node.outputs[0]
        elementwise = node.op.kind is Kind.ELEMENTWISE
        self.shape: tuple[int, ...] | None = result.spec.shape if elementwise else None


class Groups:
    """The groups of a graph as they grow; every node is in one, most of them alone.

    Nodes are added in order, each after those that it reads from.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.position: dict[Node, int] = {node: i for i, node in enumerate(graph.nodes)}
        self.producers: dict[Value, Node] = graph.producers()
        self._group_of: dict[Node, Group] = {}
        self._alive: dict[Group, None] = {}
        self._readers: defaultdict[Node, list[Node]] = defaultdict(list)

    def add(self, node: Node) -> Group:
        """A group of one node."""
        found = [self.producers.get(x) for x in node.inputs]
        sources = dict.fromkeys(n for n in found if n is not None)
        levels = (self._group_of[n].level for n in sources)
        group = Group(node, sources, 1 + max(levels, default=-1))
        for source in sources:
            self._readers[source].append(node)
        self._group_of[node] = group
        self._alive[group] = None
        return group

    def of(self, node: Node) -> Group:
        """The group that a node is in."""
        return self._group_of[node]

    def all(self) -> list[Group]:
        """Every group once."""
        return list(self._alive)

    def sources(self, group: Group) -> list[Group]:
        """The other groups that a group reads from."""
        return list(dict.fromkeys(self._group_of[node] for node in group.sources))

    def _readers_of(self, group: Group) -> Iterator[Group]:
        """The other groups that read from a group, some of them several times."""
        for node in group.nodes:
            for reader in self._readers[node]:
                if self._group_of[reader] is not group:
                    yield self._group_of[reader]

    def _place(self, group: Group) -> int:
        return self.position[group.nodes[0]]

    def may_join(self, a: Group, b: Group) -> bool:
        """Whether two groups can be one: no way leads out of them and back in.

        A way leads up in levels. The highest are looked at first: from what gradients
        read of early values, say, it is but a few steps.
        """
        first, last = (a, b) if a.level <= b.level else (b, a)
        visited, seen = 0, {first}
        waiting = [(0, 0, first)]
        while waiting:
            group = heappop(waiting)[2]
            for reader in self._readers_of(group):
                visited += 1
                leads_there = reader is last and group is not first
                if leads_there or visited > MOST_VISITED:
                    return False
                if reader.level < last.level and reader not in seen:
                    seen.add(reader)
                    heappush(waiting, (-reader.level, self._place(reader), reader))
        return True

    def union(self, a: Group, b: Group) -> list[Node]:
        """The nodes of both, in order."""
        return sorted([*a.nodes, *b.nodes], key=lambda n: self.position[n])

    def join(self, a: Group, b: Group) -> bool:
        """Make two groups one, which may be; unless that moves too many others."""
        levels = self._raised(a, b)
        if levels is None:
            return False
        for group, level in levels:
            group.level = level
        a.nodes = self.union(a, b)
        a.shape = a.shape if a.shape == b.shape else None
        a.sources |= b.sources
        del self._alive[b]
        for node in a.nodes:
            self._group_of[node] = a
            a.sources.pop(node, None)
        return True

    def _raised(self, a: Group, b: Group) -> list[tuple[Group, int]] | None:
        """The new levels of what reads from two groups, if those become one.

        None if they are too many to look at.
        """
        top = max(a.level, b.level)
        visited, levels = 0, {a: top, b: top}
        waiting = [(-1, 0, a), (-1, 1, b)]
        found: list[tuple[Group, int]] = []
        while waiting:
            group = heappop(waiting)[2]
            level = levels[group]
            found.append((group, level))
            for reader in self._readers_of(group):
                visited += 1
                if visited > MOST_VISITED:
                    return None
                if reader.level > level or reader is a or reader is b:
                    continue
                if reader not in levels:
                    heappush(waiting, (reader.level, self._place(reader), reader))
                levels[reader] = max(level + 1, levels.get(reader, 0))
        return found

    def in_order(self) -> list[Group]:
        """The groups, each after those that it reads from."""
        groups = self.all()
        waiting = {g: len(self.sources(g)) for g in groups}
        readers: dict[Group, list[Group]] = {g: [] for g in groups}
        for group in groups:
            for source in self.sources(group):
                readers[source].append(group)
        by_last = {self.position[g.nodes[-1]]: g for g in groups}
        ready = [i for i, g in by_last.items() if not waiting[g]]
        heapify(ready)
        order = []
        while ready:
            group = by_last[heappop(ready)]
            order.append(group)
            for reader in readers[group]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heappush(ready, self.position[reader.nodes[-1]])
        return order
