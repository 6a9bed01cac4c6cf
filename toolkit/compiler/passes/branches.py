"""Branches without control flow: compute both, and select each result."""

from __future__ import annotations

from toolkit.backends.target import Target
from toolkit.core.tensor import bind
from toolkit.core.trace import Trace, inline
from toolkit.ir import PRIMITIVES, Graph, Node


def select_branches(graph: Graph, target: Target) -> Graph:
    """Replace each `cond` by both branches and a select, if a backend needs this.

    A branch that contains a loop of unknown length stays: it may not terminate when it
    is not taken.
    """
    if target.backend.generator.can_branch:
        return graph
    nodes: list[Node] = []
    for node in graph.nodes:
        selected = node.op.name == "cond" and not _loops(node)
        nodes += _select_nodes(node) if selected else [node]
    return graph.replace(nodes)


def _loops(node: Node) -> bool:
    members = (inner for subgraph in node.subgraphs for inner in subgraph.walk())
    return any(inner.op.name == "while_loop" for inner in members)


def _select_nodes(node: Node) -> list[Node]:
    """Return the nodes of both branches, and one select for each output."""
    with Trace("cond") as trace:
        stand_ins = [trace.placeholder(x.spec) for x in node.inputs]
        predicate, *inputs = stand_ins
        branches = [inline(node.attrs[name], inputs) for name in ("true", "false")]
        where = PRIMITIVES["where"]
        selected = [
            bind(where, predicate, a, b) for a, b in zip(*branches, strict=True)
        ]
    traced = trace.finish(selected)
    names = dict(zip(traced.inputs, node.inputs, strict=True))
    names |= zip(traced.outputs, node.outputs, strict=True)
    return [
        Node(
            inner.op,
            [names.get(x, x) for x in inner.inputs],
            inner.attrs,
            [names.get(y, y) for y in inner.outputs],
            node.device,
        )
        for inner in traced.nodes
    ]
