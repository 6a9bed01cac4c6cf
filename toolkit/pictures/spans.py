"""Timeline: the busy spans of workers, one row per worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolkit.pictures.axes import Scale, seconds_text, tick_texts, ticks
from toolkit.pictures.picture import Picture
from toolkit.pictures.shapes import (
    BODY,
    SERIES,
    SMALL,
    TITLE,
    Rectangle,
    Shape,
    Text,
    straight_line,
    text_width,
    truncate_text,
    wrap_text,
)

_WIDTH, _ROW = 800.0, 34.0
_BOTTOM, _RIGHT = 48.0, 84.0
_NAME = 260.0  # maximum width of a row's name
_CLOSE = 0.75  # spans with a smaller distance are merged
_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


class Row(NamedTuple):
    """The work of one worker: (start, end) of each span in seconds, in any order."""

    name: str
    spans: Sequence[tuple[float, float]]


def draw_spans(rows: Sequence[Row], title: str, remark: str = "") -> Picture:
    """Draw a bar for each span, and at the end of each row the total of its spans.

    Args:
        rows: from top to bottom.
        title: above them.
        remark: below the title.
    """
    names = [truncate_text(row.name, _NAME, BODY) for row in rows]
    x0 = 32 + max((text_width(name, BODY) for name in names), default=0.0)
    end = max((span[1] for row in rows for span in row.spans), default=0.0) or 1e-6
    across = Scale(0, end, x0, _WIDTH - _RIGHT)
    shapes: list[Shape] = [
        Text(16, 28, truncate_text(title, _WIDTH - 32, TITLE, True), TITLE, bold=True)
    ]
    top = 46.0
    for line in wrap_text(remark, _WIDTH - 32, SMALL):
        shapes.append(Text(16, top, line, SMALL, color="muted"))
        top += 16
    bottom = top + _ROW * len(rows)
    shapes += _axis(across, top, bottom)
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        middle = top + _ROW * (number + 0.5)
        shapes.append(Text(x0 - 12, middle + 4, name, BODY, anchor="end"))
        color = SERIES[number % len(SERIES)]
        shapes += _bars(row, across, middle, color)
        total = seconds_text(sum(b - a for a, b in row.spans)) if row.spans else "0 s"
        at = across.end + 10
        shapes.append(Text(at, middle + 4, total, SMALL, color="muted"))
    return Picture(shapes, across.end + _RIGHT, bottom + _BOTTOM, f"{title}: {remark}")


def _axis(across: Scale, top: float, bottom: float) -> Iterator[Shape]:
    fitting = (u for u in _UNITS if across.high * u[1] >= 1)
    unit, factor = next(fitting, _UNITS[-1])
    marks = ticks(0, across.high * factor, 8)
    for mark, text in zip(marks, tick_texts(marks), strict=True):
        x = across(mark / factor)
        yield straight_line((x, top), (x, bottom), color="faint", width=1)
        yield Text(x, bottom + 17, text, SMALL, color="muted", anchor="middle")
    middle = (across.start + across.end) / 2
    yield Text(middle, bottom + 34, unit, SMALL, color="muted", anchor="middle")


def _bars(row: Row, across: Scale, middle: float, color: str) -> Iterator[Shape]:
    top, height = middle - _ROW * 0.32, _ROW * 0.64
    for start, end, count in _merge(row.spans, across):
        width = max(end - start, 0.75)
        took = seconds_text((end - start) / (across.end - across.start) * across.high)
        hint = f"{row.name}: {took}" if count == 1 else f"{row.name}: {count} in {took}"
        yield Rectangle(start, top, width, height, color, opacity=0.85, hint=hint)


def _merge(
    spans: Sequence[tuple[float, float]], across: Scale
) -> list[tuple[float, float, int]]:
    """Return spans as positions; indistinguishable spans are merged."""
    merged: list[tuple[float, float, int]] = []
    for a, b in sorted(spans):
        start, end = across(a), across(b)
        if merged and start - merged[-1][1] < _CLOSE:
            before, last, count = merged[-1]
            merged[-1] = before, max(last, end), count + 1
        else:
            merged.append((start, end, 1))
    return merged
