"""Layered layout: the positions of nodes in ordered ranks, and the tracks of edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

_SWEEPS = 12
_STRAIGHTENINGS = 4  # of long edges, in the last step
_GAP = 28.0  # between nodes of a rank
_WEIGHT = 1000.0  # of a box, relative to the points of a long edge, which have weight 1
_NEAR = 6.0  # two lines with a smaller distance look like one
_CLOSE = 0.5  # two ends with a smaller distance are aligned


class Link(NamedTuple):
    """A piece of an edge between two adjacent ranks, with the distance of each end from
    its node's center."""

    source: int
    target: int
    leaving: float
    arriving: float


def assign_x(
    rows: Sequence[Sequence[int]], widths: Sequence[float], ways: Sequence[list[Link]]
) -> list[float]:
    """Return the center of each node: near its neighbours, without overlap.

    Args:
        rows: the nodes of each rank, in order.
        widths: of the nodes; 0 for the points of long edges.
        ways: the links of each edge.
    """
    x = [0.0] * len(widths)
    bends = [[link.target for link in way[:-1]] for way in ways]

    def settle(row: Sequence[int], targets: Sequence[float] | dict[int, float]) -> None:
        for node, position in zip(row, _separate(row, widths, targets), strict=True):
            x[node] = position

    above, below = _neighbours(ways)
    for row in rows:
        settle(row, x)
    for sweep in range(2 * _SWEEPS + 1):
        down = sweep % 2 == 0
        near = above if down else below
        for row in rows if down else reversed(rows):
            settle(row, {node: _mean(near[node], x, x[node]) for node in row})
    for _ in range(_STRAIGHTENINGS):
        x_targets = list(x)
        for way, points in zip(ways, bends, strict=True):
            middle = (start(way[0], x) + end(way[-1], x)) / 2
            outmost = max((x[i] - middle for i in points), key=abs, default=0.0)
            for i in points:
                x_targets[i] = middle + outmost
        for row in rows:
            settle(row, x_targets)
    return x


_Near = dict[int, list[tuple[int, float]]]  # node -> neighbours, and horizontal offset


def _neighbours(ways: Sequence[list[Link]]) -> tuple[_Near, _Near]:
    """Return the neighbours above and below. A point has the next points of its edge; a
    box has the boxes at the other ends of its edges."""
    above: _Near = defaultdict(list)
    below: _Near = defaultdict(list)
    for way in ways:
        shift = way[-1].arriving - way[0].leaving
        above[way[-1].target].append((way[0].source, -shift))
        below[way[0].source].append((way[-1].target, shift))
        for link in way[:-1]:
            above[link.target].append((link.source, link.leaving))
        for link in way[1:]:
            below[link.source].append((link.target, link.arriving))
    return above, below


def _mean(near: list[tuple[int, float]], x: list[float], default: float) -> float:
    if not near:
        return default
    return sum(x[node] + shift for node, shift in near) / len(near)


def _separate(
    row: Sequence[int],
    widths: Sequence[float],
    targets: Sequence[float] | dict[int, float],
) -> list[float]:
    """Return the nearest positions, in least squares, at which no nodes overlap.

    After subtraction of the gaps, the positions only must not decrease: isotonic
    regression. The pool-adjacent-violators algorithm solves it.
    """
    offsets = [0.0]
    pools: list[list[float]] = []  # weighted sum of positions, weight, number of nodes
    for a, b in zip(row, row[1:], strict=False):
        gap = _GAP if widths[a] and widths[b] else _GAP / 2
        offsets.append(offsets[-1] + (widths[a] + widths[b]) / 2 + gap)
    for node, offset in zip(row, offsets, strict=True):
        weight = _WEIGHT if widths[node] else 1.0
        pool = [(targets[node] - offset) * weight, weight, 1.0]
        while pools and pools[-1][0] / pools[-1][1] > pool[0] / pool[1]:
            pool = [a + b for a, b in zip(pool, pools.pop(), strict=True)]
        pools.append(pool)
    positions = [total / mass for total, mass, size in pools for _ in range(int(size))]
    return [
        position + offset for position, offset in zip(positions, offsets, strict=True)
    ]


def assign_tracks(links: Sequence[Link], x: Sequence[float]) -> tuple[list[int], int]:
    """Return the track of each link's horizontal part in one gap, and the track count.

    Links to one point, or from one point, share a track. A straight link has track -1.
    A link that would cover another link's line has a higher track.
    """
    nets = _group_nets(links, x)
    starts = [[start(links[i], x) for i in net] for net in nets]
    ends = [[end(links[i], x) for i in net] for net in nets]
    result, occupied = [-1] * len(links), _Tracks()
    placed: dict[int, int] = {}
    for net in _sort_nets(starts, ends):
        above = [t for other, t in placed.items() if _meet(starts[other], ends[net])]
        span = [*starts[net], *ends[net]]
        placed[net] = occupied.occupy(max(above, default=-1) + 1, min(span), max(span))
        for i in nets[net]:
            result[i] = placed[net]
    return result, len(occupied.spans)


class _Tracks:
    """The occupied parts of each track."""

    def __init__(self) -> None:
        self.spans: list[list[tuple[float, float]]] = []

    def occupy(self, track: int, low: float, high: float) -> int:
        """Occupy the first track from this one on that is free from `low` to `high`."""
        while track < len(self.spans) and any(
            low < b + _NEAR and a < high + _NEAR for a, b in self.spans[track]
        ):
            track += 1
        self.spans += [[] for _ in range(track + 1 - len(self.spans))]
        self.spans[track].append((low, high))
        return track


def _group_nets(links: Sequence[Link], x: Sequence[float]) -> list[list[int]]:
    """Group the links that share a track: links to one point, or else from one
    point."""
    bent = [
        i for i, link in enumerate(links) if abs(start(link, x) - end(link, x)) > _CLOSE
    ]
    leaving, arriving = defaultdict(list), defaultdict(list)
    for i in bent:
        leaving[links[i].source, links[i].leaving].append(i)
        arriving[links[i].target, links[i].arriving].append(i)
    nets: dict[tuple[bool, int, float], list[int]] = defaultdict(list)
    for i in bent:
        source, target = links[i].source, links[i].target
        together = arriving[target, links[i].arriving]
        is_alone = all(
            len(leaving[links[j].source, links[j].leaving]) == 1 for j in together
        )
        key = (target, links[i].arriving) if is_alone else (source, links[i].leaving)
        nets[(is_alone, *key)].append(i)
    return list(nets.values())


def start(link: Link, x: Sequence[float]) -> float:
    """Return the position at which a link leaves."""
    return x[link.source] + link.leaving


def end(link: Link, x: Sequence[float]) -> float:
    """Return the position at which a link arrives."""
    return x[link.target] + link.arriving


def _meet(starts: list[float], ends: list[float]) -> bool:
    return any(abs(a - b) < _NEAR for a in starts for b in ends)


def _sort_nets(starts: list[list[float]], ends: list[list[float]]) -> list[int]:
    """Sort the nets so that upper nets are first; a cycle is cut at any net."""
    remaining = sorted(range(len(starts)), key=lambda net: min(starts[net]))
    result = []
    while remaining:
        free = (
            net
            for net in remaining
            if not any(
                other != net and _meet(starts[other], ends[net]) for other in remaining
            )
        )
        next_net = next(free, remaining[0])
        remaining.remove(next_net)
        result.append(next_net)
    return result
