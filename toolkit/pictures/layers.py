"""Layered layout: the ranks of the nodes, and the node order in each rank.

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical
system structures", 1981. The algorithm breaks cycles, puts each node below its sources,
adds a point to each rank that a long edge crosses, and sorts the ranks by barycenters.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence

Pair = tuple[int, int]
_SWEEPS = 16


def find_downward(nodes: int, pairs: Sequence[Pair]) -> list[bool]:
    """Return for each pair whether it can go down; an edge that closes a cycle
    cannot."""
    after = defaultdict(list)
    for i, (u, v) in enumerate(pairs):
        after[u].append((i, v))
    down = [True] * len(pairs)
    state = [0] * nodes  # 1: on the path from the root, 2: done
    for root in range(nodes):
        stack = [(root, iter(after[root]))] if state[root] == 0 else []
        state[root] = state[root] or 1
        while stack:
            node, successors = stack[-1]
            i, following = next(successors, (-1, -1))
            if i < 0:
                state[node] = 2
                stack.pop()
            elif state[following] == 1:
                down[i] = False
            elif state[following] == 0:
                state[following] = 1
                stack.append((following, iter(after[following])))
    return down


def assign_ranks(
    nodes: int, pairs: Sequence[Pair], first: Iterable[int], last: Iterable[int]
) -> list[int]:
    """Return the rank of each node: below its sources, and sources just above targets.

    Args:
        nodes: the number of nodes.
        pairs: (source, target), without cycles.
        first, last: the only nodes of the top rank and of the bottom rank.
    """
    after, before = defaultdict(list), defaultdict(list)
    for u, v in pairs:
        after[u].append(v)
        before[v].append(u)
    waiting = [len(before[v]) for v in range(nodes)]
    order = [v for v in range(nodes) if not waiting[v]]
    rank = [0] * nodes
    for u in order:
        for v in after[u]:
            rank[v] = max(rank[v], rank[u] + 1)
            waiting[v] -= 1
            if not waiting[v]:
                order.append(v)
    ends = {*first, *last}
    for v in range(nodes):
        if not before[v] and after[v]:
            rank[v] = min(rank[w] for w in after[v]) - 1
    inner = [rank[v] for v in range(nodes) if v not in ends] or [0]
    for v in first:
        rank[v] = min(inner) - 1
    for v in last:
        rank[v] = max(inner) + 1
    top = min(rank, default=0)
    return [r - top for r in rank]


def order_ranks(rank: Sequence[int], pairs: Sequence[Pair]) -> list[list[int]]:
    """Order the nodes of each rank so that few edges cross.

    Args:
        rank: of each node.
        pairs: (source, target), one rank apart.
    """
    above, below = defaultdict(list), defaultdict(list)
    for u, v in pairs:
        below[u].append(v)
        above[v].append(u)
    rows = _depth_first_ranks(rank, below)
    best, fewest_crossings = rows, _count_crossings(rows, below)
    for sweep in range(_SWEEPS):
        if not fewest_crossings:
            break
        down = sweep % 2 == 0
        rows = _sort_by_barycenter(rows, above if down else below, down)
        crossings = _count_crossings(rows, below)
        if crossings < fewest_crossings:
            best, fewest_crossings = rows, crossings
    return best


def _depth_first_ranks(
    rank: Sequence[int], below: dict[int, list[int]]
) -> list[list[int]]:
    """Return the ranks in the order of a depth-first search from the top."""
    rows: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    visited = set()
    for root in sorted(range(len(rank)), key=lambda v: rank[v]):
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in visited:
                visited.add(node)
                rows[rank[node]].append(node)
                stack += reversed(below[node])
    return rows


def _sort_by_barycenter(
    rows: list[list[int]], neighbours: dict[int, list[int]], down: bool
) -> list[list[int]]:
    """Sort each rank by the mean position of its neighbours in the previous rank."""
    result = [list(row) for row in rows]
    position: dict[int, float] = {}
    for r in range(len(rows)) if down else reversed(range(len(rows))):
        means = {}
        for i, node in enumerate(result[r]):
            near = [position[other] for other in neighbours[node]]
            means[node] = sum(near) / len(near) if near else float(i)
        result[r].sort(key=means.__getitem__)
        position.update((node, float(i)) for i, node in enumerate(result[r]))
    return result


def _count_crossings(rows: list[list[int]], below: dict[int, list[int]]) -> int:
    """Count the pairs of edges that cross."""
    total = 0
    for upper, lower in zip(rows, rows[1:], strict=False):
        position = {node: i for i, node in enumerate(lower)}
        sorted_ends: list[int] = []
        for node in upper:
            ends = [position[other] for other in below[node]]
            total += sum(
                len(sorted_ends) - bisect_right(sorted_ends, end) for end in ends
            )
            for end in ends:
                insort(sorted_ends, end)
    return total
