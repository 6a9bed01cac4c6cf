"""Model graphs as text in the DOT language, for Graphviz and similar programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from itertools import count
from typing import Any

from toolkit.files.writing import write_text
from toolkit.pictures.boxes import MOODS, Box, Cell, Cluster
from toolkit.pictures.shapes import PALETTE, remove_unprintable

_FONT = '<font point-size="{size}" color="{color}">{text}</font>'


class Dot:
    """Graph in the DOT language; `to_string()` returns its text."""

    def __init__(
        self,
        content: Cluster,
        rankdir: str,
        splines: str,
        dpi: float,
        subgraph: bool = False,
    ) -> None:
        self._attributes = {"rankdir": rankdir, "splines": splines, "dpi": dpi}
        self._content = content
        self._subgraph = subgraph

    def to_string(self) -> str:
        """Return the text of the graph."""
        names: dict[Box, str] = {}
        if self._subgraph:
            lines = list(_cluster(self._content, names, count(), ""))
            return "\n".join([*lines[:-1], *_edges(self._content, names), "}\n"])
        lines = [f"digraph {_quoted(self._content.name)} {{", "    concentrate=true;"]
        lines += [f"    {key}={_quoted(x)};" for key, x in self._attributes.items()]
        lines.append("    node [fontname=Helvetica, margin=0, shape=plain];")
        lines += _children(self._content, names, count(1), "    ")
        return "\n".join([*lines, *_edges(self._content, names), "}\n"])

    __str__ = to_string

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the text to a file."""
        write_text(path, self.to_string())


def _children(
    cluster: Cluster, names: dict[Box, str], numbers: Iterator[int], indent: str
) -> Iterator[str]:
    for child in cluster.children:
        if isinstance(child, Cluster):
            yield from _cluster(child, names, numbers, indent)
        else:
            names[child] = f"box{len(names)}"
            yield f"{indent}{names[child]} [label=<{_label(child)}>];"


def _cluster(
    cluster: Cluster, names: dict[Box, str], numbers: Iterator[int], indent: str
) -> Iterator[str]:
    yield f"{indent}subgraph cluster{next(numbers)} {{"
    label = _quoted(cluster.name)
    yield f"{indent}    label={label}; labeljust=l; style=dashed;"
    yield from _children(cluster, names, numbers, indent + "    ")
    yield f"{indent}}}"


def _edges(content: Cluster, names: dict[Box, str]) -> Iterator[str]:
    for source, target in content.edges:
        yield f"    {names[source]} -> {names[target]} [penwidth=2];"


def _label(box: Box) -> str:
    """Return the table that Graphviz draws for a layer."""
    span = max([len(row) for row in box.rows], default=1)
    kind = escape(remove_unprintable(box.kind))
    name = escape(remove_unprintable(box.name))
    title = f"<b>{name}</b> ({kind})" if name else f"<b>{kind}</b>"
    color = PALETTE[box.role][0]
    title = _FONT.format(size=16, color="white", text=title)
    rows = [f'<tr><td colspan="{span}" bgcolor="{color}">{title}</td></tr>']
    for row in box.rows:
        width = span if len(row) == 1 else 1
        cells = "".join(_cell(cell, width) for cell in row)
        rows.append(f"<tr>{cells}</tr>")
    table = '<table border="0" cellborder="1" cellspacing="0" cellpadding="8">'
    return f"{table}{''.join(rows)}</table>"


def _cell(cell: Cell, span: int) -> str:
    value = f"<b>{escape(remove_unprintable(cell.value))}</b>"
    text = f"{escape(cell.label)}: {value}" if cell.label else value
    color = "white" if cell.mood else "black"
    text = _FONT.format(size=14, color=color, text=text)
    paper = PALETTE[MOODS[cell.mood]][0]
    return f'<td colspan="{span}" bgcolor="{paper}">{text}</td>'


def _quoted(text: Any) -> str:
    escaped = remove_unprintable(str(text)).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
