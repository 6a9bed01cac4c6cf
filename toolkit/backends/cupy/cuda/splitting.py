"""Bodies that need too many registers, split into several that do not.

The work of an output stays together: a part is the work of some outputs, so that few
values are in memory between parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit import dtypes
from toolkit.ir import Graph, Node, Value
from toolkit.plans.loops.iteration_space import (
    can_share_loop,
    classify_reduction,
    is_reduction,
    is_reshape_like,
)
from toolkit.plans.operands import Operand

# Arrays that a kernel reads and writes; each takes up to 16 bytes of a thread's
# registers.
MAX_ARRAYS = 24
# Registers of a thread for computed values of an element that later steps read.
MAX_LIVE_REGISTERS = 48
# From this many columns on, the row sums of the threads do not fit in registers
# together with the elements of the row; see `division.MAX_ROW_REGISTERS`.
LONG_ROW = 1 << 14

NodeGroup = list[Node]


def split_body(body: Graph, inputs: Sequence[Operand]) -> list[Graph]:
    """Return the bodies of the kernels that compute a body, in order.

    They can read a value that is in memory under other labels, see `strip_labels`.
    """
    if fits_in_registers(body) and not _sums_long_rows(body.nodes):
        return [body]
    splitter = _BodySplitter(body, inputs)
    groups: list[NodeGroup] = [[]]
    for cone in splitter.cones():
        is_valid = splitter.can_be_one_kernel(cone)
        for nodes in [cone] if is_valid else [[node] for node in cone]:
            if groups[-1] and not splitter.can_be_one_kernel([*groups[-1], *nodes]):
                groups.append([])
            groups[-1] += nodes
    return [splitter.graph(group) for group in groups]


def fits_in_registers(graph: Graph) -> bool:
    """Return whether a thread has enough registers for a body."""
    arrays = [x for x in (*graph.inputs, *graph.outputs) if x.spec.size > 1]
    return (
        len(arrays) <= MAX_ARRAYS
        and _max_live_registers(graph.nodes) <= MAX_LIVE_REGISTERS
    )


def _max_live_registers(nodes: Sequence[Node]) -> int:
    """Return the maximum number of live registers at any step."""
    last = {x: i for i, node in enumerate(nodes) for x in node.inputs}
    live: dict[Value, int] = {}
    maximum = 0
    for i, node in enumerate(nodes):
        live |= {
            y: 1 + (dtypes.itemsize(y.spec.dtype) > 4)
            for y in node.outputs
            if y in last
        }
        maximum = max(maximum, sum(live.values()))
        live = {value: words for value, words in live.items() if last[value] > i}
    return maximum


def _sums_long_rows(nodes: Sequence[Node]) -> bool:
    """Return whether a body sums over long rows and also reduces along them.

    Its threads cannot hold a sum for each column, and vector reads do not fit in
    registers too. A second read of the row values is cheaper. Half-precision values are
    then summed as stored in memory, after rounding.
    """
    reduced_axes = {classify_reduction(n) for n in nodes if is_reduction(n)}
    columns = (x.spec.shape[-1] for n in nodes for x in n.inputs if x.spec.ndim)
    return {"leading", "trailing"} <= reduced_axes and max(
        columns, default=0
    ) > LONG_ROW


def strip_labels(makers: Mapping[Value, Node], value: Any) -> Any:
    """Return the value with the same elements and order, without relabelling."""
    maker = makers.get(value)
    while maker is not None and is_reshape_like(maker):
        value = maker.inputs[0]
        maker = makers.get(value)
    return value


class _BodySplitter:
    """A body and the parts of it that become separate bodies."""

    def __init__(self, body: Graph, inputs: Sequence[Operand]) -> None:
        self.body = body
        self.makers = body.producers()
        self.body_inputs = set(body.inputs)
        self.returned = set(body.outputs)
        # These have other labels only if a kernel assigns them.
        self.scattered = {
            x
            for x, operand in zip(body.inputs, inputs, strict=True)
            if not operand.is_contiguous
        }
        # The readers of each value, under any labels.
        self.readers: dict[Value, list[Node]] = {}
        for node in body.nodes:
            for x in node.inputs:
                root = strip_labels(self.makers, x)
                self.readers.setdefault(root, []).append(node)

    def cones(self) -> list[NodeGroup]:
        """Return, for each output, its nodes that no earlier output needs.

        Nodes that only relabel are excluded.
        """
        cones: list[NodeGroup] = []
        visited: set[Node] = set()
        for output in self.body.outputs:
            cone: NodeGroup = []
            stack = [(self.makers.get(output), False)]
            while stack:
                node, is_ready = stack.pop()
                if node is None:
                    continue
                if is_ready:
                    cone.append(node)
                elif node not in visited:
                    visited.add(node)
                    stack.append((node, True))
                    makers = [self.makers.get(x) for x in node.inputs]
                    stack += [(maker, False) for maker in reversed(makers)]
            cones.append([node for node in cone if self._counts(node)])
        return [cone for cone in cones if cone]

    def _counts(self, node: Node) -> bool:
        return not is_reshape_like(node) or node.outputs[0] in self.returned

    def can_be_one_kernel(self, nodes: NodeGroup) -> bool:
        """Return whether nodes can be a part."""
        graph = self.graph(nodes)
        is_one = fits_in_registers(graph) and not _sums_long_rows(nodes)
        return is_one and can_share_loop(graph.nodes)

    def graph(self, group: NodeGroup) -> Graph:
        """Return a part as a graph, with its inputs and externally read outputs."""
        members = set(group)
        nodes = self._with_labels(group)
        produced = {y for node in nodes for y in node.outputs}
        inputs = dict.fromkeys(
            x
            for node in nodes
            for x in node.inputs
            if x not in produced and (x in self.body_inputs or x in self.makers)
        )
        outputs = [
            y
            for node in group
            for y in node.outputs
            if y in self.returned or any(n not in members for n in self._readers(y))
        ]
        return Graph(tuple(inputs), tuple(nodes), tuple(outputs))

    def _readers(self, value: Any) -> list[Node]:
        """Return the nodes that compute something from a value."""
        return [n for n in self.readers.get(value, ()) if self._counts(n)]

    def _with_labels(self, group: NodeGroup) -> NodeGroup:
        """Add the nodes that relabel values in no memory under other labels."""
        produced = {y for node in group for y in node.outputs}
        nodes: NodeGroup = []
        visited: set[Node] = set()

        def visit(node: Node) -> None:
            if node in visited:
                return
            visited.add(node)
            for x in node.inputs:
                maker, root = self.makers.get(x), strip_labels(self.makers, x)
                is_here = root in produced or root in self.scattered
                if maker is not None and is_reshape_like(maker):
                    if is_here or root.constant is not None:
                        visit(maker)
            nodes.append(node)

        for node in group:
            visit(node)
        return nodes
