"""Numbers of free extents in sub-graphs: operands of loops and branches."""

from __future__ import annotations

from toolkit.backends.target import Target
from toolkit.ir import Graph, Kind, Node, Value


def lift_numbers(graph: Graph, target: Target) -> Graph:
    """Make the numbers that depend on free extents operands of loops and branches.

    Only the outer program writes such numbers for each length. The last operands of a
    loop or a branch are inputs of all of its sub-graphs.
    """
    return graph.replace(map(_lift, graph.nodes))


def _lift(node: Node) -> Node:
    graphs = {k: g for k, g in node.attrs.items() if isinstance(g, Graph)}
    numbers = dict.fromkeys(
        x for g in graphs.values() for x in _read_values(g) if x.extent is not None
    )
    if node.op.kind is not Kind.CONTROL or not numbers:
        return node
    attrs = {k: _with_inputs(g, list(numbers)) for k, g in graphs.items()}
    inputs = (*node.inputs, *numbers)
    return Node(node.op, inputs, {**node.attrs, **attrs}, node.outputs, node.device)


def _read_values(graph: Graph) -> list[Value]:
    return [*(x for node in graph.nodes for x in node.inputs), *graph.outputs]


def _with_inputs(graph: Graph, numbers: list[Value]) -> Graph:
    """Return a graph in which constants are further inputs."""
    inputs = {x: Value(x.spec) for x in numbers}
    nodes = [
        node.with_inputs([inputs.get(x, x) for x in node.inputs])
        for node in graph.nodes
    ]
    outputs = [inputs.get(y, y) for y in graph.outputs]
    return Graph((*graph.inputs, *inputs.values()), tuple(nodes), tuple(outputs))
