"""Analysis of whether requests can share a batch in a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from toolkit.compiler.sharding.graph_equality import graphs_equal_up_to_batch
from toolkit.compiler.sharding.rows import rows_are_independent
from toolkit.export.inference import BATCH, InferenceGraph, Signature
from toolkit.ir import Graph

# Trial sizes for the free axes of a model; one must be valid.
EXTENTS = (16, 128, 1)


def may_be_batched(
    signature: Signature, rows: int, traced: Callable[[dict[str, int]], Graph]
) -> bool:
    """Return whether a batch can mix rows of several requests and zero padding.

    Args:
        signature: the signature of the model.
        rows: the batch size; 1 is replaced by 2.
        traced: a function that returns the graph for a number for each free extent.

    Returns:
        False if unknown, for example for layers that are Python code.
    """
    for extent in EXTENTS if len(signature.free) > 1 else EXTENTS[:1]:
        sizes = dict.fromkeys(signature.free, extent)
        most = max(rows, 2)
        numbers = (most, most + 1, 1) if BATCH in signature.free else (most,)
        try:
            graphs = {n: traced(sizes | {BATCH: n}) for n in numbers}
        except Exception:  # layers can raise any error
            continue
        return computes_rows(signature, graphs)
    return False


def computes_rows(signature: Signature, graphs: Mapping[int, Graph]) -> bool:
    """Return whether a model computes rows independently, for any batch size.

    Args:
        signature: the signature of the model.
        graphs: the graphs of its outputs, by batch size.
    """
    most, is_free = max(graphs), BATCH in signature.free
    batches = [
        i
        for i, x in enumerate(signature.inputs)
        if (BATCH in x.shape if is_free else x.shape)
    ]
    return rows_are_independent(
        graphs[most], most, batches
    ) and graphs_equal_up_to_batch(graphs)


def without_writes(found: InferenceGraph) -> Graph:
    """Return the graph of the outputs only."""
    graph = found.graph
    return replace(graph, outputs=graph.outputs[: len(found.names)]).pruned()
