"""Products that read 16-bit inputs of a program, instead of copies in float32.

A program computes in float32, see `precision`. The kernels of products convert elements
of 16 bits while they read or pack them. So a weight is read once, in half the memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolkit.backends.numpy.jit.math.narrow import WIDE, is_narrow
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.products import PRODUCTS, can_round_factors
from toolkit.backends.target import Target
from toolkit.ir import Graph, Kind, Node, Value
from toolkit.plans.rules import rules


def read_narrow_factors(graph: Graph, target: Target) -> Graph:
    """Replace casts of inputs by the inputs where a product can read these."""
    if not any(is_narrow(x.spec.dtype) for x in graph.inputs):
        return graph
    sources = _Sources(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = list(node.inputs)
        for i in _readable_factors(node):
            inputs[i] = sources.add_stored(inputs[i], nodes)
        nodes.append(node.with_inputs(inputs))
    return graph.replace(nodes).pruned() if sources.stored else graph


def reads_stored(node: Node, number: int) -> bool:
    """Return whether a node is a product that can read an input of 16 bits."""
    return number in _readable_factors(node)


def _readable_factors(node: Node) -> tuple[int, ...]:
    """Return the operands of a product that its kernel converts.

    Kernels for rounded factors read both operands. Other kernels of `matmul` convert
    the right one, which is usually the larger.
    """
    if node.op.name not in PRODUCTS or node.outputs[0].spec.dtype != WIDE:
        return ()
    may_round = current().rounds_factors and not rules.rows_independent
    if may_round and can_round_factors(node):
        return (0, 1)
    return (1,) if node.op.name == "matmul" else ()


class _Sources:
    """Inputs of 16 bits, and views of them, that equal float32 values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.inputs = {x for x in graph.inputs if is_narrow(x.spec.dtype)}
        self.producers: Mapping[Value, Node] = graph.producers()
        self.stored: dict[Value, Value] = {}

    def add_stored(self, value: Value, nodes: list[Node]) -> Value:
        """Return the 16-bit value that equals a value, or the value itself.

        Views that create it are appended to `nodes`.
        """
        views: list[Node] = []
        source, has_cast = value, False
        while source not in self.inputs and source not in self.stored:
            node = self.producers.get(source)
            if node is None or not (node.op.kind is Kind.VIEW or _is_widening(node)):
                return value
            if node.op.kind is Kind.VIEW:
                views.append(node)
            else:
                has_cast = True
            source = node.inputs[0]
        if not has_cast and source not in self.stored:
            return value  # already narrow
        stored = self.stored.get(source, source)
        for view in reversed(views):
            (y,) = view.outputs
            narrow = Value(y.spec.with_dtype(stored.spec.dtype))
            nodes.append(Node(view.op, [stored], view.attrs, [narrow], view.device))
            self.stored[y] = stored = narrow
        self.stored[value] = stored
        return stored


def _is_widening(node: Node) -> bool:
    is_cast = node.op.name == "cast" and node.outputs[0].spec.dtype == WIDE
    return is_cast and is_narrow(node.inputs[0].spec.dtype)
