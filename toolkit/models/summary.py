"""The table that `model.summary()` prints."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit import dtypes, pictures
from toolkit.console.messages import format_size, print_message
from toolkit.errors import ArgumentError
from toolkit.layers.call import map_shapes, shapes_text
from toolkit.ops.symbolic import FunctionOperation, KerasTensor

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer

_FOLDED = 40  # number of layers above which a notebook collapses the table


class Column(NamedTuple):
    """Column of the table: its title, its end, and the alignment of text."""

    title: str
    end: float
    align: str


def print_summary(
    model: Any,
    line_length: int | None = None,
    positions: Any = None,
    print_fn: Callable[[str], Any] | None = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Any = None,
) -> None:
    """Print a table of the layers of a model; see `Model.summary`."""
    text = summary_text(
        model, line_length, positions, expand_nested, show_trainable, layer_range
    )
    (print_fn or print_message)(text)


def summary_text(
    model: Any,
    line_length: int | None = None,
    positions: Any = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Any = None,
) -> str:
    """Return the summary as text."""
    topology = None if _is_chain(model) else model._topology
    columns = _columns(topology is not None, show_trainable)
    widths = _widths(columns, line_length, positions)
    layers = getattr(model, "operations", model.layers)
    rows = [
        row
        for layer in in_range("summary", layers, layer_range)
        for row in _rows(layer, topology, expand_nested, show_trainable, 0)
    ]
    table = _table([column.title for column in columns], rows, columns, widths)
    return "\n".join([f'Model: "{model.name}"', *table, *_totals(model)])


def layer_rows(model: Any) -> Iterator[tuple[Any, str, str, str, str]]:
    """Return (layer, name, class, output shape, number of parameters) of each layer."""
    for layer in getattr(model, "operations", model.layers):
        yield layer, layer.name, class_name(layer), _shape(layer), _params(layer)


def summary_html(model: Any) -> str:
    """Return the summary as a table for notebooks; long tables are collapsed."""
    join, table, tag = pictures.page.join, pictures.page.table, pictures.page.tag
    rows = [
        (join((name, tag("span", kind, class_="note"))), shape, params)
        for _, name, kind, shape, params in layer_rows(model)
    ]
    total = _totals(model)[0].strip() if model.built else "not built yet"
    title = f"{class_name(model)}, {total[0].lower()}{total[1:]}"
    listed = table(("Layer", "Output shape", "Params"), rows, "Layers", numbers=(2,))
    head = tag("summary", tag("b", model.name), " ", title)
    is_open = "" if len(rows) <= _FOLDED else None
    return pictures.notebook.note(tag("details", head, listed, open=is_open))


def _is_chain(model: Any) -> bool:
    """Return whether every layer feeds only the next one: then omit connections."""
    topology = getattr(model, "_topology", None)
    if topology is None:
        return True
    nodes = topology.nodes
    shared = len({id(node.op) for node in nodes}) < len(nodes)
    outputs = sum(len(node.inputs) == 0 for node in topology.members)
    used = [id(symbol) for node in nodes for symbol in node.inputs]
    forks = len(set(used)) < len(used) or len(model.outputs) > 1
    return not shared and not forks and outputs == 1 and len(used) == len(nodes)


def _columns(connected: bool, show_trainable: bool) -> list[Column]:
    ends = [0.3, 0.56, 0.74, 1.0] if connected else [0.45, 0.8, 1.0]
    titles = ["Layer (type)", "Output Shape", "Param #", "Connected to"]
    columns = [
        Column(title, end, ">" if title == "Param #" else "<")
        for title, end in zip(titles, ends, strict=False)
    ]
    if show_trainable:
        columns = [c._replace(end=0.84 * c.end) for c in columns]
        columns.append(Column("Trainable", 1.0, "^"))
    return columns


def _widths(columns: list[Column], length: int | None, positions: Any) -> list[int]:
    """Return the number of characters inside each column."""
    if length is None:
        default = 28 * len(columns)
        length = min(default, max(shutil.get_terminal_size().columns - 4, 60))
    offsets = [column.end for column in columns] if positions is None else positions
    if len(offsets) != len(columns):
        raise ArgumentError(
            f"summary: expected {len(columns)} positions; received {positions!r}"
        )
    scale = length if all(end <= 1 for end in offsets) else 1
    ends = [0, *(int(end * scale) for end in offsets)]
    widths = [end - start - 3 for start, end in pairwise(ends)]
    widths[-2] -= 1  # for the edge at the end of a line
    if min(widths) < 4:
        raise ArgumentError(
            f"summary: line_length={length} is too short for {len(columns)} columns"
        )
    return widths


def in_range(caller: str, layers: list[Any], layer_range: Any) -> list[Any]:
    """Return the layers in a range, whose ends are names or patterns of names."""
    if layer_range is None:
        return layers
    positions_of = [
        [i for i, layer in enumerate(layers) if re.match(pattern, layer.name)]
        for pattern in layer_range
    ]
    if len(positions_of) != 2 or not all(positions_of):
        raise ArgumentError(
            f"{caller}: expected layer_range to be two names, or patterns, of layers "
            f"among {[layer.name for layer in layers]}; received {layer_range!r}"
        )
    first, last = sorted((positions_of[0][0], positions_of[1][-1]))
    return layers[first : last + 1]


def _rows(
    layer: Layer, topology: Any, expand: bool, show_trainable: bool, level: int
) -> Iterator[list[str]]:
    indent = "   " * level + "└ " if level else ""
    row = [f"{indent}{layer.name} ({class_name(layer)})", _shape(layer), _params(layer)]
    if topology is not None:
        row.append(_connections(layer, topology.members))
    if show_trainable:
        weights = getattr(layer, "weights", ())
        row.append(("Y" if layer.trainable else "N") if weights else "-")
    yield row
    for inner in getattr(layer, "layers", ()) if expand else ():
        yield from _rows(inner, topology, expand, show_trainable, level + 1)


def class_name(operation: Any) -> str:
    """Return the name of a layer's class, or a class-like name of a function."""
    if isinstance(operation, FunctionOperation):
        words = operation.function.__name__.split("_")
        return "".join(word[:1].upper() + word[1:] for word in words)
    return type(operation).__name__


