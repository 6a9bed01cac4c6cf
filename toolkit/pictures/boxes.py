"""Boxes with a title and rows of cells, in clusters, with edges between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from toolkit.pictures.shapes import (
    BODY,
    TITLE,
    Rectangle,
    Shape,
    Text,
    remove_unprintable,
    text_width,
)

MOODS = {"": "paper", "good": "input", "bad": "bad"}  # the colour of a cell
_PAD = 12.0  # to the left and right of a text
_ROW = 26.0  # height
_SPACE = 0.3  # between two texts, relative to their size
_FRAME = 1.5  # of the box, around its cells


class Cell(NamedTuple):
    """A field of a box: its label, its value, and a mood: "", "good" or "bad"."""

    label: str
    value: str
    mood: str = ""


@dataclass(eq=False)
class Box:
    """A layer: its name, if shown, its class and rows of cells."""

    name: str
    kind: str
    role: str  # "input", "weights", "model" or "plain"
    rows: list[list[Cell]]
    detail: str = ""  # properties that are not drawn; equal layers have the same


@dataclass(eq=False)
class Cluster:
    """A model and its boxes."""

    name: str
    children: list[Box | Cluster] = field(default_factory=list)
    edges: dict[tuple[Box, Box], None] = field(default_factory=dict)  # an ordered set


Words = list[tuple[str, bool]]  # one or two texts, and whether each is bold


def _title(box: Box) -> Words:
    name, kind = remove_unprintable(box.name), remove_unprintable(box.kind)
    return [(name, True), (f"({kind})", False)] if name else [(kind, True)]


def _words(cell: Cell) -> Words:
    value = [(remove_unprintable(cell.value), True)]
    return [(f"{cell.label}:", False), *value] if cell.label else value


def _width(words: Words, size: float) -> float:
    return sum(text_width(text, size, bold) for text, bold in words) + size * _SPACE


def _cell_widths(row: list[Cell]) -> list[float]:
    return [_width(_words(cell), BODY) + 2 * _PAD for cell in row]


def truncate(text: str, length: int) -> str:
    """Truncate a long text."""
    return text if len(text) <= length else f"{text[:length]}\N{HORIZONTAL ELLIPSIS}"


def box_size(box: Box) -> tuple[float, float]:
    """Return the width and height that the texts of a box need."""
    rows = [sum(_cell_widths(row)) + len(row) - 1 for row in box.rows]
    title = _width(_title(box), TITLE) + 2 * _PAD
    height = _ROW + 4 + len(rows) * (_ROW + 1) - bool(rows)
    return max(title, *rows, 60.0) + 2 * _FRAME if rows else title + 2 * _FRAME, height


def box_shapes(box: Box, x: float, y: float) -> Iterator[Shape]:
    """Draw a box with its upper left corner at (x, y)."""
    width, height = box_size(box)
    yield Rectangle(x, y, width, height, box.role, radius=4)
    yield from _center_words(_title(box), TITLE, x, y + 2, width, "title")
    y += _ROW + 4 - _FRAME
    for row in box.rows:
        widths = _cell_widths(row)
        spare = (width - 2 * _FRAME - sum(widths) - len(row) + 1) / len(row)
        x0 = x + _FRAME
        for cell, needed in zip(row, widths, strict=True):
            yield Rectangle(x0, y, needed + spare, _ROW, MOODS[cell.mood])
            color = "title" if cell.mood else "ink"
            yield from _center_words(_words(cell), BODY, x0, y, needed + spare, color)
            x0 += needed + spare + 1
        y += _ROW + 1


def _center_words(
    words: Words, size: float, x: float, y: float, width: float, color: str
) -> Iterator[Text]:
    """Center the words of a row. Two words are on both sides of one point, so that they
    do not overlap in any font."""
    x += width / 2
    y += _ROW / 2 + 0.36 * size  # a capital letter is about 0.72 of the font size high
    if len(words) == 1:
        yield Text(x, y, *_with_size(words[0], size), color, "middle")
        return
    left_width, right = (text_width(text, size, bold) for text, bold in words)
    x += (left_width - right) / 2
    space = size * _SPACE / 2
    yield Text(x - space, y, *_with_size(words[0], size), color, "end")
    yield Text(x + space, y, *_with_size(words[1], size), color, "start")


def _with_size(words: tuple[str, bool], size: float) -> tuple[str, float, bool]:
    return words[0], size, words[1]
