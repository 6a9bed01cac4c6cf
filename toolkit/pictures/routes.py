"""Paths of edges: orthogonal, smooth or straight."""

from __future__ import annotations

from math import hypot
from typing import NamedTuple

from toolkit.pictures.shapes import Commands, Point

SPLINES = ("curved", "line", "ortho", "polyline", "spline")
_RADIUS = 7.0


class Gap(NamedTuple):
    """The course of an edge across the gap between two ranks."""

    start: float
    end: float
    top: float
    bottom: float
    track: float  # the height of its horizontal part


def path(start: float, gaps: list[Gap], end: float, splines: str) -> Commands:
    """Return the path from the height `start` through gaps to the height `end`."""
    if splines == "ortho":
        points = [(gaps[0].start, start)]
        for gap in gaps:
            points += [(gap.start, gap.track), (gap.end, gap.track)]
        return round_corners([*points, (gaps[-1].end, end)])
    commands: Commands = [("M", [(gaps[0].start, start)])]
    for gap in gaps:
        if commands[-1][1][-1] != (gap.start, gap.top):
            commands.append(("L", [(gap.start, gap.top)]))
        if splines in ("curved", "spline") and gap.start != gap.end:
            middle = (gap.top + gap.bottom) / 2
            points = [(gap.start, middle), (gap.end, middle), (gap.end, gap.bottom)]
            commands.append(("C", points))
        else:
            commands.append(("L", [(gap.end, gap.bottom)]))
    if end != gaps[-1].bottom:
        commands.append(("L", [(gaps[-1].end, end)]))
    return commands


def round_corners(points: list[Point]) -> Commands:
    """Connect points with straight lines and round corners."""
    points = _corners(points)
    commands: Commands = [("M", [points[0]])]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        near, far = _distance(before, corner), _distance(corner, after)
        radius = min(_RADIUS, near / 2, far / 2)
        commands.append(("L", [_towards(corner, before, radius)]))
        commands.append(("Q", [corner, _towards(corner, after, radius)]))
    return [*commands, ("L", [points[-1]])]


def _corners(points: list[Point]) -> list[Point]:
    """Return the ends, and the points at which the direction changes."""
    corners = [points[0]]
    for point, after in zip(points[1:], points[2:], strict=False):
        (a, b), (c, d), (e, f) = corners[-1], point, after
        is_corner = abs((c - a) * (f - d) - (d - b) * (e - c)) > 1e-6
        if is_corner and _distance(corners[-1], point) > 1e-6:
            corners.append(point)
    return [*corners, points[-1]]


def _distance(a: Point, b: Point) -> float:
    return hypot(b[0] - a[0], b[1] - a[1])


def _towards(a: Point, b: Point, length: float) -> Point:
    fraction = length / _distance(a, b)
    return a[0] + (b[0] - a[0]) * fraction, a[1] + (b[1] - a[1]) * fraction
