"""Zero padding: zeros that need not be added, and zeros that need not be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from toolkit.backends.target import Target
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Value, node_of
from toolkit.ir.extents import has_extent


@record
class _Sum:
    """Sum of padded parts.

    axis: the only axis along which there are zeros. terms: the summands. operand: the
    only operand, if there are no terms.
    """

    axis: int
    terms: tuple[_Sum, ...]
    operand: Node | None = None

    def operands(self) -> list[Node]:
        """Return every operand that is not empty, in order."""
        operands_in_order, stack = [], [self]
        while stack:
            current = stack.pop()
            stack += reversed(current.terms)
            if current.operand is not None and current.operand.inputs[0].spec.size:
                operands_in_order.append(current.operand)
        return operands_in_order


def join_pads(graph: Graph, target: Target) -> Graph:
    """Concatenate padded parts instead of adding them.

    The gradients of the parts of a split are such a sum. Parts at the same offset are
    added first. A -0.0 in a part stays -0.0.
    """
    uses = Counter(x for node in graph.nodes for x in node.inputs)
    uses.update(graph.outputs)
    sums: dict[Value, _Sum] = {}
    inner: set[Value] = set()  # terms of another sum
    for node in graph.nodes:
        if node.op.name == "pad":
            pad_sum = _pad_as_sum(node)
        else:
            pad_sum = _merge_sums(node, sums, uses) if node.op.name == "add" else None
            inner.update(node.inputs if pad_sum else ())
        if pad_sum is not None:
            sums[node.outputs[0]] = pad_sum
    nodes: list[Node] = []
    for node in graph.nodes:
        total = sums.get(node.outputs[0])
        if total is None or not total.terms or node.outputs[0] in inner:
            nodes.append(node)
        else:
            nodes += _sum_nodes(node, total)
    return graph.replace(nodes)


def _pad_as_sum(pad: Node) -> _Sum | None:
    """Return a pad as a sum of one part, if it pads along one axis only."""
    widths, result = pad.attrs["widths"], pad.outputs[0].spec
    if has_extent(widths):
        return None
    axes = [axis for axis, width in enumerate(widths) if width != (0, 0)]
    is_zero = pad.attrs["value"] == 0 and result.size > 0
    return _Sum(axes[0], (), pad) if is_zero and len(axes) == 1 else None


def _merge_sums(
    add: Node, sums: Mapping[Value, _Sum], uses: Mapping[Value, int]
) -> _Sum | None:
    """Merge two sums along one axis, if nothing else reads them."""
    terms = tuple(sums[x] for x in add.inputs if x in sums)
    if len(terms) < 2 or terms[0].axis != terms[1].axis:
        return None
    if add.inputs[0].spec != add.inputs[1].spec:  # one of them broadcasts
        return None
    pairs = zip(terms, add.inputs, strict=True)
    is_read = any(term.terms and uses[x] > 1 for term, x in pairs)
    return None if is_read else _Sum(terms[0].axis, terms)


def _sum_nodes(total: Node, pad_sum: _Sum) -> list[Node]:
    """Return the nodes of a sum: concatenations of parts that do not overlap, added."""
    axis, writer = pad_sum.axis, _Writer(total.device)
    ranges: dict[_Range, list[Value]] = {}
    for term in pad_sum.operands():
        (x,), (start, _) = term.inputs, term.attrs["widths"][axis]
        ranges.setdefault((start, start + x.spec.shape[axis]), []).append(x)
    rows = _rows(sorted(ranges))
    if len(rows) == sum(map(len, ranges.values())):
        return [total]
    sums = {bounds: writer.add_values(values) for bounds, values in ranges.items()}
    extent = total.outputs[0].spec.shape[axis]
    writer.add_values(
        [
            writer.row([(bounds, sums[bounds]) for bounds in row], axis, extent)
            for row in rows
        ]
    )
    *before, last = writer.nodes
    return [*before, Node(last.op, last.inputs, last.attrs, total.outputs, last.device)]


_Range = tuple[int, int]  # start and end of a part


def _rows(ranges: Sequence[_Range]) -> list[list[_Range]]:
    """Group sorted ranges into rows without overlap."""
    rows: list[list[_Range]] = []
    for bounds in ranges:
        for row in rows:
            if row[-1][1] <= bounds[0]:
                row.append(bounds)
                break
        else:
            rows.append([bounds])
    return rows


class _Writer:
    """Builder of nodes."""

    def __init__(self, device: str | None) -> None:
        self._device = device
        self.nodes: list[Node] = []

    def add_values(self, values: Sequence[Value]) -> Value:
        """Return the sum of the values."""
        return reduce(lambda x, y: self._node("add", (x, y)), values)

    def row(
        self, items: Sequence[tuple[_Range, Value]], axis: int, extent: int
    ) -> Value:
        """Return the concatenation of disjoint parts, with zeros around them."""
        starts = [start for (start, _), _ in items[1:]]
        pieces, low = [], items[0][0][0]
        for ((_, end), x), following in zip(items, [*starts, extent], strict=True):
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


# Primitives that can pad their first input, along all axes between the first and the
# last.
_WINDOWED = ("conv", "conv_integer", "conv_kernel_grad")


def absorb_pads(graph: Graph, target: Target) -> Graph:
    """Make convolutions pad implicitly instead of reading stored zeros."""
    pads: dict[Value, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        pad = pads.get(node.inputs[0]) if node.op.name == "quantize" else None
        is_zero = pad is not None and pad.attrs["value"] == 0
        if pad is not None and is_zero and node.inputs[1].spec.size == 1:
            inner, node = _swap_quantize(node, pad)
            nodes.append(inner)
        if node.op.name == "pad":
            pads[node.outputs[0]] = node
        nodes.append(_absorb_pad(node, pads))
    return graph.replace(nodes)


def _swap_quantize(quantize: Node, pad: Node) -> tuple[Node, Node]:
    """Quantize before padding, so that 8-bit numbers are padded instead of floats."""
    (x,), (y,) = pad.inputs, quantize.outputs
    small = Value(x.spec.with_dtype(y.spec.dtype))
    inputs, device = (x, quantize.inputs[1]), quantize.device
    inner = Node(quantize.op, inputs, quantize.attrs, (small,), device)
    attrs = {**pad.attrs, "value": quantize.attrs["offset"]}
    return inner, Node(pad.op, (small,), attrs, (y,), device)


def _absorb_pad(node: Node, pads: Mapping[Value, Node]) -> Node:
    """Return a convolution that reads the source of a pad instead of its result."""
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
