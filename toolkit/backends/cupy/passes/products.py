"""Pass that joins products with activations and gradients of the same library call.

y = relu(a @ b + bias)      also returns a mask, a bit for each element above 0
w = where(y > 0, g, 0)      is part of the product g, by the mask
s = sum of w over rows      is part of that too: the gradient of the bias
y = gelu(a @ b + bias)      also returns the argument of gelu
w = gelu_grad(g, z)         is part of the product g, by that argument
a @ g, sum of g over rows   are one: the gradients of weights and of their bias
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from toolkit.backends.cupy.passes.scales import scale_products
from toolkit.backends.library_calls import LibraryCallLimits
from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Primitive, Spec, Value
from toolkit.plans.layout import Layouts
from toolkit.plans.loops.iteration_space import (
    classify_reduction,
    is_reshape_like,
    uniform_value,
)
from toolkit.plans.operands import Operand, contiguous

# Composites that exist only as parts of products.
PARTS = ("gelu", "gelu_grad")
# The rows of a mask are multiples of this number of bits.
MASK_BITS = 128


def _spec(*inputs: Spec, epilogue: str, dtype: str) -> Any:
    """Return the specs of the result and of the auxiliary result.

    The auxiliary result is the mask, the argument of gelu, or the row sums.
    """
    a, b = inputs[:2]
    y = Spec((*a.shape[:-1], b.shape[-1]), dtype)
    if "bgrad" in epilogue:
        return y, y.with_shape(y.shape[-1:])
    if "aux" not in epilogue:
        return y
    return y, (_mask(y) if "relu" in epilogue else y)


def _mask(y: Spec) -> Spec:
    """Return the spec of a mask: the bits of a result's rows, as bytes."""
    units = -(-y.shape[-1] // MASK_BITS)
    return Spec((y.size // y.shape[-1], units * MASK_BITS // 8), "uint8")


# Not in the registry: only the compiler adds it to a graph.
product_p: Primitive = Primitive("product", Kind.CONTRACT, _spec)


def join_products(graph: Graph, target: Target) -> Graph:
    """Join products with the nodes that a library computes in the same call."""
    limits = target.backend.generator.library_calls
    if limits is None:
        return graph
    graph = scale_products(graph)
    joining = _ProductJoiner(graph, limits, target.inputs)
    for node in graph.nodes:
        rule = _RULES.get(node.op.name)
        if rule is not None and node not in joining.replacements:
            rule(joining, node)
    return graph.replace(joining.nodes()).pruned()


class _ProductJoiner:
    """Graph and the replacements of its nodes."""

    def __init__(
        self, graph: Graph, calls: LibraryCallLimits, inputs: Sequence[Operand] | None
    ) -> None:
        self.graph = graph
        self.calls = calls
        self.layouts = Layouts(graph, inputs)
        self.makers = graph.producers()
        self.position = {node: i for i, node in enumerate(graph.nodes)}
        self.readers: defaultdict[Value, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for value in set(node.inputs):
                self.readers[value].append(node)
        self.outputs = set(graph.outputs)
        self.replacements: dict[Node, list[Node]] = {}
        # The mask that the gradient of each relu reads, by the result of the relu.
        self.masks: dict[Value, Value] = {}

    def nodes(self) -> list[Node]:
        """Return the current nodes in topological order."""
        unsorted = [m for n in self.graph.nodes for m in self.replacements.get(n, [n])]
        makers = {y: node for node in unsorted for y in node.outputs}
        visited: dict[Node, None] = {}
        stack = unsorted[::-1]
        while stack:
            node = stack[-1]
            sources = [makers[x] for x in node.inputs if x in makers]
            pending = [source for source in sources if source not in visited]
            stack += pending
            if not pending:
                visited.setdefault(stack.pop())
        return list(visited)

    # --- patterns ---------------------------------------------------------------------

    def join_relu(self, node: Node) -> None:
        """Join where(y > 0, g, 0) with the product g, if y is a product too."""
        condition, g, other = node.inputs
        test = self.makers.get(condition)
        if test is None or test.op.name != "less" or not _is_zero(other):
            return
        limit, y = test.inputs
        if not _is_zero(limit) or y.spec != node.outputs[0].spec:
            return
        forward, mask = self._add_mask(y)
        chain = self._chain(g)
        if (
            mask is None
            or chain is None
            or mask.spec != _mask(chain[0].outputs[0].spec)
        ):
            return
        backward = self._gradient([*chain, node], "drelu", mask)
        if backward is not None:
            self.masks[y] = mask
            self.replacements |= forward | backward

    def _add_mask(self, y: Any) -> tuple[dict[Node, list[Node]], Any]:
        """Return the replacement that adds a mask to relu(a @ b + bias), and the mask.

        The replacement is empty if the mask already exists.
        """
        if y in self.masks:
            return {}, self.masks[y]
        end = self.makers.get(y)
        if end is None or end.op.name != "maximum" or not _is_zero(end.inputs[1]):
            return {}, None
        chain = self._chain(end.inputs[0], additions=1)
        if chain is None:
            return {}, None
        mask = Value(_mask(chain[0].outputs[0].spec))
        replacement = self._make_product([*chain, end], "relu_aux", [mask])
        return ({}, None) if replacement is None else (replacement, mask)

    def join_gelu(self, node: Node) -> None:
        """Join gelu(a @ b + bias) with its product.

        The product also returns the argument of gelu, if that has other readers.
        """
        (z,) = node.inputs
        is_shared = len(self.readers[z]) > 1 or z in self.outputs
        chain = self._chain(z, additions=1, is_shared=is_shared)
        if chain is not None:
            name, auxiliary = ("gelu_aux", [z]) if is_shared else ("gelu", [])
            self.replacements |= (
                self._make_product([*chain, node], name, auxiliary) or {}
            )

    def join_gelu_grad(self, node: Node) -> None:
        """Join gelu_grad(g, z) with the product g."""
        g, z = node.inputs
        chain = self._chain(g)
        if chain is not None and z.spec.size == chain[0].outputs[0].spec.size:
            self.replacements |= self._gradient([*chain, node], "dgelu", z) or {}

    def join_sum(self, node: Node) -> None:
        """Join a product with the sum over the rows of its second factor.

        This applies only if a library produced the factor: a generated kernel that
        produces it also computes its row sums.
        """
        a, b = (self.layouts[x].root for x in node.inputs)
        factor = self.layouts.operand(node.inputs[1])
        if not factor.is_contiguous or factor.spec.size != b.spec.size:
            return  # its rows are different from the rows of the produced value
        maker = self.makers.get(b)
        light = (Kind.ELEMENTWISE, Kind.REDUCE)
        if maker is None or maker.op.kind in light or maker.op.name in PARTS:
            return
        total = self._sum_of_rows(b, node.outputs[0].spec.shape[-1])
        if total is None or self._producer_index(a) >= self.position[total]:
            return
        nodes, sums = [node], [total]
        wide, wide_sums = self._float32_cast(node), self._float32_cast(total)
        if wide and wide_sums:
            nodes, sums = nodes + wide, sums + wide_sums
        replacement = self._make_product(nodes, "bgrad", [sums[-1].outputs[0]])
        if replacement is not None:
            self.replacements |= replacement | {n: [] for n in sums}

    # --- parts of patterns ------------------------------------------------------------

    def _chain(
        self, value: Any, additions: int = 0, is_shared: bool = False
    ) -> list[Node] | None:
        """Return the nodes of a product and its epilogue, without other readers.

        Args:
            value: the last of the results.
            additions: the maximum number of additions.
            is_shared: whether `value` itself can have other readers.
        """
        nodes: list[Node] = []
        while True:
            node = self.makers.get(value)
            has_readers = len(self.readers[value]) != 1 or value in self.outputs
            if (
                node is None
                or node in self.replacements
                or (has_readers and not is_shared)
            ):
                return None
            is_shared = False
            nodes.insert(0, node)
            if node.op.name == "matmul":
                return nodes if self._adds_a_bias(nodes) else None
            if node.op.name == "add" and additions:
                additions -= 1
            elif not is_reshape_like(node):
                return None
            full_size = [x for x in node.inputs if x.spec.size == value.spec.size]
            if not full_size:
                return None
            value = full_size[0]

    def _adds_a_bias(self, nodes: list[Node]) -> bool:
        """Return whether the addition to a product, if any, is equal for all rows."""
        columns = nodes[0].outputs[0].spec.shape[-1]
        produced = {y for node in nodes for y in node.outputs}
        added = [x for n in nodes[1:] for x in n.inputs if x not in produced]
        return all(
            x.spec.size == columns for x in added
        ) and self.calls.can_take_epilogue(nodes)

    def _producer_index(self, value: Any) -> int:
        """Return the index of the node that produces a value."""
        maker = self.makers.get(value)
        return -1 if maker is None else self.position[maker]

    def _sum_of_rows(self, value: Any, columns: int) -> Node | None:
        """Return the sum over all except the last axes, of `columns` elements."""
        for reader in self.readers[value]:
            if reader in self.replacements:
                continue
            if reader.op.name == "sum" and classify_reduction(reader) == "leading":
                if reader.outputs[0].spec.size == columns:
                    return reader
            elif is_reshape_like(reader):
                reader_sum = self._sum_of_rows(reader.outputs[0], columns)
                if reader_sum is not None:
                    return reader_sum
        return None

    def _float32_cast(self, node: Node) -> list[Node]:
        """Return the only reader of a result if it casts to float32, else nothing."""
        nodes: list[Node] = []
        value = node.outputs[0]
        while value not in self.outputs and len(self.readers[value]) == 1:
            (reader,) = self.readers[value]
            nodes.append(reader)
            value = reader.outputs[0]
            if reader.op.name == "cast":
                return nodes if value.spec.dtype == "float32" else []
            if not is_reshape_like(reader):
                break
        return []

    # --- replacements -----------------------------------------------------------------

    def _gradient(
        self, nodes: list[Node], name: str, auxiliary: Any
    ) -> dict[Node, list[Node]] | None:
        """Return the replacement of an activation's gradient and its bias gradient."""
        columns = nodes[0].outputs[0].spec.shape[-1]
        total = self._sum_of_rows(nodes[-1].outputs[0], columns)
        if total is not None:
            sums = [total.outputs[0]]
            replacement = self._make_product(nodes, f"{name}_bgrad", sums, [auxiliary])
            if replacement is not None:
                return replacement | {total: []}
        return self._make_product(nodes, name, [], [auxiliary])

    def _make_product(
        self,
        nodes: list[Node],
        epilogue: str,
        auxiliary: Sequence[Any],
        read: Sequence[Any] = (),
    ) -> dict[Node, list[Node]] | None:
        """Return a product node as the replacement of nodes; None if unsupported.

        Args:
            nodes: the plain product first; the last one produces the result.
            epilogue: its name in the library, without the bias.
            auxiliary: the values that it returns in addition to the result.
            read: the values that it reads in addition to the factors and a bias.
        """
        produced = {y for node in nodes for y in node.outputs}
        bias = [
            x
            for n in nodes
            if n.op.name == "add"
            for x in n.inputs
            if x not in produced
        ]
        name = f"{epilogue}_bias" if bias else epilogue
        inputs = [*nodes[0].inputs, *bias, *read]
        values = [nodes[-1].outputs[0], *auxiliary]
        attrs = {"epilogue": name, "dtype": values[0].spec.dtype}
        reader_sum = product_p.spec(*(x.spec for x in inputs), **attrs)
        specs = reader_sum if isinstance(reader_sum, tuple) else (reader_sum,)
        outputs, views = [], []
        for value, spec in zip(values, specs, strict=True):
            if value.spec.dtype != spec.dtype or value.spec.size != spec.size:
                return None
            outputs.append(value if value.spec == spec else Value(spec))
            if outputs[-1] is not value:
                shape = {"shape": value.spec.shape}
                views.append(Node(PRIMITIVES["reshape"], [outputs[-1]], shape, [value]))
        product = Node(product_p, inputs, attrs, outputs)
        operands = [self.layouts.operand(x) for x in inputs]
        results = [contiguous(spec) for spec in specs]
        is_aligned = all(self.layouts[x].offset % 16 == 0 for x in inputs)
        if not self.calls.can_lower(product, operands, results, is_aligned):
            return None
        return {n: [] for n in nodes} | {nodes[-1]: [product, *views]}


_RULES = {
    "where": _ProductJoiner.join_relu,
    "gelu": _ProductJoiner.join_gelu,
    "gelu_grad": _ProductJoiner.join_gelu_grad,
    "matmul": _ProductJoiner.join_sum,
}


def _is_zero(value: Any) -> bool:
    number = uniform_value(value)
    return number is not None and bool(number == 0)
