"""Storage of intermediate results as bfloat16, if products round their factors.

A program computes in float32, see `precision`. Memory-bound kernels take half the time
for elements of half the size. They round large results that the program computes in
bfloat16 or rounds to it. They widen these results when they load them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from toolkit.backends.numpy.jit.lowering import ANCHORS
from toolkit.backends.numpy.jit.math.bfloat16 import NARROW
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.products import PRODUCTS, can_round_factors
from toolkit.backends.target import Target
from toolkit.ir import Graph, Kind, Node, Value, cast_node, fused_node, fused_p
from toolkit.plans.loops.iteration_space import iteration_space_of
from toolkit.plans.rules import rules

# The part of a core's cache from which on a value is large. A kernel has several values
# and a matrix. MobileNetV2 takes 8 % less time than with whole caches.
_CACHE_FRACTION = 0.25
# Operations that return the same elements in memory with another layout.
_VIEWS = ("reshape", "transpose", "slice")


def store_narrow(graph: Graph, target: Target) -> Graph:
    """Store as bfloat16 the values that the program rounds, if they are large.

    Args:
        graph: a graph with fused nodes, in execution order.
        target: the target of the compilation.
    """
    processor = current()
    if not processor.rounds_factors or rules.rows_independent:
        return graph
    minimum = int(processor.cache_bytes * _CACHE_FRACTION)
    return _NarrowStorage(graph, minimum).rewrite_graph()


class _NarrowStorage:
    """Selection of the values, and rewriting of the nodes that use them."""

    def __init__(self, graph: Graph, minimum_bytes: int) -> None:
        self.graph, self.minimum_bytes = graph, minimum_bytes
        self.returned: set[Value] = set(graph.outputs)
        self.readers: defaultdict[Value, list[Node]] = defaultdict(list)
        self.transposed: set[Value] = set()
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers[value].append(node)
            if node.op.name == "transpose":
                self.transposed.update(node.outputs)
        self.narrow: dict[Value, Value] = {}

    def rewrite_graph(self) -> Graph:
        """Return the graph with narrow values."""
        nodes = [self._rewrite_node(node) for node in self.graph.nodes]
        return self.graph.replace(nodes) if self.narrow else self.graph

    def _rewrite_node(self, node: Node) -> Node:
        """Return a node that reads and writes the narrow values chosen before."""
        narrow_inputs = {x: self.narrow[x] for x in node.inputs if x in self.narrow}
        if node.op.name in _VIEWS and narrow_inputs:
            (x,), (y,) = node.inputs, node.outputs
            self.narrow[y] = _narrow(y)
            return Node(node.op, (narrow_inputs[x],), node.attrs, (self.narrow[y],))
        narrow_outputs = {
            y: _narrow(y) for y in node.outputs if self._is_stored_narrow(node, y)
        }
        self.narrow.update(narrow_outputs)
        if node.op is fused_p or narrow_outputs:
            return (
                _add_casts(node, narrow_inputs, narrow_outputs)
                if narrow_inputs or narrow_outputs
                else node
            )
        return node.with_inputs([narrow_inputs.get(x, x) for x in node.inputs])

    def _is_stored_narrow(self, node: Node, value: Value) -> bool:
        """Return whether to store an output of a node as bfloat16."""
        if not value.is_narrow or value.spec.nbytes < self.minimum_bytes:
            return False
        return self._can_write(node, value) and all(
            reader is not None and _can_read(reader, read)
            for reader, read in self._reads(value)
        )

    def _reads(self, value: Value) -> Iterator[tuple[Node | None, Value]]:
        """Yield each reader and the value or view that it reads; None: the caller."""
        if value in self.returned:
            yield None, value
        for node in self.readers[value]:
            if node.op.name in _VIEWS:
                yield from self._reads(node.outputs[0])
            else:
                yield node, value

    def _can_write(self, node: Node, value: Value) -> bool:
        """Return whether a node can round its output when it stores it."""
        product = _product(node)
        if product is None:
            return node.op is fused_p and _is_full_value(value, node)
        if product.op.name not in ANCHORS or not _is_full_value(value, node):
            return False
        # The gradient of weights sums over a batch, whose rows are matrix columns.
        return not any(x in self.transposed for x in product.inputs[:1])


def _narrow(value: Value) -> Value:
    return Value(value.spec.with_dtype(NARROW))


def _product(node: Node) -> Node | None:
    """Return the product that a node starts with, or None."""
    first = node.attrs["body"].nodes[0] if node.op is fused_p else node
    return first if first.op.name in PRODUCTS else None


def _is_full_value(value: Value, node: Node) -> bool:
    """Return whether a value is full in the iteration space of a node."""
    product = _product(node)
    if product is not None:
        return bool(value.spec.size == product.outputs[0].spec.size)
    return bool(value.spec.size == iteration_space_of(node.attrs["body"].nodes).size)


def _can_read(node: Node, value: Value) -> bool:
    """Return whether a node can widen a value on load, or rounds it anyway."""
    product = _product(node)
    if product is not None and any(x is value for x in product.inputs):
        return can_round_factors(product)
    if node.op is not fused_p or not _is_full_value(value, node):
        return False
    # Other nodes, for example a gather of row elements, read the array in memory.
    members = {
        member.op.kind for member in node.attrs["body"].nodes if member != product
    }
    return members <= {Kind.ELEMENTWISE, Kind.REDUCE, Kind.VIEW}


def _add_casts(
    node: Node, narrow_inputs: dict[Value, Value], narrow_outputs: dict[Value, Value]
) -> Node:
    """Return a fused node with casts, placed before all nodes except a product.

    A member that reads an output inside the node reads the rounded value, like other
    nodes. A later comparison of both values would otherwise fail.

    Args:
        node: the original node.
        narrow_inputs, narrow_outputs: the narrow replacements of its values.
    """
    members = list(node.attrs["body"].nodes if node.op is fused_p else (node,))
    read = {x for member in members for x in member.inputs}
    product = _product(node)
    nodes: list[Node] = []
    if product is not None:
        read = {x for member in members[1:] for x in member.inputs}
        factors = [narrow_inputs.get(x, x) for x in product.inputs]
        nodes.append(product.with_inputs(factors))
    nodes += [cast_node(narrow, x) for x, narrow in narrow_inputs.items() if x in read]
    rounded: dict[Value, Value] = {}
    for i, member in enumerate(members):
        if i or product is None:
            inputs = [rounded.get(x, x) for x in member.inputs]
            nodes.append(member.with_inputs(inputs))
        for y in filter(narrow_outputs.__contains__, member.outputs):
            nodes.append(cast_node(y, narrow_outputs[y]))
            if y in read:
                rounded[y] = Value(y.spec)
                nodes.append(cast_node(narrow_outputs[y], rounded[y]))
    body = Graph(
        tuple(narrow_inputs.get(x, x) for x in node.inputs),
        tuple(nodes),
        tuple(narrow_outputs.get(y, y) for y in node.outputs),
    )
    return fused_node(body, node.device)
