"""Tools for passes: substitution of values, inline expansion of bodies."""

from __future__ import annotations

from collections.abc import Callable

from toolkit.backends.target import Target
from toolkit.core.naming import scopes
from toolkit.core.trace import Trace, inline
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Value
from toolkit.plans.layout import Layouts


class Substitution:
    """Map from values to their replacements; a value may be replaced more than once."""

    def __init__(self) -> None:
        self._replacements: dict[Value, Value] = {}

    def __call__(self, value: Value) -> Value:
        """Return the current replacement of a value."""
        while value in self._replacements:
            value = self._replacements[value]
        return value

    def replace(self, old: Value, new: Value) -> None:
        """Replace a value by another."""
        self._replacements[old] = new

    def node(self, node: Node) -> Node:
        """Return a node that reads the replacements of its inputs."""
        return node.with_inputs([self(x) for x in node.inputs])


def decompose(graph: Graph, target: Target) -> Graph:
    """Expand the composites that have no kernel in the backend."""
    kernels, generator = target.backend.kernels, target.backend.generator

    def is_missing(node: Node) -> bool:
        is_supported = kernels.supports(node.op.name)
        return not (is_supported or generator.can_lower_composite(node))

    return expand(graph, is_missing)


def expand(graph: Graph, is_wanted: Callable[[Node], bool]) -> Graph:
    """Replace composites by their bodies."""

    def needs(node: Node) -> bool:
        return node.op.kind is Kind.COMPOSITE and is_wanted(node)

    if not any(map(needs, graph.nodes)):
        return graph
    substitute = Substitution()
    nodes: list[Node] = []
    for node in map(substitute.node, graph.nodes):
        if not needs(node):
            nodes.append(node)
            continue
        body = node.op.graph((x.spec for x in node.inputs), node.attrs)
        outer, scopes.names = scopes.names, node.outputs[0].origin
        try:
            with Trace(node.op.name) as trace:
                stand_ins = [trace.placeholder(x.spec) for x in node.inputs]
                outputs = inline(body, stand_ins)
        finally:
            scopes.names = outer
        expanded = expand(trace.finish(outputs), is_wanted)
        for old, new in zip(expanded.inputs, node.inputs, strict=True):
            substitute.replace(old, new)
        nodes += [substitute.node(inner) for inner in expanded.nodes]
        for old, new in zip(node.outputs, expanded.outputs, strict=True):
            substitute.replace(old, substitute(new))
    return graph.replace(nodes, map(substitute, graph.outputs))


def prune(graph: Graph, target: Target) -> Graph:
    """Drop the nodes that no output depends on."""
    return graph.pruned()


def copy_aliased_outputs(graph: Graph, target: Target) -> Graph:
    """Copy the outputs that no node writes to a separate buffer.

    These are inputs, constants, views, and values that are returned twice.
    """
    producers, layouts = graph.producers(), Layouts(graph, target.inputs)
    nodes, outputs, visited = list(graph.nodes), [], set()
    for value in graph.outputs:
        shared = value not in producers or value in layouts.views
        if shared or value in visited:
            copy = Value(value.spec)
            nodes.append(Node(PRIMITIVES["stop_gradient"], (value,), {}, (copy,)))
            value = copy
        visited.add(value)
        outputs.append(value)
    return graph.replace(nodes, outputs)


def copy_carried_views(graph: Graph, target: Target) -> Graph:
    """Copy initial values of loops that are views: loops read contiguous arrays."""
    if not any("carry" in node.attrs for node in graph.nodes):
        return graph
    layouts = Layouts(graph, target.inputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = list(node.inputs)
        for i, x in enumerate(inputs[: node.attrs.get("carry", 0)]):
            if not layouts.operand(x).is_contiguous:
                inputs[i] = Value(x.spec)
                copy = PRIMITIVES["stop_gradient"]
                nodes.append(Node(copy, (x,), {}, (inputs[i],), node.device))
        nodes.append(node.with_inputs(inputs))
    return graph.replace(nodes)
