"""Layout of one level of a picture: node positions and edge paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from toolkit.pictures.layers import assign_ranks, find_downward, order_ranks
from toolkit.pictures.positions import Link, assign_tracks, assign_x, end, start
from toolkit.pictures.routes import Gap, path, round_corners
from toolkit.pictures.shapes import Commands

_ROOM = 36.0  # between two ranks
_SHORT = 4.0  # the same next to a rank without boxes, if no line bends
_TRACK = 9.0  # between two horizontal lines
_ABOVE, _BELOW = 11.0, 19.0  # around the tracks; the arrow heads are below them
_SIDE = 14.0  # between the rightmost box and an upward line


class Arranged(NamedTuple):
    """Node centers, one path per edge, and the total size."""

    centers: list[tuple[float, float]]
    paths: list[Commands]
    width: float
    height: float


def arrange(
    sizes: Sequence[tuple[float, float]],
    edges: Sequence[Link],
    first: Sequence[int],
    last: Sequence[int],
    splines: str,
) -> Arranged:
    """Lay out a graph from top to bottom.

    Args:
        sizes: width and height of each node; 0 for points.
        edges: between any nodes.
        first, last: the nodes of the top rank and of the bottom rank.
        splines: the shape of the edges.
    """
    level = _Level(sizes, edges, first, last)
    return level.arrange(splines)


class _Level:
    """The steps of `arrange` and their shared state."""

    def __init__(
        self,
        sizes: Sequence[tuple[float, float]],
        edges: Sequence[Link],
        first: Sequence[int],
        last: Sequence[int],
    ) -> None:
        self.sizes = sizes
        self.edges = edges
        pairs = [(edge.source, edge.target) for edge in edges]
        proper = [i for i, (u, v) in enumerate(pairs) if u != v]
        self.loops = {i for i, (u, v) in enumerate(pairs) if u == v}
        down = find_downward(len(sizes), [pairs[i] for i in proper])
        flags = zip(proper, down, strict=True)
        self.upward = [i for i, is_down in flags if not is_down]
        flat = {*self.loops, *self.upward}
        self.down = [i for i in range(len(edges)) if i not in flat]
        self.rank = assign_ranks(len(sizes), [pairs[i] for i in self.down], first, last)
        looped = {edges[i].source for i in self.loops}
        self.widths = [
            width + 2 * _SIDE * (i in looped) for i, (width, _) in enumerate(sizes)
        ]
        self.links: list[Link] = []
        self.ways = {i: self._add_links(edges[i]) for i in self.down}
        self.rows = order_ranks(self.rank, [(a.source, a.target) for a in self.links])
        ways = [[self.links[i] for i in way] for way in self.ways.values()]
        self.x = assign_x(self.rows, self.widths, ways)

    def _add_links(self, edge: Link) -> list[int]:
        """Return the links of an edge, with a point in each rank that it crosses."""
        nodes = [edge.source]
        for rank in range(self.rank[edge.source] + 1, self.rank[edge.target]):
            nodes.append(len(self.rank))
            self.rank.append(rank)
            self.widths.append(0.0)
        nodes.append(edge.target)
        way = []
        for u, v in zip(nodes, nodes[1:], strict=False):
            way.append(len(self.links))
            leaving = edge.leaving if u == edge.source else 0.0
            arriving = edge.arriving if v == edge.target else 0.0
            self.links.append(Link(u, v, leaving, arriving))
        return way

    def arrange(self, splines: str) -> Arranged:
        spans = list(zip(self.x, self.widths, strict=True))
        x0 = min((x - width / 2 for x, width in spans), default=0.0)
        width = max((x + width / 2 for x, width in spans), default=0.0) - x0
        self.x = [x - x0 for x in self.x]
        self._set_heights()
        paths: list[Commands] = [[] for _ in self.edges]
        for i in self.down:
            paths[i] = self._down_path(i, splines)
        for i in self.loops:
            paths[i] = self._loop(self.edges[i].source)
        for i in self.upward:
            width += _SIDE
            paths[i] = self._upward_path(self.edges[i], width)
        count = len(self.sizes)
        middles = [(t + b) / 2 for t, b in zip(self.tops, self.bottoms, strict=True)]
        centers = [(self.x[i], middles[self.rank[i]]) for i in range(count)]
        return Arranged(centers, paths, width, self.height)

    def _set_heights(self) -> None:
        """Set the top and bottom of each rank, and the height of each link's track."""
        heights = self.heights = [0.0] * len(self.rows)
        for (_, height), rank in zip(self.sizes, self.rank, strict=False):
            heights[rank] = max(heights[rank], height)
        self.track = [0.0] * len(self.links)
        self.tops, self.bottoms = [], []
        y = _SIDE if self.upward else 0.0
        for rank, height in enumerate(heights):
            self.tops.append(y)
            self.bottoms.append(y + height)
            y += height
            if rank + 1 < len(heights):
                y += self._gap(rank, y)
        self.height = y + (_SIDE if self.upward else 0.0)

    def _gap(self, rank: int, top: float) -> float:
        """Return the height of the gap below a rank, and set its tracks."""
        within = [
            i for i, link in enumerate(self.links) if self.rank[link.source] == rank
        ]
        track, count = assign_tracks([self.links[i] for i in within], self.x)
        for i, track_index in zip(within, track, strict=True):
            self.track[i] = top + _ABOVE + _TRACK * max(track_index, 0)
        if not count and 0.0 in (self.heights[rank], self.heights[rank + 1]):
            return _SHORT
        return max(_ROOM, _ABOVE + _BELOW + _TRACK * (count - 1))

    def _down_path(self, edge: int, splines: str) -> Commands:
        gaps = []
        for i in self.ways[edge]:
            link = self.links[i]
            rank = self.rank[link.source]
            begin, stop = start(link, self.x), end(link, self.x)
            top, bottom = self.bottoms[rank], self.tops[rank + 1]
            gaps.append(Gap(begin, stop, top, bottom, self.track[i]))
        return path(
            self._edge_of(self.edges[edge].source, 1),
            gaps,
            self._edge_of(self.edges[edge].target, -1),
            splines,
        )

    def _edge_of(self, node: int, side: int) -> float:
        """Return the height of a node's lower or upper edge."""
        rank = self.rank[node]
        middle = (self.tops[rank] + self.bottoms[rank]) / 2
        return middle + side * self.sizes[node][1] / 2

    def _loop(self, node: int) -> Commands:
        """Draw a loop from a node's right edge back to it."""
        rank = self.rank[node]
        y = (self.tops[rank] + self.bottoms[rank]) / 2
        x = self.x[node] + self.sizes[node][0] / 2
        side, reach = x + _SIDE, self.sizes[node][1] / 4
        high, low = y - reach, y + reach
        return round_corners([(x, high), (side, high), (side, low), (x, low)])

    def _upward_path(self, edge: Link, side: float) -> Commands:
        """Draw a path to the right of all nodes, from the bottom to the top."""
        x, stop = start(edge, self.x), end(edge, self.x)
        low = self.bottoms[self.rank[edge.source]] + _ABOVE / 2
        high = self.tops[self.rank[edge.target]] - _BELOW + _ABOVE / 2
        return round_corners(
            [
                (x, self._edge_of(edge.source, 1)),
                (x, low),
                (side, low),
                (side, high),
                (stop, high),
                (stop, self._edge_of(edge.target, -1)),
            ]
        )
