"""What a forward pass keeps for the backward pass: the cheapest values that suffice.

Values that cost little are computed again from those that are kept. Which to keep is
the minimum cut of a network that leads from what cannot be computed again to what is
needed: every way through it has to pass a value that is kept.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolkit.ir import Value

# A side of a value, or one of the ends. The side stands first: it tells places apart
# before values are compared, which tensors do by their elements.
Place = tuple[str, Value | None]
_SOURCE: Place = ("source", None)
_SINK: Place = ("sink", None)


def cheapest_residuals(
    needed: Iterable[Any],
    made_from: Callable[[Any], Sequence[Any] | None],
    price: Callable[[Any], int],
) -> list[Any]:
    """The values to keep, so that all that is needed can be computed from them.

    Args:
        needed: values that the backward pass reads.
        made_from: what a value can be computed from again; None: it has to be kept.
        price: of keeping a value. Of equal prices the one that saves work counts.
    """
    network = _Network()
    values: dict[Value, None] = {}
    stack = list(needed)
    for value in stack:
        network.join(("out", value), _SINK)
    while stack:
        value = stack.pop()
        if value in values:
            continue
        values[value] = None
        network.join(("in", value), ("out", value), price(value))
        sources = made_from(value)
        if sources is None:
            network.join(_SOURCE, ("in", value))
        for source in sources or ():
            network.join(("out", source), ("in", value))
            stack.append(source)
    behind = network.behind_the_cut()
    return [
        value
        for value in values
        if ("in", value) not in behind and ("out", value) in behind
    ]


class _Network:
    """Places, and what can still flow from one to the next."""

    def __init__(self) -> None:
        self.room: defaultdict[Place, dict[Place, float]] = defaultdict(dict)

    def join(self, a: Place, b: Place, most: float = float("inf")) -> None:
        """Let something flow from a to b."""
        self.room[a][b] = most
        self.room[b].setdefault(a, 0)

    def behind_the_cut(self) -> set[Place]:
        """The places between a minimum cut, the one nearest to the sink, and the sink.

        By Edmonds and Karp: as long as there is a way, let flow through the shortest.
        """
        while way := self._way():
            flow = min(self.room[a][b] for a, b in way)
            for a, b in way:
                self.room[a][b] -= flow
                self.room[b][a] += flow
        return set(self._leading_to_sink())

    def _way(self) -> list[tuple[Place, Place]]:
        """The shortest way with room from the source to the sink, if there is one."""
        following = self._leading_to_sink()
        way, place = [], _SOURCE
        while place in following and place != _SINK:
            way.append((place, following[place]))
            place = following[place]
        return way

    def _leading_to_sink(self) -> dict[Place, Place]:
        """For each place from which the sink can be reached the next one on the way."""
        following = {_SINK: _SINK}
        queue = deque([_SINK])
        while queue:
            b = queue.popleft()
            for a in self.room[b]:
                if a not in following and self.room[a][b] > 0:
                    following[a] = b
                    queue.append(a)
        return following
