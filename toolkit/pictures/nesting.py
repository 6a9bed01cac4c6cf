"""Layout of nested clusters, from the innermost outwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from toolkit.pictures.arrange import Arranged, arrange
from toolkit.pictures.boxes import Box, Cluster, box_size
from toolkit.pictures.positions import Link
from toolkit.pictures.shapes import TITLE, Commands, text_width

_PAD = 14.0  # inside the frame of a cluster
_LABEL = 22.0  # the height of its name

Edge = tuple[Box, Box]


@dataclass
class Placed:
    """A laid-out level of the picture with all its content.

    Attributes:
        boxes: the center of each box.
        frames: (name, x, y, width, height) of the clusters inside.
        lines: paths, and whether they end with an arrow head.
        leaving, arriving: the distance from the frame's center at which the edges of
            an inner box cross the frame.
    """

    width: float
    height: float
    boxes: dict[Box, tuple[float, float]] = field(default_factory=dict)
    frames: list[tuple[str, float, float, float, float]] = field(default_factory=list)
    lines: list[tuple[Commands, bool]] = field(default_factory=list)
    leaving: dict[Box, float] = field(default_factory=dict)
    arriving: dict[Box, float] = field(default_factory=dict)

    def add(self, other: Placed, x: float, y: float) -> None:
        """Add the content of `other` with its upper left corner at (x, y)."""
        for box, (a, b) in other.boxes.items():
            self.boxes[box] = a + x, b + y
        for name, a, b, width, height in other.frames:
            self.frames.append((name, a + x, b + y, width, height))
        for commands, arrow in other.lines:
            self.lines.append((translate(commands, x, y), arrow))


def translate(commands: Commands, x: float, y: float) -> Commands:
    """Translate a path."""
    return [(kind, [(a + x, b + y) for a, b in points]) for kind, points in commands]


def lay_out_picture(cluster: Cluster, rankdir: str, splines: str) -> Placed:
    """Lay out a whole picture as if its direction were "TB"."""
    return _Nesting(rankdir, splines).lay_out(cluster, list(cluster.edges))


def _boxes(child: Box | Cluster) -> Iterable[Box]:
    if isinstance(child, Box):
        return [child]
    return [box for inner in child.children for box in _boxes(inner)]


class _Nesting:
    def __init__(self, rankdir: str, splines: str) -> None:
        self.rankdir = rankdir
        self.splines = splines
        self.sideways = rankdir in ("LR", "RL")

    def lay_out(self, cluster: Cluster, edges: list[Edge]) -> Placed:
        """Lay out the content of a cluster; `edges` are the edges that touch it."""
        children = cluster.children
        where = {box: i for i, child in enumerate(children) for box in _boxes(child)}
        inner = {
            i: self._add_frame(child, [e for e in edges if child_of(where, i, e)])
            for i, child in enumerate(children)
            if isinstance(child, Cluster)
        }
        sizes = [
            (inner[i].width, inner[i].height) if i in inner else self._size(child)
            for i, child in enumerate(children)
        ]
        links, arrows, exits, entries = self._links(edges, where, inner)
        points = [(0.0, 0.0)] * (len(exits) + len(entries))
        last, first = list(exits.values()), list(entries.values())
        arranged = arrange([*sizes, *points], links, first, last, self.splines)
        result = _place_children(arranged, children, inner)
        result.lines += zip(arranged.paths, arrows, strict=True)
        for ports, crossing in ((exits, result.leaving), (entries, result.arriving)):
            for box, i in ports.items():
                crossing[box] = arranged.centers[i][0] - arranged.width / 2
        return result

    def _size(self, child: Box | Cluster) -> tuple[float, float]:
        assert isinstance(child, Box)
        width, height = box_size(child)
        return (height, width) if self.sideways else (width, height)

    def _links(
        self, edges: list[Edge], where: dict[Box, int], inner: dict[int, Placed]
    ) -> tuple[list[Link], list[bool], dict[Box, int], dict[Box, int]]:
        """Return the edges of this level, which of them have heads, and the ports."""
        count = max(where.values(), default=-1) + 1
        leavers = dict.fromkeys(a for a, b in edges if a in where and b not in where)
        arrivers = dict.fromkeys(b for a, b in edges if b in where and a not in where)
        exits = {box: count + i for i, box in enumerate(leavers)}
        entries = {box: count + len(exits) + i for i, box in enumerate(arrivers)}
        links: dict[Link, bool] = {}
        for a, b in edges:
            source = where.get(a, entries.get(b, -1))
            target = where.get(b, exits.get(a, -1))
            if source == target and source in inner:
                continue  # drawn in the inner level
            leaving = inner[source].leaving[a] if source in inner else 0.0
            arriving = inner[target].arriving[b] if target in inner else 0.0
            ends_here = b in where and target not in inner
            links[Link(source, target, leaving, arriving)] = ends_here
        return list(links), list(links.values()), exits, entries

    def _add_frame(self, cluster: Cluster, edges: list[Edge]) -> Placed:
        """Return a cluster with its frame and space for its name. The name is at the
        top in every direction."""
        content = self.lay_out(cluster, edges)
        name = text_width(cluster.name, TITLE) + _PAD
        spare = max(0.0, name - (content.height if self.sideways else content.width))
        before, after, top, bottom = {
            "TB": (_PAD + spare / 2, _PAD + spare / 2, _PAD + _LABEL, _PAD),
            "BT": (_PAD + spare / 2, _PAD + spare / 2, _PAD, _PAD + _LABEL),
            "LR": (_PAD + _LABEL, _PAD, _PAD + spare / 2, _PAD + spare / 2),
            "RL": (_PAD + _LABEL, _PAD, _PAD + spare / 2, _PAD + spare / 2),
        }[self.rankdir]
        width = content.width + before + after
        height = content.height + top + bottom
        result = Placed(width, height)
        result.frames.append((cluster.name, 0.0, 0.0, width, height))
        result.add(content, before, top)
        shift = before + content.width / 2 - width / 2
        for box, x in content.leaving.items():
            result.leaving[box] = x + shift
            line = _vertical(x + shift + width / 2, height - bottom, height)
            result.lines.append((line, False))
        for box, x in content.arriving.items():
            result.arriving[box] = x + shift
            line = _vertical(x + shift + width / 2, 0.0, top)
            result.lines.append((line, False))
        return result


def child_of(where: dict[Box, int], child: int, edge: Edge) -> bool:
    """Return whether an edge touches a child."""
    return child in (where.get(edge[0]), where.get(edge[1]))


def _vertical(x: float, top: float, bottom: float) -> Commands:
    return [("M", [(x, top)]), ("L", [(x, bottom)])]


def _place_children(
    arranged: Arranged, children: list[Box | Cluster], inner: dict[int, Placed]
) -> Placed:
    """Put the children at their positions."""
    result = Placed(arranged.width, arranged.height)
    for i, child in enumerate(children):
        x, y = arranged.centers[i]
        if isinstance(child, Box):
            result.boxes[child] = x, y
        else:
            child_layout = inner[i]
            result.add(
                child_layout, x - child_layout.width / 2, y - child_layout.height / 2
            )
    return result
