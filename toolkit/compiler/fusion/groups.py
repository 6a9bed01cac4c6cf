"""Groups of the nodes of a graph; each group runs as one node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from toolkit.ir import Graph, Kind, Node, Value

# Limit of the groups that the search for a cycle visits. If it is reached, two groups
# are not joined, so that compile time is linear in the number of nodes.
MAX_VISITED_GROUPS = 500


class Group:
    """Nodes that will run as one, in the order of the graph.

    Attributes:
        sources: the nodes in other groups that the members read from.
        level: higher than that of every group that the members read from.
        shape: the shape of all results, if the nodes are elementwise and all results
            have the same shape.
    """

    def __init__(self, node: Node, sources: Iterable[Node], level: int) -> None:
        self.nodes: list[Node] = [node]
        self.sources: dict[Node, None] = dict.fromkeys(sources)
        self.level: int = level
        result = node.outputs[0]
        elementwise = node.op.kind is Kind.ELEMENTWISE
        self.shape: tuple[int, ...] | None = result.spec.shape if elementwise else None


class Groups:
    """Groups of a graph as they grow; every node is in one group, initially alone.

    Nodes are added in topological order.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.position: dict[Node, int] = {node: i for i, node in enumerate(graph.nodes)}
        self.producers: dict[Value, Node] = graph.producers()
        self._group_of: dict[Node, Group] = {}
        self._alive: dict[Group, None] = {}
        self._readers: defaultdict[Node, list[Node]] = defaultdict(list)

    def add(self, node: Node) -> Group:
        """Create a group of one node."""
        producers = [self.producers.get(x) for x in node.inputs]
        sources = dict.fromkeys(n for n in producers if n is not None)
        levels = (self._group_of[n].level for n in sources)
        group = Group(node, sources, 1 + max(levels, default=-1))
        for source in sources:
            self._readers[source].append(node)
        self._group_of[node] = group
        self._alive[group] = None
        return group

    def of(self, node: Node) -> Group:
        """Return the group of a node."""
        return self._group_of[node]

    def all(self) -> list[Group]:
        """Return every group once."""
        return list(self._alive)

    def sources(self, group: Group) -> list[Group]:
        """Return the other groups that a group reads from."""
        return list(dict.fromkeys(self._group_of[node] for node in group.sources))

    def _readers_of(self, group: Group) -> Iterator[Group]:
        """Yield the other groups that read from a group; some appear several times."""
        for node in group.nodes:
            for reader in self._readers[node]:
                if self._group_of[reader] is not group:
                    yield self._group_of[reader]

    def _position(self, group: Group) -> int:
        return self.position[group.nodes[0]]

    def can_join(self, a: Group, b: Group) -> bool:
        """Return whether two groups can become one: no path leaves and reenters them.

        A path always leads to higher levels. The search visits the highest groups
        first: from the gradients that read early values, for example, it needs few
        steps.
        """
        first, last = (a, b) if a.level <= b.level else (b, a)
        visited, reached = 0, {first}
        waiting = [(0, 0, first)]
        while waiting:
            group = heappop(waiting)[2]
            for reader in self._readers_of(group):
                visited += 1
                leads_there = reader is last and group is not first
                if leads_there or visited > MAX_VISITED_GROUPS:
                    return False
                if reader.level < last.level and reader not in reached:
                    reached.add(reader)
                    heappush(waiting, (-reader.level, self._position(reader), reader))
        return True

    def union(self, a: Group, b: Group) -> list[Node]:
        """Return the nodes of both groups, in order."""
        return sorted([*a.nodes, *b.nodes], key=lambda n: self.position[n])

    def join(self, a: Group, b: Group) -> bool:
        """Join two groups, unless this changes the levels of too many other groups."""
        levels = self._raise_levels(a, b)
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

    def _raise_levels(self, a: Group, b: Group) -> list[tuple[Group, int]] | None:
        """Return the new levels of the readers of two groups, if the two become one.

        Return None if there are too many readers to visit.
        """
        top = max(a.level, b.level)
        visited, levels = 0, {a: top, b: top}
        waiting = [(-1, 0, a), (-1, 1, b)]
        raised: list[tuple[Group, int]] = []
        while waiting:
            group = heappop(waiting)[2]
            level = levels[group]
            raised.append((group, level))
            for reader in self._readers_of(group):
                visited += 1
                if visited > MAX_VISITED_GROUPS:
                    return None
                if reader.level > level or reader is a or reader is b:
                    continue
                if reader not in levels:
                    heappush(waiting, (reader.level, self._position(reader), reader))
                levels[reader] = max(level + 1, levels.get(reader, 0))
        return raised

    def in_order(self) -> list[Group]:
        """Return the groups in topological order."""
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
