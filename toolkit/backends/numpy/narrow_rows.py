"""Elementwise nodes on many short rows, for example the three channels of images.

A vector would hold one short row, so most lanes would be empty. This pass joins rows
until they fill whole vectors. Operands that all rows share are repeated accordingly.
"""

from __future__ import annotations

from math import gcd, prod

from toolkit import dtypes
from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Spec, Value
from toolkit.ir.extents import are_always, value_of

# A joined row is a multiple of this number of bytes: the width of the widest vectors.
_VECTOR_BYTES = 64
# The element count from which rows are joined.
_MIN_ELEMENTS = 4096


def join_narrow_rows(graph: Graph, target: Target) -> Graph:
    """Compute elementwise functions of inputs on longer rows.

    The pass does not change epilogues of products and convolutions: their kernel
    computes them.
    """
    if target.inputs is not None:  # inputs can be views, which a reshape copies
        return graph
    joining = _RowJoiner(graph)
    for node in graph.nodes:
        joining.add(node)
    return graph.replace(joining.finish())


class _RowJoiner:
    """Collector of the rewritten nodes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.outputs = set(graph.outputs)
        self.nodes: list[Node] = []
        # Values that are elementwise functions of inputs only.
        self.input_functions: set[Value] = set(graph.inputs)
        self.joined: dict[Value, Value] = {}  # the same elements in longer rows
        self.repeated: dict[Value, Value] = {}
        self.computed: set[Value] = set(graph.inputs)

    def add(self, node: Node) -> None:
        """Add a node, on longer rows if that is faster."""
        shape = self._joined_shape(node)
        if node.op.kind is Kind.ELEMENTWISE and self.input_functions.issuperset(
            x for x in node.inputs if x.spec.size > 1 and not _is_row(x, node)
        ):
            self.input_functions.update(node.outputs)
        if shape is None:
            for x in node.inputs:
                self._restore(x)
            self.nodes.append(node)
            self.computed.update(node.outputs)
            return
        inputs = [self._input(x, node, shape) for x in node.inputs]
        outputs = [Value(Spec(shape, y.spec.dtype)) for y in node.outputs]
        self.nodes.append(Node(node.op, inputs, node.attrs, outputs, node.device))
        self.joined.update(zip(node.outputs, outputs, strict=True))

    def finish(self) -> list[Node]:
        """Return all nodes, with the original outputs of the graph."""
        for y in self.graph.outputs:
            self._restore(y)
        return self.nodes

    def _joined_shape(self, node: Node) -> tuple[int, int] | None:
        """Return the joined shape of a node; None: its original shape."""
        spec = node.outputs[0].spec
        if (
            node.op.kind is not Kind.ELEMENTWISE
            or value_of(spec.size) < _MIN_ELEMENTS
            or spec.ndim < 2
        ):
            return None
        wide = [x for x in node.inputs if are_always(x.spec.shape, spec.shape)]
        rows = [x for x in node.inputs if _is_row(x, node)]
        numbers = [x for x in node.inputs if x.spec.size == 1]
        if len(wide) + len(rows) + len(numbers) < len(node.inputs):
            return None
        is_worth_it = rows or any(x in self.joined for x in wide)
        if not is_worth_it or not self.input_functions.issuperset(wide):
            return None
        columns = spec.shape[-1]
        vector = _VECTOR_BYTES // max(
            dtypes.itemsize(y.spec.dtype) for y in node.outputs
        )
        times = vector // gcd(columns, vector)
        count = prod(spec.shape[:-1])
        if columns >= vector or count % times:
            return None
        shape = count // times, times * columns
        joined_shapes = {self.joined[x].spec.shape for x in wide if x in self.joined}
        return shape if joined_shapes <= {shape} else None

    def _input(self, x: Value, node: Node, shape: tuple[int, int]) -> Value:
        if x.spec.size == 1:
            return x
        if not _is_row(x, node):
            if x not in self.joined:
                self.joined[x] = self._reshaped(x, shape)
            return self.joined[x]
        if x not in self.repeated:
            columns = x.spec.size
            table = Value(Spec((shape[1] // columns, columns), x.spec.dtype))
            line = self._reshaped(x, (1, columns))
            attrs = {"shape": table.spec.shape}
            self.nodes.append(Node(PRIMITIVES["broadcast_to"], [line], attrs, [table]))
            self.repeated[x] = self._reshaped(table, (1, shape[1]))
        return self.repeated[x]

    def _reshaped(
        self, x: Value, shape: tuple[int, ...], y: Value | None = None
    ) -> Value:
        if y is None:
            y = Value(Spec(shape, x.spec.dtype))
        self.nodes.append(Node(PRIMITIVES["reshape"], [x], {"shape": shape}, [y]))
        return y

    def _restore(self, x: Value) -> None:
        """Add a value in its original shape."""
        if x not in self.joined or x in self.computed:
            return
        self.computed.add(x)
        if x not in self.outputs:
            self._reshaped(self.joined[x], x.spec.shape, x)
            return
        # An output of the graph must not be a view of an intermediate value.
        view = self._reshaped(self.joined[x], x.spec.shape)
        self.nodes.append(Node(PRIMITIVES["stop_gradient"], [view], {}, [x]))


def _is_row(x: Value, node: Node) -> bool:
    """Return whether a value is one row that broadcasts to all rows of a result."""
    columns = node.outputs[0].spec.shape[-1:]
    return x.spec.size > 1 and x.spec.shape[-1:] == columns == (x.spec.size,)
