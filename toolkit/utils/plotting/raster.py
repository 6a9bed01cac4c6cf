"""Pictures in the formats of Matplotlib: PNG, PDF and others."""

from __future__ import annotations

from typing import Any

from toolkit.utils.plotting.picture import FRAME_COLOR, Picture, head
from toolkit.utils.plotting.shapes import LINE_COLOR, Line, Rectangle, Text

_CODES = {"M": 1, "L": 2, "Q": 3, "C": 4}  # as matplotlib.path.Path has them
_ALIGNMENTS = {"start": "left", "middle": "center", "end": "right"}
_DEJAVU = 1.17  # Matplotlib's letters are wider than Helvetica's by this


def save(picture: Picture, path: str, kind: str, dpi: float) -> None:
    """Write a file in which the size of texts is in points.

    Raises:
        ImportError: Matplotlib is not there.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"plot_model: a picture as {kind} needs Matplotlib, which is not installed "
            "(`pip install matplotlib`); SVG needs nothing: to_file='model.svg'"
        ) from error
    width, height = picture.width, picture.height
    figure = Figure(figsize=(width / 72, height / 72), dpi=dpi)
    axes: Any = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    for order, shape in enumerate(picture.shapes):
        if isinstance(shape, Text):
            _add_text(axes, shape, order)
        elif isinstance(shape, Rectangle):
            _add_rectangle(axes, shape, order)
        else:
            _add_line(axes, shape, order)
    figure.savefig(path, format=kind, dpi=dpi, facecolor="#ffffff")


def _add_text(axes: Any, text: Text, order: int) -> None:
    axes.text(
        text.x,
        text.y,
        text.text,
        color=text.color,
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
            facecolor=shape.fill,
            edgecolor=FRAME_COLOR if shape.dashed else "none",
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
    style = {"facecolor": "none", "edgecolor": LINE_COLOR, "zorder": order}
    axes.add_patch(PathPatch(path, linewidth=1.5, **style))
    if line.arrow:
        axes.add_patch(Polygon(head(line), color=LINE_COLOR, zorder=order))
