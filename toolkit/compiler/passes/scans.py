"""Redundant work of scans: values stacked twice, loop-invariant computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Value, needed_nodes


def tidy_scans(graph: Graph, target: Target) -> Graph:
    """Stack each value of a scan once, and only if something reads it.

    The scan of a gradient stacks a value for each of its readers: often the same value,
    or a value that the scan itself reads in each iteration.
    """
    if not any(node.op.name == "scan" for node in graph.nodes):
        return graph
    stand_ins: dict[Value, Value] = {}

    def current(value: Value) -> Value:
        return stand_ins.get(value, value)

    nodes = []
    for node in graph.nodes:
        node = node.with_inputs([current(x) for x in node.inputs])
        if node.op.name == "scan":
            stand_ins |= _duplicate_results(node)
        nodes.append(node)
    outputs = [current(y) for y in graph.outputs]
    used = {x for node in nodes for x in node.inputs} | set(outputs)
    nodes = [_without_unused(n, used) if n.op.name == "scan" else n for n in nodes]
    return graph.replace(nodes, outputs)


def _duplicate_results(node: Node) -> dict[Value, Value]:
    """Return the redundant stacked results, each with an equal value."""
    n, m, body = node.attrs["carry"], node.attrs["xs"], node.attrs["body"]
    stacked_inputs = dict(
        zip(body.inputs[n : n + m], node.inputs[n : n + m], strict=True)
    )
    duplicates = {}
    for inner, outer in zip(body.outputs[n:], node.outputs[n:], strict=True):
        if inner in stacked_inputs:
            duplicates[outer] = stacked_inputs[inner]
        else:
            stacked_inputs[inner] = outer
    return duplicates


def _without_unused(node: Node, used: set[Value]) -> Node:
    """Return the scan without the stacked results that nothing reads."""
    n, body = node.attrs["carry"], node.attrs["body"]
    used_indices = [k for k, y in enumerate(node.outputs) if k < n or y in used]
    if len(used_indices) == len(node.outputs):
        return node
    inner: Sequence[Any] = [body.outputs[k] for k in used_indices]
    attrs = {**node.attrs, "body": body.replace(outputs=inner)}
    outputs = [node.outputs[k] for k in used_indices]
    return Node(node.op, node.inputs, attrs, outputs, node.device)


def hoist(graph: Graph, target: Target) -> Graph:
    """Move loop-invariant nodes before the scan.

    Views stay inside. A transposed factor of a matrix product is copied, so that
    products read it without a transpose. An initial carried value that is a view is
    copied: in all other iterations it is contiguous.
    """
    nodes: list[Node] = []
    views: set[Value] = set()
    for node in graph.nodes:
        if node.op.kind is Kind.VIEW:
            views.add(node.outputs[0])
        if node.op.name == "scan" and node.attrs["length"]:
            nodes += _copy_initial_views(node, views)
            nodes += _Hoisting(nodes.pop()).nodes()
        else:
            nodes.append(node)
    return graph.replace(nodes)


def _copy_initial_views(scan: Node, views: set[Value]) -> list[Node]:
    """Return copies of initial carried values that are views, and the scan on them."""
    nodes, inputs = [], list(scan.inputs)
    for i, value in enumerate(inputs[: scan.attrs["carry"]]):
        if value in views:
            inputs[i] = Value(value.spec)
            copy = PRIMITIVES["stop_gradient"]
            nodes.append(Node(copy, [value], {}, [inputs[i]]))
    return [*nodes, Node(scan.op, inputs, scan.attrs, scan.outputs, scan.device)]


class _Hoisting:
    """A scan, and the nodes of its body that run before it."""

    def __init__(self, scan: Node) -> None:
        self.scan = scan
        self.body = scan.attrs["body"]
        first = scan.attrs["carry"] + scan.attrs["xs"]
        # The outer value of each body value that is the same in every iteration.
        self.outer: dict[Value, Value] = dict(
            zip(self.body.inputs[first:], scan.inputs[first:], strict=True)
        )
        self.factors = {
            x
            for node in self.body.nodes
            if node.op.kind is Kind.CONTRACT
            for x in node.inputs
        }
        self.before: list[Node] = []
        self.remaining: list[Node] = []
        self.moved: list[Any] = []

    def nodes(self) -> list[Node]:
        """Return the nodes before the scan, and the scan."""
        for node in self.body.nodes:
            self._assign_node(node)
        used = set(self.body.outputs)
        body_nodes = needed_nodes(self.remaining, used)
        hoisted = [value for value in self.moved if value in used]
        if not hoisted:
            return [self.scan]
        body = Graph(
            (*self.body.inputs, *hoisted), tuple(body_nodes), self.body.outputs
        )
        inputs = [*self.scan.inputs, *(self.outer[value] for value in hoisted)]
        attrs = {**self.scan.attrs, "body": body}
        before = needed_nodes(self.before, set(inputs))
        scan = self.scan
        return [*before, Node(scan.op, inputs, attrs, scan.outputs, scan.device)]

    def _assign_node(self, node: Node) -> None:
        """Assign a node to the outer graph, to the body, or (a view) to both."""
        variable = [x for x in node.inputs if x.constant is None]
        same = bool(variable) and all(x in self.outer for x in variable)
        if not same or node.op.kind is Kind.CONTROL:
            self.remaining.append(node)
            return
        self._put_before(node)
        if node.op.kind is not Kind.VIEW:
            self.moved += node.outputs
        elif node.op.name == "transpose" and node.outputs[0] in self.factors:
            (value,) = node.outputs
            view = self.outer[value]
            copy = Value(value.spec)
            self.before.append(Node(PRIMITIVES["stop_gradient"], [view], {}, [copy]))
            self.outer[value] = copy
            self.moved.append(value)
        else:
            self.remaining.append(node)

    def _put_before(self, node: Node) -> None:
        inputs = [self.outer.get(x, x) for x in node.inputs]
        outputs = [Value(y.spec) for y in node.outputs]
        self.before.append(Node(node.op, inputs, node.attrs, outputs, node.device))
        self.outer.update(zip(node.outputs, outputs, strict=True))
