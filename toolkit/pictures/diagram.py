"""Diagrams: boxes in clusters, arranged in ranks along their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.pictures.boxes import Cluster, box_shapes, box_size
from toolkit.pictures.nesting import lay_out_picture
from toolkit.pictures.picture import Picture
from toolkit.pictures.shapes import (
    TITLE,
    Line,
    Point,
    Rectangle,
    Shape,
    Text,
    remove_unprintable,
)

_MARGIN = 12.0


def draw(content: Cluster, rankdir: str, splines: str) -> Picture:
    """Lay out and draw a model; `rankdir` is "TB", "BT", "LR" or "RL"."""
    placed = lay_out_picture(content, rankdir, splines)
    sideways = rankdir in ("LR", "RL")

    def transform(point: Point) -> Point:
        x, y = point
        y = placed.height - y if rankdir in ("BT", "RL") else y
        return (y + _MARGIN, x + _MARGIN) if sideways else (x + _MARGIN, y + _MARGIN)

    frames: list[Shape] = []
    names: list[Shape] = []
    for name, x, y, width, height in placed.frames:
        (a, b), (c, d) = transform((x, y)), transform((x + width, y + height))
        x0, top = min(a, c), min(b, d)
        frames.append(
            Rectangle(x0, top, abs(c - a), abs(d - b), "none", radius=6, dashed=True)
        )
        names.append(Text(x0 + 10, top + 18, remove_unprintable(name), TITLE))
    lines = [
        _transform_line(commands, transform, arrow) for commands, arrow in placed.lines
    ]
    boxes: list[Shape] = []
    for box, point in placed.boxes.items():
        (x, y), (width, height) = transform(point), box_size(box)
        boxes += box_shapes(box, x - width / 2, y - height / 2)
    width, height = placed.width, placed.height
    if sideways:
        width, height = height, width
    shapes = [*frames, *lines, *boxes, *names]
    return Picture(shapes, width + 2 * _MARGIN, height + 2 * _MARGIN, content.name)


def _transform_line(
    commands: Any, transform: Callable[[Point], Point], arrow: bool
) -> Line:
    return Line(
        [(kind, [transform(p) for p in points]) for kind, points in commands], arrow
    )