def _shape(layer: Layer) -> str:
    if not layer._inbound_nodes:
        return _shape_without_calls(layer)
    return shapes_text(layer._inbound_nodes[-1].attrs["outputs"])


def _shape_without_calls(layer: Any) -> str:
    """Return the output shape of a layer of its first call, or for its build."""
    try:
        return str(layer.output_shape)
    except (AttributeError, ValueError):
        pass
    recorded: str = getattr(layer, "_output_shapes", "")
    if recorded:
        return recorded
    ends = getattr(layer, "_build_shapes", None)
    if not ends or not layer.built:
        return "?"
    try:
        shapes = layer.compute_output_shape(*ends.values())
        return shapes_text(map_shapes(KerasTensor, shapes))
    except Exception:  # code of the user, which can fail with symbols
        return "?"


def _params(layer: Layer) -> str:
    if not hasattr(layer, "built"):
        return "0"
    return f"{layer.count_params():,}" if layer.built else "0 (unbuilt)"


def _connections(layer: Layer, members: Any) -> str:
    sources = [
        f"{history.operation.name}[{history.node_index}][{history.tensor_index}]"
        for node in layer._inbound_nodes
        if node in members
        for history in (symbol._keras_history for symbol in node.inputs)
    ]
    return ", ".join(sources) or "-"


def _table(
    titles: list[str], rows: list[list[str]], columns: list[Column], widths: list[int]
) -> Iterator[str]:
    yield _rule("┏━┳┓", widths)
    yield from _cells(titles, columns, widths, "┃")
    yield _rule("┡━╇┩", widths)
    for i, row in enumerate(rows):
        if i:
            yield _rule("├─┼┤", widths)
        yield from _cells(row, columns, widths, "│")
    yield _rule("└─┴┘", widths)


def _rule(characters: str, widths: list[int]) -> str:
    start, line, middle, right = tuple(characters)
    return start + middle.join(line * (width + 2) for width in widths) + right


def _cells(
    row: list[str], columns: list[Column], widths: list[int], edge: str
) -> Iterator[str]:
    """Return one row of the table, with the number of lines of its longest cell."""
    wrapped = [_wrap(text, width) for text, width in zip(row, widths, strict=True)]
    for i in range(max(map(len, wrapped))):
        cells = [
            format(lines[i] if i < len(lines) else "", f"{column.align}{width}")
            for lines, column, width in zip(wrapped, columns, widths, strict=True)
        ]
        yield f"{edge} " + f" {edge} ".join(cells) + f" {edge}"


def _wrap(text: str, width: int) -> list[str]:
    indent = text[: len(text) - len(text.lstrip())]
    lines = textwrap.wrap(text.lstrip(), width - len(indent))
    return [indent + line for line in lines] or [""]


def _totals(model: Any) -> list[str]:
    characters = {
        "Trainable": model.trainable_weights,
        "Non-trainable": model.non_trainable_weights,
    }
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and optimizer.built:
        characters["Optimizer"] = optimizer.variables
    every = [v for variables in characters.values() for v in variables]
    lines = {"Total": every, **characters}
    return [
        f" {label} params: {_amount(variables)}" for label, variables in lines.items()
    ]


def _amount(variables: list[Any]) -> str:
    unique = {id(v): v for v in variables}.values()
    count = sum(v.size for v in unique)
    nbytes = sum(v.size * dtypes.itemsize(v.dtype) for v in unique)
    return f"{count:,} ({format_size(nbytes)})"
