"""What is stored as bfloat16 between kernels: operands of products that round them.

Inside a graph all is computed in float32, see `precision`. But where a product rounds
what a kernel has written, and where a convolution of rounded factors is what is
written, half the bytes of memory do: kernels narrow what they store, and widen what
they load. Small values are left alone, which stay in a cache.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod

from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.precision import NARROW, PRODUCTS, WIDE, cast_node
from toolkit.backends.target import Target, rules
from toolkit.ir import Graph, Kind, Node, Value, fused_node, fused_p

# What is elements in memory, read in another way.
_VIEWS = ("reshape", "transpose", "slice")
_CONVOLUTIONS = ("conv", "conv_input_grad")


def store_narrow(graph: Graph, target: Target) -> Graph:
    """Store as bfloat16 what products round, and what such convolutions give.

    Args:
        graph: whose nodes are fused, and in order.
        target: what it is compiled for.
    """
    processor = current()
    if not processor.has_tiles or rules.rows_independent:
        return graph
    return _Storing(graph, processor.cache_bytes).stored()


class _Storing:
    """Chooses the values, and changes the nodes around them."""

    def __init__(self, graph: Graph, least: int) -> None:
        self.graph, self.least = graph, least
        self.returned: set[Value] = set(graph.outputs)
        self.readers: defaultdict[Value, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers[value].append(node)
        self.narrow: dict[Value, Value] = {}

    def stored(self) -> Graph:
        """The graph with narrow values."""
        nodes = [self._changed(node) for node in self.graph.nodes]
        return self.graph.replace(nodes) if self.narrow else self.graph

    def _changed(self, node: Node) -> Node:
        """A node that reads and writes narrow values, now that those before it do."""
        given = {x: self.narrow[x] for x in node.inputs if x in self.narrow}
        if node.op.name in _VIEWS and given:
            (x,), (y,) = node.inputs, node.outputs
            self.narrow[y] = _narrow_value(y)
            return Node(node.op, (given[x],), node.attrs, (self.narrow[y],))
        made = {
            y: _narrow_value(y)
            for y in node.outputs
            if _may_write(node) and self._is_chosen(node, y)
        }
        self.narrow.update(made)
        if not given and not made:
            return node
        if node.op is fused_p or made:
            return _fused(node, given, made)
        return node.with_inputs([given.get(x, x) for x in node.inputs])

    def _is_chosen(self, node: Node, value: Value) -> bool:
        spec = value.spec
        if spec.dtype != WIDE or spec.nbytes < self.least:
            return False
        if not self._is_read_narrow(value):
            return False
        anchor = _anchor(node)
        is_image = anchor is not None and anchor.op.name in _CONVOLUTIONS
        return (is_image and _rounds(anchor)) or self._is_rounded(value)

    def _is_read_narrow(self, value: Value) -> bool:
        """Whether all that reads a value can widen it."""
        readers = self.readers[value]
        if value in self.returned or not readers:
            return False
        return all(
            self._is_read_narrow(node.outputs[0])
            if node.op.name in _VIEWS
            else _may_read(node, value)
            for node in readers
        )

    def _is_rounded(self, value: Value) -> bool:
        """Whether a product rounds a value."""
        for node in self.readers[value]:
            if node.op.name in _VIEWS:
                if self._is_rounded(node.outputs[0]):
                    return True
            else:
                anchor = _anchor(node)
                if _is_factor(value, anchor) and _rounds(anchor):
                    return True
        return False


def _narrow_value(value: Value) -> Value:
    return Value(value.spec.with_dtype(NARROW))


def _anchor(node: Node) -> Node | None:
    """The product of a node, if there is one."""
    first = node.attrs["body"].nodes[0] if node.op is fused_p else node
    return first if first.op.name in PRODUCTS else None


def _is_factor(value: Value, product: Node | None) -> bool:
    return product is not None and any(x is value for x in product.inputs)


def _rounds(product: Node | None) -> bool:
    """Whether a product rounds its factors, and is none of a batch of matrices."""
    if product is None or product.attrs.get("factors") != NARROW:
        return False
    if product.op.name == "matmul":
        return bool(prod(product.inputs[1].spec.shape[:-2]) == 1)
    return bool(product.attrs["groups"] == 1)


def _may_write(node: Node) -> bool:
    """Whether a node can narrow what it stores."""
    return node.op is fused_p or node.op.name in ("matmul", *_CONVOLUTIONS)


def _may_read(node: Node, value: Value) -> bool:
    """Whether a node can widen what it loads, or round it no more."""
    anchor = _anchor(node)
    if _is_factor(value, anchor):
        return _rounds(anchor)
    if node.op is not fused_p:
        return False
    # Of rows whose elements are picked by their indices some are read in place.
    kinds = {member.op.kind for member in node.attrs["body"].nodes if member != anchor}
    return kinds <= {Kind.ELEMENTWISE, Kind.REDUCE, Kind.VIEW}


def _fused(node: Node, given: dict[Value, Value], made: dict[Value, Value]) -> Node:
    """A node with casts around it: in front of all but products, and behind it."""
    anchor = _anchor(node)
    is_body = node.op is fused_p
    members = list(node.attrs["body"].nodes if is_body else (node,))
    first: list[Node] = []
    if anchor is not None:
        factors = [given.get(x, x) for x in anchor.inputs]
        first, members = [anchor.with_inputs(factors)], members[1:]
    read = {x for member in members for x in member.inputs}
    before = [cast_node(narrow, x) for x, narrow in given.items() if x in read]
    after = [cast_node(y, narrow) for y, narrow in made.items()]
    graph = Graph(
        tuple(given.get(x, x) for x in node.inputs),
        (*first, *before, *members, *after),
        tuple(made.get(y, y) for y in node.outputs),
    )
    return fused_node(graph, node.device)
