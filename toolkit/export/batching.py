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


def can_be_batched(
    signature: Signature, rows: int, trace_graph: Callable[[dict[str, int]], Graph]
) -> bool:
    """Return whether a batch can mix rows of several requests and zero padding.

    Args:
        signature: the signature of the model.
        rows: the batch size; 1 is replaced by 2.
        trace_graph: a function that returns the graph for numbers as free extents.

    Returns:
        False if unknown, for example for layers that are Python code.
    """
    for extent in EXTENTS if len(signature.free_extents) > 1 else EXTENTS[:1]:
        sizes = dict.fromkeys(signature.free_extents, extent)
        batch_size = max(rows, 2)
        batch_sizes = (
            (batch_size, batch_size + 1, 1)
            if BATCH in signature.free_extents
            else (batch_size,)
        )
        try:
            graphs = {n: trace_graph(sizes | {BATCH: n}) for n in batch_sizes}
        except Exception:  # layers can raise any error
            continue
        return has_independent_rows(signature, graphs)
    return False


def has_independent_rows(signature: Signature, graphs: Mapping[int, Graph]) -> bool:
    """Return whether a model computes rows independently, for any batch size.

    Args:
        signature: the signature of the model.
        graphs: the graphs of its outputs, by batch size.
    """
    largest, is_free = max(graphs), BATCH in signature.free_extents
    batches = [
        i
        for i, x in enumerate(signature.inputs)
        if (BATCH in x.shape if is_free else x.shape)
    ]
    return rows_are_independent(
        graphs[largest], largest, batches
    ) and graphs_equal_up_to_batch(graphs)


def graph_of_outputs(inference: InferenceGraph) -> Graph:
    """Return the graph of the outputs only."""
    graph = inference.graph
    return replace(graph, outputs=graph.outputs[: len(inference.names)]).pruned()
