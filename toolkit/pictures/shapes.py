"""Shapes of a picture: rectangles, texts and lines, in colours with a role."""

from __future__ import annotations

import unicodedata
from math import hypot
from typing import Any, NamedTuple

# Role -> its light colour and its dark colour.
PALETTE = {
    "paper": ("#ffffff", "#15191f"),
    "ink": ("#1a202c", "#e6e9ef"),
    "muted": ("#4a5568", "#a0aab8"),
    "faint": ("#e2e6ec", "#2c333d"),
    "frame": ("#a0aec0", "#5b6675"),
    "title": ("#ffffff", "#ffffff"),
    "input": ("#2f7d5b", "#2f7d5b"),
    "weights": ("#2b4c7e", "#31588f"),
    "plain": ("#4a5568", "#4a5568"),
    "model": ("#6b4c9a", "#6b4c9a"),
    "bad": ("#b23b3b", "#b23b3b"),
    # Colours of series that also differ for colour-blind readers and in greyscale.
    "first": ("#1f5fbf", "#6aa6ff"),
    "second": ("#b4540a", "#f29a4a"),
    "third": ("#1d7a5f", "#4cc3a0"),
    "fourth": ("#8a4fbf", "#c39bf0"),
    "fifth": ("#a83266", "#f27fae"),
    "sixth": ("#5d6470", "#9aa4b2"),
}
SERIES = ("first", "second", "third", "fourth", "fifth", "sixth")
TITLE, BODY, SMALL = 14.0, 12.0, 11.0  # sizes of text
_HEAD, _SPREAD = 8.0, 3.5  # the length of an arrow's head, and half its width

# Widths of Helvetica's characters from " " to "~" in thousandths of the font size, from
# Adobe's font metrics. Characters without an entry have this width:
_OTHER, _WIDE = 600, 1000
_WIDTHS = [
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *(556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556),
    *(1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778),
    *(667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556),
    *(333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556),
    *(556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
]
_BOLD = 1.07  # width relative to regular letters

Point = tuple[float, float]
Commands = list[tuple[str, list[Point]]]  # of a path, as in SVG: M, L, Q and C


class Rectangle(NamedTuple):
    """A rectangle from its upper left corner.

    Attributes:
        fill: a role of `PALETTE`, or "none".
        dashed: whether it has a dashed outline.
        opacity: of the fill, from 0 to 1.
        hint: the tooltip.
    """

    x: float
    y: float
    width: float
    height: float
    fill: str
    radius: float = 0
    dashed: bool = False
    opacity: float = 1
    hint: str = ""


class Text(NamedTuple):
    """A text with its baseline's left end, right end or center at a point."""

    x: float
    y: float
    text: str
    size: float = BODY
    bold: bool = False
    color: str = "ink"
    anchor: str = "start"  # or "middle" or "end"

    @property
    def width(self) -> float:
        """Return the width of the text."""
        return text_width(self.text, self.size, self.bold)


class Line(NamedTuple):
    """A line along a path, with or without an arrow head at its end."""

    commands: Commands
    arrow: bool = False
    color: str = "muted"
    width: float = 1.5
    dashed: bool = False


Shape = Rectangle | Text | Line


def straight_line(*points: Point, **options: Any) -> Line:
    """Draw a straight line through points."""
    first, *remaining = points
    return Line([("M", [first]), *[("L", [point]) for point in remaining]], **options)


def arrow_head(line: Line) -> list[Point]:
    """Return the triangle at the end of a line."""
    points = [point for _, points in line.commands for point in points]
    x, y = points[-1]
    a, b = next(point for point in reversed(points) if point != (x, y))
    length = hypot(x - a, y - b)
    dx, dy = (x - a) / length, (y - b) / length
    back = (x - _HEAD * dx, y - _HEAD * dy)
    return [
        (x, y),
        (back[0] + _SPREAD * dy, back[1] - _SPREAD * dx),
        (back[0] - _SPREAD * dy, back[1] + _SPREAD * dx),
    ]


def remove_unprintable(text: str) -> str:
    """Remove line breaks and the characters that are invalid in XML."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Estimate the width of a text."""
    total = sum(map(_character_width, text))
    return total * size / 1000 * (_BOLD if bold else 1.0)


def truncate_text(text: str, width: float, size: float, bold: bool = False) -> str:
    """Truncate a text to a width."""
    text = remove_unprintable(text)
    if text_width(text, size, bold) <= width:
        return text
    end = "\N{HORIZONTAL ELLIPSIS}"
    while text and text_width(text + end, size, bold) > width:
        text = text[:-1]
    return text + end


def wrap_text(text: str, width: float, size: float) -> list[str]:
    """Wrap a text to a width; a single word can be wider."""
    lines: list[str] = []
    for word in remove_unprintable(text).split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(truncate_text(word, width, size))
    return lines


def _character_width(character: str) -> int:
    index = ord(character) - 32
    if 0 <= index < len(_WIDTHS):
        return _WIDTHS[index]
    return _WIDE if unicodedata.east_asian_width(character) in "WF" else _OTHER
