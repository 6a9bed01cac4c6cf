"""Map of memory blocks: lifetimes and addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from toolkit.pictures.axes import Scale, bytes_text, ticks
from toolkit.pictures.picture import Picture
from toolkit.pictures.shapes import (
    SMALL,
    TITLE,
    Rectangle,
    Shape,
    Text,
    remove_unprintable,
    straight_line,
    text_width,
    truncate_text,
)

_WIDTH, _HEIGHT = 800.0, 440.0
_TITLE = 440.0  # maximum width: the legend is to the right
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 24.0, 76.0, 48.0


class Block(NamedTuple):
    """A block with lifetime `first` to before `last`, and bytes `low` to `high`."""

    first: float
    last: float
    low: float
    high: float
    kind: str
    label: str
    hint: str


def draw_blocks(
    blocks: Sequence[Block],
    title: str,
    remark: str,
    axis: str,
    colors: Mapping[str, str],
) -> Picture:
    """Draw blocks over time.

    Args:
        blocks: the blocks.
        title: above the map.
        remark: to the right of the title.
        axis: the label of the time axis.
        colors: kind -> its colour; the legend has the kinds of the blocks.
    """
    first = min((block.first for block in blocks), default=0)
    last = max((block.last for block in blocks), default=1)
    high = max((block.high for block in blocks), default=1)
    across = Scale(first, last, _LEFT, _WIDTH - _RIGHT)
    up = Scale(0, high, _HEIGHT - _BOTTOM, _TOP)
    shapes: list[Shape] = [
        Text(16, 28, truncate_text(title, _TITLE, TITLE, True), TITLE, bold=True),
        Text(16, 48, truncate_text(remark, _WIDTH - 32, SMALL), SMALL, color="muted"),
        *_key(blocks, colors),
        *_grid(across, up, axis),
    ]
    for block in blocks:
        shapes += _shapes(block, across, up, colors[block.kind])
    return Picture(shapes, _WIDTH, _HEIGHT, f"{title}, {remark}")


def _key(blocks: Sequence[Block], colors: Mapping[str, str]) -> Iterator[Shape]:
    x = _WIDTH - _RIGHT
    kinds = {block.kind for block in blocks}
    for kind in reversed([kind for kind in colors if kind in kinds]):
        yield Text(x, 28, kind, SMALL, color="muted", anchor="end")
        x -= text_width(kind, SMALL) + 6
        yield Rectangle(x - 12, 18, 12, 12, colors[kind], 2)
        x -= 12 + 16


def _grid(across: Scale, up: Scale, axis: str) -> Iterator[Shape]:
    for mark in _byte_marks(up.high):
        y = up(mark)
        yield straight_line((across.start, y), (across.end, y), color="faint", width=1)
        text = bytes_text(mark)
        yield Text(across.start - 8, y + 4, text, SMALL, color="muted", anchor="end")
    y = up.start + 17
    for mark in ticks(across.low, across.high, 10, integers_only=True):
        x, text = across(mark), f"{mark:.0f}"
        yield Text(x, y, text, SMALL, color="muted", anchor="middle")
    middle = (across.start + across.end) / 2
    yield Text(middle, y + 17, axis, SMALL, color="muted", anchor="middle")


def _byte_marks(high: float) -> list[float]:
    """Return round numbers of bytes, kilobytes or megabytes."""
    unit = 1.0
    while high / unit >= 1024:
        unit *= 1024
    return [mark * unit for mark in ticks(0, high / unit, 5)]


def _shapes(block: Block, across: Scale, up: Scale, color: str) -> Iterator[Shape]:
    x0, right = across(block.first), across(block.last)
    top, bottom = up(block.high), up(block.low)
    gap = 1.0 if min(right - x0, bottom - top) > 4 else 0.0
    width, height = right - x0 - gap, max(bottom - top - gap, 0.75)
    corner = (x0, bottom - height - gap / 2, width, height)
    radius = 2.0 if height > 8 and width > 8 else 0.0
    yield Rectangle(*corner, color, radius, hint=block.hint)
    label = remove_unprintable(block.label)
    if height >= 16 and text_width(label, SMALL) + 12 <= width:
        yield Text(x0 + 6, (top + bottom) / 2 + 4, label, SMALL, color="paper")
