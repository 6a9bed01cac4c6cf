"""The one intermediate representation: Value, Primitive, Node, Graph.

Tapes, graphs and functional models all store the same `Node`. A `Graph` is a pure
value: a pass receives one and returns a new one.
"""

from toolkit.ir.axes import Axes, axes_of, letters, rule_along_axis
from toolkit.ir.graph import Graph, Node, format_graph, needed_nodes
from toolkit.ir.nodes import cast_node, fused_node, fused_p, node_of
from toolkit.ir.primitive import PRIMITIVES, Kind, Primitive, primitive
from toolkit.ir.scalars import Rule
from toolkit.ir.value import Constant, Narrow, Spec, Value

__all__ = [
    "PRIMITIVES",
    "Axes",
    "Constant",
    "Graph",
    "Kind",
    "Narrow",
    "Node",
    "Primitive",
    "Rule",
    "Spec",
    "Value",
    "rule_along_axis",
    "axes_of",
    "cast_node",
    "format_graph",
    "fused_node",
    "fused_p",
    "letters",
    "needed_nodes",
    "node_of",
    "primitive",
]
