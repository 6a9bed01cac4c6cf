"""Zeros around arrays: what need not be added, and what need not be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from toolkit.backends.target import Target
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Value, node_of


@record
class _Sum:
    """Padded parts that are added.

    axis: the only one along which there are zeros.
    terms: what is added, or one part.
    """

    axis: int
    terms: tuple[_Sum, ...]
    part: Node | None = None

    def parts(self) -> list[Node]:
        """Every part that is not empty, in their order."""
        found, stack = [], [self]
        while stack:
            current = stack.pop()
            stack += reversed(current.terms)
            if current.part is not None and current.part.inputs[0].spec.size:
                found.append(current.part)
        return found


def join_pads(graph: Graph, target: Target) -> Graph:
    """Concatenate parts instead of adding them, each with zeros around it.

    The gradients of the parts of a split are such a sum. Parts of the same place are
    added first. A -0.0 in a part stays one.
    """
    uses = Counter(x for node in graph.nodes for x in node.inputs)
    uses.update(graph.outputs)
    sums: dict[Value, _Sum] = {}
    inner: set[Value] = set()  # what is a term of another sum
    for node in graph.nodes:
        if node.op.name == "pad":
            found = _padded(node)
        else:
            found = _added(node, sums, uses) if node.op.name == "add" else None
            inner.update(node.inputs if found else ())
        if found is not None:
            sums[node.outputs[0]] = found
    nodes: list[Node] = []
    for node in graph.nodes:
        total = sums.get(node.outputs[0])
        if total is None or not total.terms or node.outputs[0] in inner:
            nodes.append(node)
        else:
            nodes += _joined(node, total)
    return graph.replace(nodes)


def _padded(pad: Node) -> _Sum | None:
    """A part, if there are zeros around it along one axis only."""
    widths, result = pad.attrs["widths"], pad.outputs[0].spec
    axes = [axis for axis, width in enumerate(widths) if width != (0, 0)]
    is_zero = pad.attrs["value"] == 0 and result.size > 0
    return _Sum(axes[0], (), pad) if is_zero and len(axes) == 1 else None


def _added(
    add: Node, sums: Mapping[Value, _Sum], uses: Mapping[Value, int]
) -> _Sum | None:
    """Two sums along one axis as one, if nothing else reads them."""
    terms = tuple(sums[x] for x in add.inputs if x in sums)
    if len(terms) < 2 or terms[0].axis != terms[1].axis:
        return None
    if add.inputs[0].spec != add.inputs[1].spec:  # one is repeated
        return None
    pairs = zip(terms, add.inputs, strict=True)
    is_read = any(term.terms and uses[x] > 1 for term, x in pairs)
    return None if is_read else _Sum(terms[0].axis, terms)


def _joined(total: Node, found: _Sum) -> list[Node]:
    """What computes a sum: concatenations of what does not overlap, added."""
    axis, writer = found.axis, _Writer(total.device)
    places: dict[_Place, list[Value]] = {}
    for part in found.parts():
        (x,), (start, _) = part.inputs, part.attrs["widths"][axis]
        places.setdefault((start, start + x.spec.shape[axis]), []).append(x)
    rows = _rows(sorted(places))
    if len(rows) == sum(map(len, places.values())):
        return [total]
    sums = {place: writer.added(values) for place, values in places.items()}
    extent = total.outputs[0].spec.shape[axis]
    writer.added(
        [
            writer.row([(place, sums[place]) for place in row], axis, extent)
            for row in rows
        ]
    )
    *before, last = writer.nodes
    return [*before, Node(last.op, last.inputs, last.attrs, total.outputs, last.device)]


_Place = tuple[int, int]  # where a part begins and ends


def _rows(places: Sequence[_Place]) -> list[list[_Place]]:
    """Places in their order, in rows of which none overlap."""
    rows: list[list[_Place]] = []
    for place in places:
        for row in rows:
            if row[-1][1] <= place[0]:
                row.append(place)
                break
        else:
            rows.append([place])
    return rows


class _Writer:
    """Makes nodes."""

    def __init__(self, device: str | None) -> None:
        self._device = device
        self.nodes: list[Node] = []

    def added(self, values: Sequence[Value]) -> Value:
        """Their sum."""
        return reduce(lambda x, y: self._node("add", (x, y)), values)

    def row(
        self, parts: Sequence[tuple[_Place, Value]], axis: int, extent: int
    ) -> Value:
        """Parts that do not overlap, with zeros around them."""
        starts = [start for (start, _), _ in parts[1:]]
        pieces, low = [], parts[0][0][0]
        for ((_, end), x), following in zip(parts, [*starts, extent], strict=True):
            widths = [(0, 0)] * x.spec.ndim
            widths[axis] = low, following - end
            attrs = {"widths": tuple(widths), "value": 0}
            is_padded = widths[axis] != (0, 0)
            pieces.append(self._node("pad", (x,), **attrs) if is_padded else x)
            low = 0
        if len(pieces) == 1:
            return pieces[0]
        return self._node("concatenate", pieces, axis=axis)

    def _node(self, name: str, inputs: Sequence[Value], **attrs: Any) -> Value:
        node = node_of(name, inputs, attrs, self._device)
        self.nodes.append(node)
        y: Value = node.outputs[0]
        return y


# What sees zeros around its first input, along all axes between the first and the last.
_WINDOWED = ("conv", "conv_integer", "conv_kernel_grad")


def absorb_pads(graph: Graph, target: Target) -> Graph:
    """Let convolutions see the zeros that would be stored around their images."""
    pads: dict[Value, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        pad = pads.get(node.inputs[0]) if node.op.name == "quantize" else None
        is_zero = pad is not None and pad.attrs["value"] == 0
        if pad is not None and is_zero and node.inputs[1].spec.size == 1:
            inner, node = _exchanged(node, pad)
            nodes.append(inner)
        if node.op.name == "pad":
            pads[node.outputs[0]] = node
        nodes.append(_absorbing(node, pads))
    return graph.replace(nodes)


def _exchanged(quantize: Node, pad: Node) -> tuple[Node, Node]:
    """Numbers of 8 bits with what 0 becomes around them, instead of padded floats."""
    (x,), (y,) = pad.inputs, quantize.outputs
    small = Value(x.spec.with_dtype(y.spec.dtype))
    inputs, device = (x, quantize.inputs[1]), quantize.device
    inner = Node(quantize.op, inputs, quantize.attrs, (small,), device)
    attrs = {**pad.attrs, "value": quantize.attrs["offset"]}
    return inner, Node(pad.op, (small,), attrs, (y,), device)


def _absorbing(node: Node, pads: Mapping[Value, Node]) -> Node:
    """A convolution of what a pad reads instead of what it makes."""
    pad = pads.get(node.inputs[0]) if node.op.name in _WINDOWED else None
    if pad is None or pad.attrs["value"] != node.attrs.get("offset", 0):
        return node
    first, *widths, last = pad.attrs["widths"]
    if (first, last) != ((0, 0), (0, 0)):
        return node
    pairs = zip(widths, node.attrs["padding"], strict=True)
    padding = tuple((a + low, b + high) for (a, b), (low, high) in pairs)
    attrs = {**node.attrs, "padding": padding}
    inputs = (pad.inputs[0], *node.inputs[1:])
    return Node(node.op, inputs, attrs, node.outputs, node.device)
