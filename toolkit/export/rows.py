"""Whether a server may put the rows of several requests into one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from toolkit.compiler.sharding.alike import computes_alike
from toolkit.compiler.sharding.rows import rows_are_independent
from toolkit.export.inference import BATCH, InferenceGraph, Signature
from toolkit.ir import Graph

# Of axes that a model leaves free, to see what it computes; one that it can compute.
EXTENTS = (16, 128, 1)


def may_be_batched(
    signature: Signature, rows: int, traced: Callable[[dict[str, int]], Graph]
) -> bool:
    """Whether a batch may hold rows of several requests, and be filled up with zeros.

    Args:
        signature: of the model.
        rows: that a batch has; 1 is taken as 2.
        traced: makes the graph for a number for each free extent.

    Returns:
        False where that is not known, as for layers that are Python code.
    """
    for extent in EXTENTS if len(signature.free) > 1 else EXTENTS[:1]:
        sizes = dict.fromkeys(signature.free, extent)
        most = max(rows, 2)
        numbers = (most, most + 1, 1) if BATCH in signature.free else (most,)
        try:
            graphs = {n: traced(sizes | {BATCH: n}) for n in numbers}
        except Exception:  # layers may raise anything
            continue
        return computes_rows(signature, graphs)
    return False


def computes_rows(signature: Signature, graphs: Mapping[int, Graph]) -> bool:
    """Whether a model computes each row by itself, and alike in each number of rows.

    Args:
        signature: of the model.
        graphs: of what it returns, by the number of rows.
    """
    most, is_free = max(graphs), BATCH in signature.free
    batches = [
        i
        for i, x in enumerate(signature.inputs)
        if (BATCH in x.shape if is_free else x.shape)
    ]
    return rows_are_independent(graphs[most], most, batches) and computes_alike(graphs)


def without_writes(found: InferenceGraph) -> Graph:
    """The graph of what is returned alone."""
    graph = found.graph
    return replace(graph, outputs=graph.outputs[: len(found.names)]).pruned()
