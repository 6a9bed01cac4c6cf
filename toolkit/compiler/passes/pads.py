"""Zeros around arrays: what need not be added, and what need not be stored."""

from __future__ import annotations

from collections.abc import Mapping

from toolkit.backends.target import Target
from toolkit.definitions.records import record
from toolkit.ir import PRIMITIVES, Graph, Node, Value


@record
class _Sum:
    """Padded parts that are added.

    axis: the only one along which there are zeros.
    extent: of all parts, along it.
    terms: what is added, or one part.
    """

    axis: int
    extent: int
    terms: tuple[_Sum, ...]
    part: Node | None = None

    def parts(self) -> list[Node]:
        """Every part."""
        found, stack = [], [self]
        while stack:
            current = stack.pop()
            stack += current.terms
            if current.part is not None:
                found.append(current.part)
        return found


def join_pads(graph: Graph, target: Target) -> Graph:
    """Concatenate parts instead of adding them, each with zeros around it.

    The gradients of the parts of a split are such a sum. A -0.0 in a part stays one.
    """
    sums: dict[Value, _Sum] = {}
    nodes = []
    for node in graph.nodes:
        axis = _axis(node) if node.op.name == "pad" else None
        if axis is not None:
            extent = node.inputs[0].spec.shape[axis]
            sums[node.outputs[0]] = _Sum(axis, extent, (), node)
        elif node.op.name == "add" and all(x in sums for x in node.inputs):
            total = _added(*(sums[x] for x in node.inputs))
            extent = node.outputs[0].spec.shape[total.axis] if total else 0
            # The parts of what is more than full overlap.
            if total is not None and total.extent <= extent:
                sums[node.outputs[0]] = total
                if total.extent == extent:
                    node = _joined(node, total) or node
        nodes.append(node)
    return graph.replace(nodes)


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


def _added(a: _Sum, b: _Sum) -> _Sum | None:
    """Two sums as one, None if they are not of one axis."""
    if a.axis != b.axis:
        return None
    terms = tuple(term for term in (a, b) if term.extent)
    return _Sum(a.axis, a.extent + b.extent, terms)


def _axis(pad: Node) -> int | None:
    """The only axis along which there are zeros around an array."""
    widths, result = pad.attrs["widths"], pad.outputs[0].spec
    axes = [axis for axis, width in enumerate(widths) if width != (0, 0)]
    is_zero = pad.attrs["value"] == 0 and result.size > 0
    return axes[0] if is_zero and len(axes) == 1 else None


def _joined(total: Node, found: _Sum) -> Node | None:
    """The concatenation that a sum of parts is, if each begins where another ends."""
    axis, end = found.axis, 0
    parts = sorted(found.parts(), key=lambda part: part.attrs["widths"][axis][0])
    for part in parts:
        if part.attrs["widths"][axis][0] != end:
            return None
        end += part.inputs[0].spec.shape[axis]
    inputs = [part.inputs[0] for part in parts]
    attrs = {"axis": axis}
    return Node(PRIMITIVES["concatenate"], inputs, attrs, total.outputs, total.device)
