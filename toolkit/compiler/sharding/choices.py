"""Decisions of `propagate`, which `partition` applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from toolkit.compiler.sharding.layouts import Layout
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Value

# The composite of the indices and rows that all ranks need whole (`toolkit.ops.index`).
EXCHANGE = "exchange_rows"


@record
class Choice:
    """A node, with the shardings of its operands and results.

    Attributes:
        node: node of the original graph.
        inputs, outputs: the shardings.
        bodies: for a loop or a branch, the sharded sub-graphs by attribute.
    """

    node: Node
    inputs: Sequence[Layout]
    outputs: Sequence[Layout]
    bodies: Mapping[str, ShardedGraph] = field(default_factory=dict)


@record
class ShardedGraph:
    """A graph with expanded composites, and the shardings of all values.

    Attributes:
        graph: has the original inputs and outputs.
        choices: one for each node.
        layouts: shardings of values; a value that is not in it is replicated.
        output_layouts: shardings of the outputs.
    """

    graph: Graph
    choices: Sequence[Choice]
    layouts: Mapping[Value, Layout]
    output_layouts: Sequence[Layout]
