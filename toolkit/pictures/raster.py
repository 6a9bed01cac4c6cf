"""Shapes in the formats of Matplotlib: PNG, PDF and other formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.files.writing import named_write_errors
from toolkit.pictures.shapes import PALETTE, Line, Rectangle, Shape, Text, arrow_head

_CODES = {"M": 1, "L": 2, "Q": 3, "C": 4}  # the codes of matplotlib.path.Path
_ALIGNMENTS = {"start": "left", "middle": "center", "end": "right"}
_DEJAVU = 1.17  # the width of Matplotlib's font relative to Helvetica


def save_raster(
    shapes: Sequence[Shape], size: tuple[float, float], path: str, kind: str, dpi: float
) -> None:
    """Write a file; text sizes are in points.

    Raises:
        ImportError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"a picture as {kind} needs Matplotlib, which is not installed (`pip "
            f"install matplotlib`); {path[: -len(kind)]}svg needs no package"
        ) from error
    width, height = size
    figure = Figure(figsize=(width / 72, height / 72), dpi=dpi)
    axes: Any = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    for order, shape in enumerate(shapes):
        if isinstance(shape, Text):
            _add_text(axes, shape, order)
        elif isinstance(shape, Rectangle):
            _add_rectangle(axes, shape, order)
        else:
            _add_line(axes, shape, order)
    with named_write_errors(path):
        figure.savefig(path, format=kind, dpi=dpi, facecolor=_light("paper"))


def _add_text(axes: Any, text: Text, order: int) -> None:
    axes.text(
        text.x,
        text.y,
        text.text,
        color=_light(text.color),
        fontsize=text.size / _DEJAVU,
        fontweight="bold" if text.bold else "normal",
        horizontalalignment=_ALIGNMENTS[text.anchor],
        parse_math=False,
        zorder=order,
    )


def _add_rectangle(axes: Any, shape: Rectangle, order: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    radius = shape.radius
    style = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
    axes.add_patch(
        FancyBboxPatch(
            (shape.x, shape.y),
            shape.width,
            shape.height,
            boxstyle=style,
            facecolor=(_light(shape.fill), shape.opacity),
            edgecolor=_light("frame") if shape.dashed else "none",
            linestyle="--" if shape.dashed else "-",
            zorder=order,
        )
    )


def _add_line(axes: Any, line: Line, order: int) -> None:
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path

    points = [point for _, points in line.commands for point in points]
    codes = [_CODES[kind] for kind, points in line.commands for _ in points]
    path = Path(points, codes)
    style: dict[str, Any] = {"edgecolor": _light(line.color), "zorder": order}
    dashes = (0, (5 / line.width, 4 / line.width)) if line.dashed else "-"
    style |= {"facecolor": "none", "linewidth": line.width, "linestyle": dashes}
    axes.add_patch(PathPatch(path, **style))
    if line.arrow:
        axes.add_patch(
            Polygon(arrow_head(line), color=_light(line.color), zorder=order)
        )


def _light(role: str) -> str:
    return "none" if role == "none" else PALETTE[role][0]
