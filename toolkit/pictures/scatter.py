"""Scatter plot with equal axes: true values and predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from toolkit.pictures.axes import Scale, tick_texts, value_scale
from toolkit.pictures.picture import Picture
from toolkit.pictures.shapes import (
    SMALL,
    TITLE,
    Rectangle,
    Shape,
    Text,
    straight_line,
    text_width,
)

_SIZE = 340.0  # of the plot area
_TOP, _BOTTOM = 30.0, 52.0


def draw_scatter(
    xs: Sequence[float], ys: Sequence[float], across: str, up: str, title: str
) -> Picture:
    """Draw points and the line of equal values.

    Args:
        xs, ys: finite values, of equal length.
        across, up: the labels of the axes.
        title: of the picture, for screen readers.
    """
    _, marks = value_scale([*xs, *ys], 0, 1)
    texts = tick_texts(marks)
    widest = max(text_width(text, SMALL) for text in texts)
    x0, right = 26 + widest, 12 + widest / 2
    bottom = _TOP + _SIZE
    x = Scale(marks[0], marks[-1], x0, x0 + _SIZE)
    y = Scale(marks[0], marks[-1], bottom, _TOP)
    shapes = [*_grid(x, y, marks, texts)]
    shapes.append(straight_line((x.start, y.start), (x.end, y.end), dashed=True))
    for a, b in zip(xs, ys, strict=True):
        rectangle = (x(a) - 2.5, y(b) - 2.5, 5, 5)
        shapes.append(Rectangle(*rectangle, "first", 2.5, opacity=0.5))
    middle = x.start + _SIZE / 2
    names = (
        Text(middle, bottom + 40, across, TITLE, anchor="middle"),
        Text(x0, _TOP - 10, up, TITLE),
    )
    return Picture([*shapes, *names], x.end + right, bottom + _BOTTOM, title)


def _grid(
    x: Scale, y: Scale, marks: Sequence[float], texts: Sequence[str]
) -> Iterator[Shape]:
    wide = 14 + max(text_width(text, SMALL) for text in texts)
    # Only every `shown`-th label fits. With all values near zero there is one mark.
    shown = ceil(wide * max(1, len(marks) - 1) / _SIZE)
    for i, (mark, text) in enumerate(zip(marks, texts, strict=True)):
        a, b = x(mark), y(mark)
        yield straight_line((x.start, b), (x.end, b), color="faint", width=1)
        yield straight_line((a, y.start), (a, y.end), color="faint", width=1)
        yield Text(x.start - 8, b + 4, text, SMALL, color="muted", anchor="end")
        if i % shown == 0:
            yield Text(a, y.start + 18, text, SMALL, color="muted", anchor="middle")
