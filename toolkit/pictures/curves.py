"""Curves over epochs: one panel per quantity, with training and validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple

from toolkit.pictures.axes import Scale, number_text, tick_texts, ticks, value_scale
from toolkit.pictures.picture import Picture
from toolkit.pictures.shapes import (
    SMALL,
    TITLE,
    Line,
    Rectangle,
    Shape,
    Text,
    straight_line,
    text_width,
    truncate_text,
)

_WIDTH, _HEIGHT = 400.0, 250.0  # of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 56.0, 58.0, 42.0  # around its plot
_FEW = 20  # draw each point up to this number of points
_MANY = 300  # no hints above this number of points
_APART = 13.0  # between the labels at the ends of curves


class Curve(NamedTuple):
    """Values over positions; a value that is not finite leaves a gap.

    Attributes:
        best: the index of the best value, which gets a mark, or None.
    """

    name: str
    positions: Sequence[float]
    values: Sequence[float]
    color: str
    dashed: bool = False
    best: int | None = None


class Panel(NamedTuple):
    """Curves that share a scale."""

    title: str
    curves: Sequence[Curve]


def draw_curves(
    panels: Sequence[Panel],
    title: str,
    axis: str = "epoch",
    columns: int = 2,
    logarithmic: bool = False,
) -> Picture:
    """Draw panels in rows.

    Args:
        panels: at least one.
        title: of the picture, for screen readers.
        axis: the label of the horizontal axis.
        columns: the maximum number of panels in a row.
        logarithmic: whether positive values have a logarithmic scale.
    """
    columns = min(columns, len(panels))
    shapes: list[Shape] = []
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        panel_drawing = _Panel(panel, column * _WIDTH, row * _HEIGHT, logarithmic)
        shapes += panel_drawing.shapes(axis)
    rows = -(-len(panels) // columns)
    return Picture(shapes, columns * _WIDTH, rows * _HEIGHT, title)


class _Panel:
    """One panel with its upper left corner at (x, y)."""

    def __init__(self, panel: Panel, x: float, y: float, logarithmic: bool) -> None:
        self.panel = panel
        self.x, self.y = x, y
        values = [value for curve in panel.curves for value in curve.values]
        positive = all(v > 0 for v in values if isfinite(v))
        bottom, top = y + _HEIGHT - _BOTTOM, y + _TOP
        self.up, self.marks = value_scale(
            values, bottom, top, logarithmic and positive and bool(values)
        )
        positions = [position for curve in panel.curves for position in curve.positions]
        low, high = min(positions, default=0), max(positions, default=1)
        self.texts = tick_texts(self.marks, self.up.logarithmic)
        widest = max(text_width(text, SMALL) for text in self.texts)
        x0 = x + max(_LEFT, widest + 20)
        self.across = Scale(low, high, x0, x + _WIDTH - _RIGHT)

    def shapes(self, axis: str) -> Iterator[Shape]:
        yield from self._heading()
        yield from self._grid(axis)
        for curve in self.panel.curves:
            yield from self._curve(curve)
        yield from self._end_labels()

    def _heading(self) -> Iterator[Shape]:
        title = truncate_text(self.panel.title, _WIDTH - 32, TITLE, True)
        yield Text(self.x + 16, self.y + 26, title, TITLE, bold=True)
        curves = self.panel.curves if len(self.panel.curves) > 1 else ()
        names = [truncate_text(curve.name, 120, SMALL) for curve in curves]
        key = sum(text_width(name, SMALL) + 40 for name in names)
        fits_in_line = text_width(title, TITLE, True) + key <= _WIDTH - 32
        x, y = self.x + _WIDTH - 16, self.y + (26 if fits_in_line else 44)
        for curve, name in reversed(list(zip(curves, names, strict=True))):
            yield Text(x, y, name, SMALL, color="muted", anchor="end")
            x -= text_width(name, SMALL) + 6
            yield straight_line(
                (x - 20, y - 4),
                (x, y - 4),
                color=curve.color,
                width=2,
                dashed=curve.dashed,
            )
            x -= 20 + 14

    def _grid(self, axis: str) -> Iterator[Shape]:
        x0, right = self.across.start, self.across.end
        for mark, text in zip(self.marks, self.texts, strict=True):
            y = self.up(mark)
            yield straight_line((x0, y), (right, y), color="faint", width=1)
            yield Text(x0 - 8, y + 4, text, SMALL, color="muted", anchor="end")
        y = self.up.start + 17
        marks = ticks(self.across.low, self.across.high, 6, integers_only=True)
        if self.across.low not in marks and marks:
            near = self.across(marks[0]) - self.across(self.across.low) < 24
            marks = [self.across.low, *marks[int(near) :]]
        for mark in marks:
            x, text = self.across(mark), f"{mark:.0f}"
            yield Text(x, y, text, SMALL, color="muted", anchor="middle")
        middle = (x0 + right) / 2
        yield Text(middle, y + 16, axis, SMALL, color="muted", anchor="middle")

    def _curve(self, curve: Curve) -> Iterator[Shape]:
        points = self._points(curve)
        commands = []
        for i, point in enumerate(points):
            if point is not None:
                continues = i > 0 and points[i - 1] is not None
                commands.append(("L" if continues else "M", [point]))
        if commands:
            yield Line(commands, color=curve.color, width=2, dashed=curve.dashed)
        for i, point in enumerate(points if len(points) <= _MANY else ()):
            if point is None:
                continue
            value = number_text(curve.values[i], 6)
            hint = f"{curve.name}, {curve.positions[i]:.0f}: {value}"
            shows_points = len(points) <= _FEW
            yield _dot(
                point, 3 if shows_points else 5, curve.color, float(shows_points), hint
            )
        if curve.best is not None and points[curve.best] is not None:
            best = points[curve.best]
            assert best is not None
            hint = f"best {curve.name}: {number_text(curve.values[curve.best], 6)}"
            yield _dot(best, 6, curve.color, 1, hint)
            yield _dot(best, 3.5, "paper", 1, hint)

    def _points(self, curve: Curve) -> list[tuple[float, float] | None]:
        return [
            (self.across(position), self.up(value)) if isfinite(value) else None
            for position, value in zip(curve.positions, curve.values, strict=True)
        ]

    def _end_labels(self) -> Iterator[Shape]:
        """Draw the last value of each curve at its end; labels do not overlap."""
        ends = []
        for curve in self.panel.curves:
            finite = [v for v in curve.values if isfinite(v)]
            if finite:
                texts = (number_text(finite[-1], digits) for digits in (3, 2, 1))
                text = next((t for t in texts if text_width(t, SMALL, True) < 46), "")
                ends.append((self.up(finite[-1]), text, curve))
        ends.sort(key=lambda end: end[0])
        heights = spread_positions([end[0] for end in ends], _APART)
        below = max([0.0, *(y - self.up.start for y in heights)])
        heights = [y - below for y in heights]  # above the labels of the axis
        for y, (_, text, curve) in zip(heights, ends, strict=True):
            x = self.across.end + 9
            yield Text(x, y + 4, text, SMALL, bold=True, color=curve.color)


def _dot(
    point: tuple[float, float], radius: float, color: str, opacity: float, hint: str
) -> Rectangle:
    x, y = point
    size = 2 * radius
    corner = (x - radius, y - radius, size, size)
    return Rectangle(*corner, color, radius, opacity=opacity, hint=hint)


def spread_positions(positions: Sequence[float], distance: float) -> list[float]:
    """Move ascending positions by the smallest distances that separate them.

    >>> spread_positions([0.0, 1.0, 30.0], 12.0)
    [-5.5, 6.5, 30.0]
    """
    groups: list[
        tuple[float, int]
    ] = []  # the center of a group of touching positions, and its size
    for position in positions:
        middle, count = position, 1
        while groups:
            before, group_size = groups[-1]
            if middle - before >= distance * (count + group_size) / 2:
                break
            groups.pop()
            middle = (middle * count + before * group_size) / (count + group_size)
            count += group_size
        groups.append((middle, count))
    return [
        middle + distance * (i - (count - 1) / 2)
        for middle, count in groups
        for i in range(count)
    ]
