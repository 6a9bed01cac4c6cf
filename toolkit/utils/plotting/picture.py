"""A picture of a model as shapes, and as SVG or, through Matplotlib, PNG and others."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import hypot
from typing import Any, NamedTuple

from toolkit.utils.plotting.graph import Cluster
from toolkit.utils.plotting.nesting import place
from toolkit.utils.plotting.shapes import (
    LINE_COLOR,
    TITLE,
    Line,
    Point,
    Rectangle,
    Shape,
    Text,
    box_shapes,
    box_size,
    printable,
)

_MARGIN = 12.0
_NATURAL_DPI = 200  # at which an SVG's texts have their size in pixels
_LENGTH, _SPREAD = 8.0, 3.5  # of an arrow's head
FRAME_COLOR = "#a0aec0"


class Picture(NamedTuple):
    """Shapes, those in front last."""

    shapes: list[Shape]
    width: float
    height: float
    title: str


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


def head(line: Line) -> list[Point]:
    """The triangle at the end of a line."""
    points = [point for _, points in line.commands for point in points]
    x, y = points[-1]
    a, b = next(point for point in reversed(points) if point != (x, y))
    length = hypot(x - a, y - b)
    dx, dy = (x - a) / length, (y - b) / length
    back = (x - _LENGTH * dx, y - _LENGTH * dy)
    return [
        (x, y),
        (back[0] + _SPREAD * dy, back[1] - _SPREAD * dx),
        (back[0] - _SPREAD * dy, back[1] + _SPREAD * dx),
    ]


# --- SVG ------------------------------------------------------------------------------


def svg(picture: Picture, dpi: float) -> str:
    """The picture as an SVG file's text."""
    width, height = picture.width, picture.height
    scale = dpi / _NATURAL_DPI
    size = f'width="{_short(width * scale)}" height="{_short(height * scale)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {_short(width)} {_short(height)}" '
        'font-family="Helvetica, Arial, sans-serif" role="img">',
        f"<title>{escape(printable(picture.title))}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *map(_svg_shape, picture.shapes),
        "</svg>\n",
    ]
    return "\n".join(lines)


def _svg_shape(shape: Shape) -> str:
    if isinstance(shape, Rectangle):
        x, y, width, height = map(_short, shape[:4])
        style = f'fill="{shape.fill}"'
        if shape.dashed:
            style += f' stroke="{FRAME_COLOR}" stroke-dasharray="5 4"'
        if shape.radius:
            style += f' rx="{_short(shape.radius)}"'
        return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" {style}/>'
    if isinstance(shape, Text):
        x, y, size, length = map(_short, (shape.x, shape.y, shape.size, shape.width))
        weight = ' font-weight="bold"' if shape.bold else ""
        return (
            f'<text x="{x}" y="{y}" font-size="{size}" fill="{shape.color}"{weight} '
            f'text-anchor="{shape.anchor}" textLength="{length}" '
            f'lengthAdjust="spacingAndGlyphs">{escape(shape.text)}</text>'
        )
    path = _svg_path(shape)
    line = f'<path d="{path}" fill="none" stroke="{LINE_COLOR}" stroke-width="1.5"/>'
    if not shape.arrow:
        return line
    points = " ".join(f"{_short(x)},{_short(y)}" for x, y in head(shape))
    return f'{line}\n<polygon points="{points}" fill="{LINE_COLOR}"/>'


def _svg_path(line: Line) -> str:
    return "".join(
        kind + " ".join(f"{_short(x)},{_short(y)}" for x, y in points)
        for kind, points in line.commands
    )


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
