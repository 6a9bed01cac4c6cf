"""What scans stack without need: results twice, copies of what they read, and waste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.backends.base import Backend
from toolkit.ir import Graph, Node


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
