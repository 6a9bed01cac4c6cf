"""Bodies that would need too many registers, as several that do not.

What an output is made of stays together: a part is the work of some outputs, so that
few values go through memory between parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit import dtypes
from toolkit.backends.base import Operand
from toolkit.backends.loops.iteration_space import (
    fits,
    is_reduction,
    is_relabelling,
    reduced_part,
)
from toolkit.ir import Graph, Node, Value

# Arrays that a kernel reads and writes: each takes up to 16 bytes of a thread's
# registers.
MOST_ARRAYS = 24
# Registers of a thread for what was computed of an element and is needed later.
MOST_LIVE = 48
# From so many columns on the sums of a row's threads become too many to hold, beside
# what they hold of the row: see `division.MOST_HELD`.
LONG = 1 << 14

Part = list[Node]


def parts_of(body: Graph, inputs: Sequence[Operand]) -> list[Graph]:
    """The bodies of the kernels that compute a body, in order; often itself alone.

    They may read a value that is in memory by other labels, see `unlabelled`.
    """
    if is_light(body) and not _sums_long_rows(body.nodes):
        return [body]
    found = _Parts(body, inputs)
    parts: list[Part] = [[]]
    for cone in found.cones():
        whole = found.may_be_one(cone)
        for nodes in [cone] if whole else [[node] for node in cone]:
            if parts[-1] and not found.may_be_one([*parts[-1], *nodes]):
                parts.append([])
            parts[-1] += nodes
    return [found.graph(part) for part in parts]


def is_light(graph: Graph) -> bool:
    """Whether a thread has registers enough for a body."""
    arrays = [x for x in (*graph.inputs, *graph.outputs) if x.spec.size > 1]
    return len(arrays) <= MOST_ARRAYS and _most_live(graph.nodes) <= MOST_LIVE


def _most_live(nodes: Sequence[Node]) -> int:
    """The most registers of values that were computed and are read later."""
    last = {x: i for i, node in enumerate(nodes) for x in node.inputs}
    live: dict[Value, int] = {}
    most = 0
    for i, node in enumerate(nodes):
        live |= {
            y: 1 + (dtypes.itemsize(y.spec.dtype) > 4)
            for y in node.outputs
            if y in last
        }
        most = max(most, sum(live.values()))
        live = {value: words for value, words in live.items() if last[value] > i}
    return most


def _sums_long_rows(nodes: Sequence[Node]) -> bool:
    """Whether long rows are summed up where something reduces along them too.

    Their threads cannot hold a sum for each column, nor read rows by wide accesses
    meanwhile: to read once more what was made of them costs less. What is made in half
    precision is then summed up as it is in memory, rounded.
    """
    parts = {reduced_part(n) for n in nodes if is_reduction(n)}
    columns = (x.spec.shape[-1] for n in nodes for x in n.inputs if x.spec.ndim)
    return {"leading", "trailing"} <= parts and max(columns, default=0) > LONG


def unlabelled(makers: Mapping[Value, Node], value: Any) -> Any:
    """The value that one has the elements of, in the same order."""
    maker = makers.get(value)
    while maker is not None and is_relabelling(maker):
        value = maker.inputs[0]
        maker = makers.get(value)
    return value


class _Parts:
    """A body, and parts of it as bodies of their own."""

    def __init__(self, body: Graph, inputs: Sequence[Operand]) -> None:
        self.body = body
        self.makers = body.producers()
        self.given = set(body.inputs)
        self.returned = set(body.outputs)
        # These have other labels only if a kernel gives them those.
        self.scattered = {
            x
            for x, operand in zip(body.inputs, inputs, strict=True)
            if not operand.is_contiguous
        }
        # What reads each value, by whatever labels.
        self.readers: dict[Value, list[Node]] = {}
        for node in body.nodes:
            for x in node.inputs:
                root = unlabelled(self.makers, x)
                self.readers.setdefault(root, []).append(node)

    def cones(self) -> list[Part]:
        """For each output, the nodes that it takes beside those of outputs before it.

        What only gives labels is left out.
        """
        cones: list[Part] = []
        seen: set[Node] = set()
        for output in self.body.outputs:
            cone: Part = []
            stack = [(self.makers.get(output), False)]
            while stack:
                node, is_ready = stack.pop()
                if node is None:
                    continue
                if is_ready:
                    cone.append(node)
                elif node not in seen:
                    seen.add(node)
                    stack.append((node, True))
                    makers = [self.makers.get(x) for x in node.inputs]
                    stack += [(maker, False) for maker in reversed(makers)]
            cones.append([node for node in cone if self._counts(node)])
        return [cone for cone in cones if cone]

    def _counts(self, node: Node) -> bool:
        return not is_relabelling(node) or node.outputs[0] in self.returned

    def may_be_one(self, nodes: Part) -> bool:
        """Whether nodes can be a part."""
        graph = self.graph(nodes)
        is_one = is_light(graph) and not _sums_long_rows(nodes)
        return is_one and fits(graph.nodes)

    def graph(self, part: Part) -> Graph:
        """A part with the values that it reads, and those that others read of it."""
        own = set(part)
        nodes = self._with_labels(part)
        made = {y for node in nodes for y in node.outputs}
        inputs = dict.fromkeys(
            x
            for node in nodes
            for x in node.inputs
            if x not in made and (x in self.given or x in self.makers)
        )
        outputs = [
            y
            for node in part
            for y in node.outputs
            if y in self.returned or any(n not in own for n in self._readers(y))
        ]
        return Graph(tuple(inputs), tuple(nodes), tuple(outputs))

    def _readers(self, value: Any) -> list[Node]:
        """The nodes that compute something from a value."""
        return [n for n in self.readers.get(value, ()) if self._counts(n)]

    def _with_labels(self, part: Part) -> Part:
        """A part with the nodes that give labels to what is in no memory by others."""
        made = {y for node in part for y in node.outputs}
        nodes: Part = []
        seen: set[Node] = set()

        def visit(node: Node) -> None:
            if node in seen:
                return
            seen.add(node)
            for x in node.inputs:
                maker, root = self.makers.get(x), unlabelled(self.makers, x)
                is_here = root in made or root in self.scattered
                if maker is not None and is_relabelling(maker):
                    if is_here or root.constant is not None:
                        visit(maker)
            nodes.append(node)

        for node in part:
            visit(node)
        return nodes
