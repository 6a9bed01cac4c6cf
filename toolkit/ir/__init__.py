"""The one intermediate representation: Value, Primitive, Node, Graph.

The same `Node` is the tape's entry, the graph's node and the functional model's
node. A `Graph` is a pure value: a pass takes one and returns a new one.
"""

from toolkit.ir.axes import Axes, along, axes_of, letters
from toolkit.ir.fused import fused_node, fused_p
from toolkit.ir.graph import Graph, Node, format_graph
from toolkit.ir.primitive import PRIMITIVES, Kind, Primitive, primitive
from toolkit.ir.scalars import Rule
from toolkit.ir.value import Constant, Spec, Value

__all__ = [
    "PRIMITIVES",
    "Axes",
    "Constant",
    "Graph",
    "Kind",
    "Node",
    "Primitive",
    "Rule",
    "Spec",
    "Value",
    "along",
    "axes_of",
    "format_graph",
    "fused_node",
    "fused_p",
    "letters",
    "primitive",
]
