"""What scans do without need: stack values twice, compute the same in every turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.backends.base import Backend
from toolkit.core.tensor import Tensor
from toolkit.ir import PRIMITIVES, Graph, Kind, Node


def tidy_scans(graph: Graph, backend: Backend) -> Graph:
    """Let scans stack each value once, and only values that something reads.

    A gradient's scan stacks what each of its readers asked for: often the same value,
    or one that the scan itself reads turn by turn.
    """
    if not any(node.op.name == "scan" for node in graph.nodes):
        return graph
    # What was replaced is kept too: the id of a dead value may be another's.
    stand_ins: dict[int, tuple[Any, Any]] = {}

    def now(value: Any) -> Any:
        return stand_ins.get(id(value), (value, value))[1]

    nodes = []
    for node in graph.nodes:
        node = node.with_inputs([now(x) for x in node.inputs])
        if node.op.name == "scan":
            repeated = _repeated(node)
            stand_ins.update((id(old), (old, new)) for old, new in repeated)
        nodes.append(node)
    outputs = [now(y) for y in graph.outputs]
    used = {id(x) for node in nodes for x in node.inputs} | {id(y) for y in outputs}
    nodes = [_only(n, used) if n.op.name == "scan" else n for n in nodes]
    return graph.replace(nodes, outputs)


def _repeated(node: Node) -> list[tuple[Any, Any]]:
    """Pairs of a stacked result and a value that is the same."""
    n, m, body = node.attrs["carry"], node.attrs["xs"], node.attrs["body"]
    known = {
        id(inner): outer
        for inner, outer in zip(
            body.inputs[n : n + m], node.inputs[n : n + m], strict=True
        )
    }
    pairs = []
    for inner, outer in zip(body.outputs[n:], node.outputs[n:], strict=True):
        if id(inner) in known:
            pairs.append((outer, known[id(inner)]))
        else:
            known[id(inner)] = outer
    return pairs


def _only(node: Node, used: set[int]) -> Node:
    """The scan without the stacked results that nothing reads."""
    n, body = node.attrs["carry"], node.attrs["body"]
    kept = [k for k, y in enumerate(node.outputs) if k < n or id(y) in used]
    if len(kept) == len(node.outputs):
        return node
    inner: Sequence[Any] = [body.outputs[k] for k in kept]
    attrs = {**node.attrs, "body": body.replace(outputs=inner)}
    outputs = [node.outputs[k] for k in kept]
    return Node(node.op, node.inputs, attrs, outputs, node.device)


def hoist(graph: Graph, backend: Backend) -> Graph:
    """Compute before a scan what is the same in each of its turns.

    Views stay inside. Of a transposed factor of products a copy is made, which they
    can read as it is. A carried value begins as a copy where it is a view: in all other
    turns it lies in memory of its own.
    """
    nodes: list[Node] = []
    views: set[int] = set()
    for node in graph.nodes:
        if node.op.kind is Kind.VIEW:
            views.add(id(node.outputs[0]))
        if node.op.name == "scan" and node.attrs["length"]:
            nodes += _begun_whole(node, views)
            nodes += _Hoisting(nodes.pop()).nodes()
        else:
            nodes.append(node)
    return graph.replace(nodes)


def _begun_whole(scan: Node, views: set[int]) -> list[Node]:
    """Copies of the carried values that are views, and the scan that begins so."""
    nodes, inputs = [], list(scan.inputs)
    for i, value in enumerate(inputs[: scan.attrs["carry"]]):
        if id(value) in views:
            inputs[i] = Tensor(None, value.spec)
            copy = PRIMITIVES["stop_gradient"]
            nodes.append(Node(copy, [value], {}, [inputs[i]]))
    return [*nodes, Node(scan.op, inputs, scan.attrs, scan.outputs, scan.device)]


class _Hoisting:
    """A scan, and what of its body runs before it."""

    def __init__(self, scan: Node) -> None:
        self.scan = scan
        self.body = scan.attrs["body"]
        first = scan.attrs["carry"] + scan.attrs["xs"]
        # The value outside that each value of the body is in every turn.
        self.outer: dict[int, Any] = {
            id(inner): outer
            for inner, outer in zip(
                self.body.inputs[first:], scan.inputs[first:], strict=True
            )
        }
        self.factors = {
            id(x)
            for node in self.body.nodes
            if node.op.kind is Kind.CONTRACT
            for x in node.inputs
        }
        self.before: list[Node] = []
        self.inside: list[Node] = []
        self.moved: list[Any] = []

    def nodes(self) -> list[Node]:
        """What runs before the scan, and the scan."""
        for node in self.body.nodes:
            self._take(node)
        used = {id(y) for y in self.body.outputs}
        inside = _leading_to(used, self.inside)
        given = [value for value in self.moved if id(value) in used]
        if not given:
            return [self.scan]
        body = Graph((*self.body.inputs, *given), tuple(inside), self.body.outputs)
        inputs = [*self.scan.inputs, *(self.outer[id(value)] for value in given)]
        attrs = {**self.scan.attrs, "body": body}
        before = _leading_to({id(x) for x in inputs}, self.before)
        scan = self.scan
        return [*before, Node(scan.op, inputs, attrs, scan.outputs, scan.device)]

    def _take(self, node: Node) -> None:
        """Put a node where it belongs; a view may be needed on both sides."""
        variable = [x for x in node.inputs if x.constant is None]
        same = bool(variable) and all(id(x) in self.outer for x in variable)
        if not same or node.op.kind is Kind.CONTROL:
            self.inside.append(node)
            return
        self._put_before(node)
        if node.op.kind is not Kind.VIEW:
            self.moved += node.outputs
        elif node.op.name == "transpose" and id(node.outputs[0]) in self.factors:
            (value,) = node.outputs
            view = self.outer[id(value)]
            copy = Tensor(None, value.spec)
            self.before.append(Node(PRIMITIVES["stop_gradient"], [view], {}, [copy]))
            self.outer[id(value)] = copy
            self.moved.append(value)
        else:
            self.inside.append(node)

    def _put_before(self, node: Node) -> None:
        inputs = [self.outer.get(id(x), x) for x in node.inputs]
        outputs = [Tensor(None, y.spec) for y in node.outputs]
        self.before.append(Node(node.op, inputs, node.attrs, outputs, node.device))
        self.outer.update(zip(map(id, node.outputs), outputs, strict=True))


def _leading_to(used: set[int], nodes: Sequence[Node]) -> list[Node]:
    """The nodes that make values with these ids; adds the ids of what they read."""
    found = []
    for node in reversed(nodes):
        if any(id(y) in used for y in node.outputs):
            used.update(id(x) for x in node.inputs)
            found.append(node)
    return found[::-1]
