"""Pass that moves the casts of all weights together, so that they can be one kernel."""

from __future__ import annotations

from toolkit.backends.target import Target
from toolkit.ir import Graph, Node
from toolkit.plans.loops.iteration_space import is_elementwise


def hoist_casts(graph: Graph, target: Target) -> Graph:
    """Move elementwise nodes of graph inputs to the front, unless they increase memory.

    The launch of a kernel can take longer than its computation. Adjacent casts of all
    weights can become one launch.
    """
    inputs = set(graph.inputs)

    def is_early(node: Node) -> bool:
        reads = [x for x in node.inputs if x.constant is None]
        if not reads or not all(x in inputs for x in reads):
            return False
        read_bytes: int = sum(x.spec.nbytes for x in reads)
        produced_bytes: int = sum(y.spec.nbytes for y in node.outputs)
        return produced_bytes <= read_bytes and all(
            is_elementwise(node, x) for x in reads
        )

    early = [node for node in graph.nodes if is_early(node)]
    moved = set(early)
    remaining = [node for node in graph.nodes if node not in moved]
    return graph.replace([*early, *remaining])
