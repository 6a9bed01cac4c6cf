"""Memory layout of every value of a graph: its buffer, offset and strides.

A view is in the buffer of its base. Every other value is contiguous in a separate
buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.definitions.records import record
from toolkit.ir import Graph, Kind, Node, Value
from toolkit.plans.operands import Operand, contiguous


@record
class Layout:
    """The value that owns the buffer, the byte offset in it, and the byte strides."""

    root: Any
    offset: int
    strides: tuple[int, ...]


class Layouts:
    """Layouts of the values of a graph, and the set of views.

    Args:
        graph: in execution order.
        inputs: the memory layouts of the inputs; None: whole, in row-major order.
    """

    def __init__(self, graph: Graph, inputs: Sequence[Operand] | None = None) -> None:
        self.views: set[Value] = set()
        self._layouts: dict[Value, Layout] = {
            value: Layout(value, 0, operand.strides)
            for value, operand in zip(graph.inputs, inputs or (), strict=False)
        }
        for node in graph.nodes:
            if node.op.kind is Kind.VIEW:
                layout = _view(node, self[node.inputs[0]])
                if layout is not None:
                    self.views.add(node.outputs[0])
                    self._layouts[node.outputs[0]] = layout

    def __getitem__(self, value: Any) -> Layout:
        if value not in self._layouts:
            self._layouts[value] = Layout(value, 0, contiguous(value.spec).strides)
        return self._layouts[value]

    def operand(self, value: Any) -> Operand:
        """Return the value as an operand of a kernel."""
        return Operand(value.spec, self[value].strides)


def _view(node: Node, source: Layout) -> Layout | None:
    """Return the layout of a view node's output; None if the node must copy."""
    shape, attrs = node.inputs[0].spec.shape, node.attrs
    result = node.outputs[0].spec
    strides, offset = source.strides, source.offset
    if node.op.name == "reshape":
        view_strides = _reshaped(Operand(node.inputs[0].spec, strides), result.shape)
        if view_strides is None:
            return None
        strides = view_strides
    elif node.op.name == "transpose":
        strides = tuple(strides[axis] for axis in attrs["axes"])
    elif node.op.name == "broadcast_to":
        added = (0,) * (result.ndim - len(shape))
        strides = added + tuple(
            0 if n == 1 else stride for n, stride in zip(shape, strides, strict=True)
        )
    elif node.op.name == "slice":
        if result.size:  # an empty slice can have any offset
            starts = zip(attrs["start"], strides, strict=True)
            offset += sum(start * stride for start, stride in starts)
        strides = tuple(
            step * stride for step, stride in zip(attrs["step"], strides, strict=True)
        )
    else:
        raise NotImplementedError(f"layout of {node.op.name}")
    return Layout(source.root, offset, strides)


def _reshaped(source: Operand, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides after a reshape without a copy; None if it must copy."""
    if source.is_contiguous:
        return contiguous(source.spec.with_shape(shape)).strides
    long_axes = [
        (n, stride)
        for n, stride in zip(source.spec.shape, source.strides, strict=True)
        if n != 1
    ]
    if [n for n, _ in long_axes] != [n for n in shape if n != 1]:
        return None
    remaining = iter(long_axes)
    return tuple(0 if n == 1 else next(remaining)[1] for n in shape)
