"""Pictures: shapes as SVG or, with Matplotlib, as PNG and other formats."""

from __future__ import annotations

import os
from html import escape
from typing import NamedTuple

from toolkit.errors import unknown_choice
from toolkit.files.writing import write_text
from toolkit.pictures.raster import save_raster
from toolkit.pictures.shapes import (
    PALETTE,
    Line,
    Rectangle,
    Shape,
    Text,
    arrow_head,
    remove_unprintable,
)

_NATURAL_DPI = 200  # at this resolution the SVG texts have their size in pixels
_RASTERS = ("jpeg", "jpg", "pdf", "png")
_ROOT = 'font-family="Helvetica, Arial, sans-serif" role="img" class="toolkit-picture"'


class Picture(NamedTuple):
    """Shapes in drawing order. A notebook shows the picture; `save` writes it to a
    file.

    Colours follow the light or dark preference of the reader.

    Attributes:
        title: the subject of the picture, for screen readers.
    """

    shapes: list[Shape]
    width: float
    height: float
    title: str

    def svg(self, dpi: float = _NATURAL_DPI, style: str | None = None) -> str:
        """Return the text of an SVG file.

        Args:
            dpi: at 200, texts have their natural size.
            style: the rules for its colours; "" on a page that already has `STYLE`.
        """
        width, height = _short(self.width), _short(self.height)
        scale = dpi / _NATURAL_DPI
        size = f'width="{_short(self.width * scale)}" '
        size += f'height="{_short(self.height * scale)}"'
        body = "\n".join(map(_svg_shape, self.shapes))
        paper = _svg_shape(Rectangle(0, 0, self.width, self.height, "paper"))
        style = STYLE if style is None else style
        rules = f"<style>{style}</style>" if style else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
            f'viewBox="0 0 {width} {height}" {_ROOT}>\n'
            f"<title>{escape(remove_unprintable(self.title))}</title>\n"
            f"{rules}\n{paper}\n{body}\n</svg>\n"
        )

    def save(
        self,
        path: str | os.PathLike[str],
        dpi: float = _NATURAL_DPI,
        format: str | None = None,
    ) -> None:
        """Write the picture to a file.

        Args:
            path: of the file.
            dpi: pixels per inch; texts have about 14 points.
            format: "svg" needs no other package; "png", "pdf" and "jpg" need
                Matplotlib. None takes the suffix of the path.

        Raises:
            ArgumentError: the format is unknown.
            UnwritableFileError: the file cannot be written.
            ImportError: the format needs Matplotlib, which is not installed.
        """
        name = os.fspath(path)
        kind = format or os.path.splitext(name)[1][1:].lower()
        if kind == "svg":
            write_text(name, self.svg(dpi))
        elif kind in _RASTERS:
            save_raster(self.shapes, (self.width, self.height), name, kind, dpi)
        else:
            raise unknown_choice(
                f"picture {name!r}: its format", kind, ("svg", *_RASTERS)
            )

    def _repr_html_(self) -> str:
        return self.svg(style=STYLE + _NOTEBOOK_STYLE)

    def __repr__(self) -> str:
        return f"<Picture {self.title!r}, {self.width:.0f} by {self.height:.0f}>"


def _rules(is_dark: bool, scope: str = "") -> str:
    """Return the rules for the colours of a theme, in elements of a selector."""
    return "".join(
        f"{scope}.toolkit-picture .f-{role}{{fill:{colors[is_dark]}}}"
        f"{scope}.toolkit-picture .s-{role}{{stroke:{colors[is_dark]}}}"
        for role, colors in PALETTE.items()
        if colors[0] != colors[1]
    )


# Attributes hold the light colours, for programs without style sheets.
STYLE = (
    ".toolkit-picture{max-width:100%;height:auto}"
    f"@media(prefers-color-scheme:dark){{{_rules(is_dark=True)}}}"
)
# JupyterLab and VS Code have their own theme, independent of the system.
_NOTEBOOK_STYLE = _rules(
    False, ":is([data-jp-theme-light=true],.vscode-light) "
) + _rules(True, ":is([data-jp-theme-light=false],.vscode-dark) ")


def _paint(attribute: str, role: str) -> str:
    """Return the attributes that fill or stroke a shape in a colour."""
    if role == "none":
        return f'{attribute}="none"'
    light, dark = PALETTE[role]
    rule = f' class="{attribute[0]}-{role}"' if light != dark else ""
    return f'{attribute}="{light}"{rule}'


def _svg_shape(shape: Shape) -> str:
    if isinstance(shape, Rectangle):
        return _svg_rectangle(shape)
    if isinstance(shape, Text):
        x, y, size, length = map(_short, (shape.x, shape.y, shape.size, shape.width))
        weight = ' font-weight="bold"' if shape.bold else ""
        return (
            f'<text x="{x}" y="{y}" font-size="{size}" {_paint("fill", shape.color)}'
            f'{weight} text-anchor="{shape.anchor}" textLength="{length}" '
            f'lengthAdjust="spacingAndGlyphs">{escape(shape.text)}</text>'
        )
    style = _paint("stroke", shape.color)
    style += f' stroke-width="{_short(shape.width)}"'
    if shape.dashed:
        style += ' stroke-dasharray="5 4"'
    line = f'<path d="{_svg_path(shape)}" fill="none" {style}/>'
    if not shape.arrow:
        return line
    points = " ".join(f"{_short(x)},{_short(y)}" for x, y in arrow_head(shape))
    return f'{line}\n<polygon points="{points}" {_paint("fill", shape.color)}/>'


def _svg_rectangle(shape: Rectangle) -> str:
    x, y, width, height = map(_short, shape[:4])
    style = _paint("fill", shape.fill)
    if shape.dashed:
        style += f' {_paint("stroke", "frame")} stroke-dasharray="5 4"'
    if shape.radius:
        style += f' rx="{_short(shape.radius)}"'
    if shape.opacity != 1:
        style += f' fill-opacity="{shape.opacity:.3g}"'
    rectangle = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" {style}'
    if not shape.hint:
        return f"{rectangle}/>"
    return f"{rectangle}><title>{escape(remove_unprintable(shape.hint))}</title></rect>"


def _svg_path(line: Line) -> str:
    return "".join(
        kind + " ".join(f"{_short(x)},{_short(y)}" for x, y in points)
        for kind, points in line.commands
    )


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
