"""The parts of a picture: rectangles, texts and lines; and a layer's box of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from toolkit.utils.plotting.graph import Box, Cell

COLORS = {
    "input": "#2f7d5b",
    "weights": "#2b4c7e",
    "plain": "#4a5568",
    "model": "#6b4c9a",
    "good": "#2f7d5b",
    "bad": "#b23b3b",
    "": "#ffffff",
}
LINE_COLOR = "#4a5568"
TEXT_COLOR = "#1a202c"
TITLE, BODY = 14.0, 12.0  # sizes of text
_PAD = 12.0  # beside a text
_ROW = 26.0  # height
_SPACE = 0.3  # between two texts, in their size
_FRAME = 1.5  # of the box, around its cells

# How wide Helvetica's characters from " " to "~" are, in thousandths of the size: from
# Adobe's font metrics. What has no entry is taken to be this wide:
_OTHER, _WIDE = 600, 1000
_WIDTHS = [
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *(556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556),
    *(1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778),
    *(667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556),
    *(333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556),
    *(556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
]
_BOLD = 1.07  # as wide as the same text in plain letters

Point = tuple[float, float]
Commands = list[tuple[str, list[Point]]]  # of a path, as in SVG: M, L, Q and C


class Rectangle(NamedTuple):
    """A rectangle from its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    radius: float = 0
    dashed: bool = False


class Text(NamedTuple):
    """A text from the left end of its baseline, or before its end, or around it."""

    x: float
    y: float
    text: str
    size: float
    bold: bool = False
    color: str = TEXT_COLOR
    anchor: str = "start"  # or "middle" or "end"

    @property
    def width(self) -> float:
        """How wide the text is."""
        return text_width(self.text, self.size, self.bold)


class Line(NamedTuple):
    """A line along a path, with an arrow's head at its end or without."""

    commands: Commands
    arrow: bool


Shape = Rectangle | Text | Line


def printable(text: str) -> str:
    """The text without the characters that XML cannot hold, nor line breaks."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def text_width(text: str, size: float, bold: bool = False) -> float:
    """How wide a text is."""
    total = sum(map(_character_width, text))
    return total * size / 1000 * (_BOLD if bold else 1.0)


def _character_width(character: str) -> int:
    place = ord(character) - 32
    if 0 <= place < len(_WIDTHS):
        return _WIDTHS[place]
    return _WIDE if unicodedata.east_asian_width(character) in "WF" else _OTHER


Words = list[tuple[str, bool]]  # one or two texts, and whether each is bold


def _title(box: Box) -> Words:
    name, kind = printable(box.name), printable(box.kind)
    return [(name, True), (f"({kind})", False)] if name else [(kind, True)]


def _words(cell: Cell) -> Words:
    value = [(printable(cell.value), True)]
    return [(f"{cell.label}:", False), *value] if cell.label else value


def _width(words: Words, size: float) -> float:
    return sum(text_width(text, size, bold) for text, bold in words) + size * _SPACE


def _cell_widths(row: list[Cell]) -> list[float]:
    return [_width(_words(cell), BODY) + 2 * _PAD for cell in row]


def box_size(box: Box) -> tuple[float, float]:
    """The width and height that the texts of a box need."""
    rows = [sum(_cell_widths(row)) + len(row) - 1 for row in box.rows]
    title = _width(_title(box), TITLE) + 2 * _PAD
    height = _ROW + 4 + len(rows) * (_ROW + 1)
    return max(title, *rows, 60.0) + 2 * _FRAME if rows else title + 2 * _FRAME, height


def box_shapes(box: Box, x: float, y: float) -> Iterator[Shape]:
    """A box with its upper left corner at (x, y)."""
    width, height = box_size(box)
    yield Rectangle(x, y, width, height, COLORS[box.role], radius=4)
    yield from _centred(_title(box), TITLE, x, y + 2, width, "#ffffff")
    y += _ROW + 4 - _FRAME
    for row in box.rows:
        widths = _cell_widths(row)
        spare = (width - 2 * _FRAME - sum(widths) - len(row) + 1) / len(row)
        left = x + _FRAME
        for cell, needed in zip(row, widths, strict=True):
            yield Rectangle(left, y, needed + spare, _ROW, COLORS[cell.mood])
            color = "#ffffff" if cell.mood else TEXT_COLOR
            yield from _centred(_words(cell), BODY, left, y, needed + spare, color)
            left += needed + spare + 1
        y += _ROW + 1


def _centred(
    words: Words, size: float, x: float, y: float, width: float, color: str
) -> Iterator[Text]:
    """Words in the middle of a row; two of them on either side of one point, so that
    they stay apart in whatever letters they are drawn."""
    x += width / 2
    y += _ROW / 2 + 0.36 * size  # a capital letter is about 0.72 as high as its size
    if len(words) == 1:
        yield Text(x, y, *_with_size(words[0], size), color, "middle")
        return
    left, right = (text_width(text, size, bold) for text, bold in words)
    x += (left - right) / 2
    space = size * _SPACE / 2
    yield Text(x - space, y, *_with_size(words[0], size), color, "end")
    yield Text(x + space, y, *_with_size(words[1], size), color, "start")


def _with_size(words: tuple[str, bool], size: float) -> tuple[str, float, bool]:
    return words[0], size, words[1]
