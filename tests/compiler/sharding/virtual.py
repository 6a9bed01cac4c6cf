"""Run graphs on virtual ranks, and compare them with the whole graph."""

import numpy as np

from toolkit.backends.registry import get_backend
from toolkit.backends.target import Target
from toolkit.comm import local
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.sharding.buckets import join_collectives
from toolkit.compiler.sharding.layouts import MeshAxis, Split
from toolkit.compiler.sharding.partition import partition
from toolkit.compiler.sharding.propagate import propagate


def run(graph, arrays):
    """The outputs of a graph, from the kernels of the default backend."""
    program = compile_program(graph, Target(get_backend("numpy"), generate=False))
    return [np.array(y) for y in Executable(program)(arrays)]


def shard_of(array, layout, axis):
    """The part of an array that a rank has."""
    if layout is None:
        return array
    rows = axis.rows(layout.units(array))
    leading = (slice(None),) * layout.axis
    return array[(*leading, slice(rows.start, rows.stop))]


def local_graph(graph, axis, layouts):
    """The graph of one rank."""
    sharded = propagate(graph.pruned(), axis, layouts)
    result = join_collectives(partition(sharded, axis, layouts))
    result.verify()
    return result


def run_on_ranks(graph, arrays, layouts, ranks, leaves):
    """Return the outputs and the graph of each of `ranks` virtual ranks."""

    def compute(group):
        axis = MeshAxis("batch", group, leaves, even=False)
        rank_graph = local_graph(graph, axis, layouts)
        local_arrays = [
            shard_of(*pair, axis) for pair in zip(arrays, layouts, strict=True)
        ]
        return run(rank_graph, local_arrays), rank_graph

    return local.run(ranks, compute)


__all__ = ["Split", "local_graph", "run_on_ranks", "shard_of", "run"]
