"""Casts of all weights stand together, so that they can be one kernel."""

from __future__ import annotations

from toolkit.backends.loops.iteration_space import is_elementwise
from toolkit.backends.target import Target
from toolkit.ir import Graph, Node


def casts_first(graph: Graph, target: Target) -> Graph:
    """Move elementwise nodes of inputs alone to the front, if they make no more of it.

    Where starting a kernel takes longer than what it computes: casts of all weights
    stand together there, and can be one start.
    """
    known = set(graph.inputs)

    def is_early(node: Node) -> bool:
        reads = [x for x in node.inputs if x.constant is None]
        if not reads or not all(x in known for x in reads):
            return False
        given: int = sum(x.spec.nbytes for x in reads)
        made: int = sum(y.spec.nbytes for y in node.outputs)
        return made <= given and all(is_elementwise(node, x) for x in reads)

    early = [node for node in graph.nodes if is_early(node)]
    moved = set(early)
    rest = [node for node in graph.nodes if node not in moved]
    return graph.replace([*early, *rest])
