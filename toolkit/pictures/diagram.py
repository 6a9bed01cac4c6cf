"""Diagrams: boxes in clusters, arranged in ranks along their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.pictures.boxes import Cluster, box_shapes, box_size
from toolkit.pictures.nesting import place
from toolkit.pictures.picture import Picture
from toolkit.pictures.shapes import (
    TITLE,
    Line,
    Point,
    Rectangle,
    Shape,
    Text,
    printable,
)

_MARGIN = 12.0


def draw(content: Cluster, rankdir: str, splines: str) -> Picture:
    """Lay out and draw a model; `rankdir` is "TB", "BT", "LR" or "RL"."""
    placed = place(content, rankdir, splines)
    sideways = rankdir in ("LR", "RL")

    def turn(point: Point) -> Point:
        x, y = point
        y = placed.height - y if rankdir in ("BT", "RL") else y
        return (y + _MARGIN, x + _MARGIN) if sideways else (x + _MARGIN, y + _MARGIN)

    frames: list[Shape] = []
    names: list[Shape] = []
    for name, x, y, width, height in placed.frames:
        (a, b), (c, d) = turn((x, y)), turn((x + width, y + height))
        left, top = min(a, c), min(b, d)
        frames.append(
            Rectangle(left, top, abs(c - a), abs(d - b), "none", radius=6, dashed=True)
        )
        names.append(Text(left + 10, top + 18, printable(name), TITLE))
    lines = [_turned(commands, turn, arrow) for commands, arrow in placed.lines]
    boxes: list[Shape] = []
    for box, point in placed.boxes.items():
        (x, y), (width, height) = turn(point), box_size(box)
        boxes += box_shapes(box, x - width / 2, y - height / 2)
    width, height = placed.width, placed.height
    if sideways:
        width, height = height, width
    shapes = [*frames, *lines, *boxes, *names]
    return Picture(shapes, width + 2 * _MARGIN, height + 2 * _MARGIN, content.name)


def _turned(commands: Any, turn: Callable[[Point], Point], arrow: bool) -> Line:
    return Line([(kind, [turn(p) for p in points]) for kind, points in commands], arrow)
