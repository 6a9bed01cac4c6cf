"""What `propagate` decides, for `partition` to write down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from toolkit.compiler.sharding.layouts import Layout
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Value


@record
class Choice:
    """A node, and the layouts in which it takes its operands and gives its results.

    Attributes:
        node: of the graph that is spread.
        inputs, outputs: the layouts.
        bodies: for a loop or a branch, how its sub-graphs are spread, by attribute.
    """

    node: Node
    inputs: Sequence[Layout]
    outputs: Sequence[Layout]
    bodies: Mapping[str, Spread] = field(default_factory=dict)


@record
class Spread:
    """A graph, with composites taken apart where they had to be, and its layouts.

    Attributes:
        graph: its inputs and outputs are those that were given.
        choices: one for each of its nodes.
        layouts: of its values; what is not in it is whole.
        wanted: of its outputs.
    """

    graph: Graph
    choices: Sequence[Choice]
    layouts: Mapping[Value, Layout]
    wanted: Sequence[Layout]
