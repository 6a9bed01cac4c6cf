"""Residuals: the cheapest values that a forward pass can store for the backward pass.

Cheap values are recomputed from the residuals. The residuals are the minimum cut of a
network from the values that cannot be recomputed to the values that are needed: every
path contains a residual.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolkit.ir import Value

# The side of a value, or an end of the network. The side is the first item: vertices
# must differ before values are compared, because tensors compare elementwise.
Vertex = tuple[str, Value | None]
_SOURCE: Vertex = ("source", None)
_SINK: Vertex = ("sink", None)


def cheapest_residuals(
    needed: Iterable[Any],
    made_from: Callable[[Any], Sequence[Any] | None],
    price: Callable[[Any], int],
) -> list[Any]:
    """Return the values to store, so that all needed values can be computed from them.

    Args:
        needed: values that the backward pass reads.
        made_from: returns the operands from which a value can be recomputed; None: it
            must be stored.
        price: cost of storing a value. Of equal costs, the residual that saves more
            work is chosen.
    """
    network = _Network()
    values: dict[Value, None] = {}
    stack = list(needed)
    for value in stack:
        network.add_edge(("out", value), _SINK)
    while stack:
        value = stack.pop()
        if value in values:
            continue
        values[value] = None
        network.add_edge(("in", value), ("out", value), price(value))
        sources = made_from(value)
        if sources is None:
            network.add_edge(_SOURCE, ("in", value))
        for source in sources or ():
            network.add_edge(("out", source), ("in", value))
            stack.append(source)
    sink_side = network.sink_side_of_cut()
    return [
        value
        for value in values
        if ("in", value) not in sink_side and ("out", value) in sink_side
    ]


class _Network:
    """Vertices, and the residual capacity of each edge."""

    def __init__(self) -> None:
        self.room: defaultdict[Vertex, dict[Vertex, float]] = defaultdict(dict)

    def add_edge(self, a: Vertex, b: Vertex, capacity: float = float("inf")) -> None:
        """Add an edge with this capacity from a to b."""
        self.room[a][b] = capacity
        self.room[b].setdefault(a, 0)

    def sink_side_of_cut(self) -> set[Vertex]:
        """Return the vertices from the minimum cut nearest to the sink to the sink.

        Use the algorithm of Edmonds and Karp: saturate the shortest augmenting path
        until there is none.
        """
        while way := self._augmenting_path():
            flow = min(self.room[a][b] for a, b in way)
            for a, b in way:
                self.room[a][b] -= flow
                self.room[b][a] += flow
        return set(self._next_vertices())

    def _augmenting_path(self) -> list[tuple[Vertex, Vertex]]:
        """Return the shortest augmenting path, or an empty list."""
        following = self._next_vertices()
        way, vertex = [], _SOURCE
        while vertex in following and vertex != _SINK:
            way.append((vertex, following[vertex]))
            vertex = following[vertex]
        return way

    def _next_vertices(self) -> dict[Vertex, Vertex]:
        """Return the next vertex on a path to the sink, for each vertex with one."""
        following = {_SINK: _SINK}
        queue = deque([_SINK])
        while queue:
            b = queue.popleft()
            for a in self.room[b]:
                if a not in following and self.room[a][b] > 0:
                    following[a] = b
                    queue.append(a)
        return following
