"""Decisions of `propagate`, which `partition` applies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from toolkit.compiler.sharding.layouts import Layout, Split
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Value

# The composite of the indices and rows that all ranks need whole (`toolkit.ops.index`).
EXCHANGE = "exchange_rows"
# Composites for lookups and updates in the rows of a shard (`toolkit.ops.shards`), by
# the primitive, and the mode of a scatter.
IN_SHARD = {
    ("gather", None): "gather_in_shard",
    ("scatter", "add"): "add_in_shard",
    ("scatter", "set"): "set_in_shard",
}


def operation_in_shard(node: Node, table: Layout) -> str | None:
    """Return the composite of a lookup or an update of rows, or None.

    Args:
        node: the node.
        table: the sharding of its first operand. Only the rows may be sharded.
    """
    name = IN_SHARD.get((node.op.name, node.attrs.get("mode")))
    is_along_rows = table == Split(0) and node.attrs.get("axis") == 0
    return name if is_along_rows else None


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
        stored: values that are sharded only to save memory.
    """

    graph: Graph
    choices: Sequence[Choice]
    layouts: Mapping[Value, Layout]
    output_layouts: Sequence[Layout]
    stored: Collection[Value] = frozenset()
