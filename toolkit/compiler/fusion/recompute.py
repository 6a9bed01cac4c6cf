"""Recomputation: values that few operations can compute again are not stored.

A value that one group of nodes computes and other groups read costs one write, and one
read for each reader. If the readers can compute it from values that are in memory
anyway, it is not stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolkit.ir import Graph, Kind, Node, Value
from toolkit.ir.extents import value_of

# Smaller values stay in the cache.
MIN_NBYTES = 1 << 17
# Limit of the cost that a reader may recompute, in additions; the second limit is for
# expensive operations.
MAX_COST, MAX_EXPENSIVE_COST = 60, 14
# Least cost of one expensive operation: exp costs more, a division less.
_EXPENSIVE_COST = 12
# Weights of a byte of traffic and space: to store a value; to prolong a lifetime.
STORED, PROLONGED = 2, 1

NodeGroup = list[Node]


def is_expensive(node: Node) -> bool:
    """Return whether an element of a node's result costs much more than an addition."""
    return bool(node.op.cost >= _EXPENSIVE_COST)


def recompute(
    graph: Graph,
    groups: Sequence[NodeGroup],
    is_body: Sequence[bool],
    fits: Callable[[NodeGroup], bool],
) -> list[NodeGroup]:
    """Copy cheap nodes into the groups that read their results.

    Args:
        graph: the graph of the nodes.
        groups: groups of nodes, in the order in which they run.
        is_body: whether each group becomes a fused node.
        fits: whether nodes can be one group.

    Returns:
        The groups, with copies of nodes before the nodes that read them.
    """
    readers = _GroupReaders(graph, groups, is_body, fits)
    for number, group in enumerate(readers.nodes):
        if readers.is_body[number]:
            _Recomputation(readers, number, group).apply()
    return readers.nodes


class _GroupReaders:
    """Groups of nodes, and the groups that read each value."""

    def __init__(
        self,
        graph: Graph,
        groups: Sequence[NodeGroup],
        is_body: Sequence[bool],
        fits: Callable[[NodeGroup], bool],
    ) -> None:
        self.nodes = [list(group) for group in groups]
        self.is_body = is_body
        self.fits = fits
        self.outputs = set(graph.outputs)
        self.inputs = set(graph.inputs)
        self.readers: defaultdict[Value, set[int]] = defaultdict(set)
        # values that must be in memory, whatever their readers do
        self.in_memory = set(self.outputs)
        for number, group in enumerate(groups):
            for node in group:
                for x in node.inputs:
                    self.readers[x].add(number)
                    if not is_body[number] or node.op.kind is Kind.CONTRACT:
                        self.in_memory.add(x)

    def other_readers(self, value: Any, number: int) -> set[int]:
        """Return the other groups that read a value."""
        return self.readers[value] - {number}

    def last_reader(self, value: Any) -> int:
        """Return the last reader of a value; inputs and outputs live to the end."""
        if value in self.outputs or value in self.inputs:
            return len(self.nodes)
        return max(self.readers[value], default=-1)

    def replace(
        self, number: int, copies: NodeGroup, values: dict[Value, Value]
    ) -> None:
        """Add copies to a group and make it read their results."""
        nodes = [
            node.with_inputs([values.get(x, x) for x in node.inputs])
            for node in self.nodes[number]
        ]
        self.nodes[number] = [*copies, *nodes]
        for value in values:
            self.readers[value].discard(number)
        for node in self.nodes[number]:
            for x in node.inputs:
                self.readers[x].add(number)


class _Recomputation:
    """Values of one group that its readers can recompute at lower cost."""

    def __init__(self, readers: _GroupReaders, number: int, nodes: NodeGroup) -> None:
        self.groups = readers
        self.number = number
        self.makers = {y: node for node in nodes for y in node.outputs}
        self.order = {node: i for i, node in enumerate(nodes)}
        self.candidates = dict.fromkeys(
            y
            for node in nodes
            if node.op.kind is Kind.ELEMENTWISE
            for y in node.outputs
            if self._is_candidate(y)
        )

    def _is_candidate(self, value: Any) -> bool:
        if value_of(value.spec.nbytes) < MIN_NBYTES or value in self.groups.in_memory:
            return False
        return bool(self.groups.other_readers(value, self.number))

    def apply(self) -> None:
        """Copy the nodes of the selected values into the groups that read them."""
        self._drop_rejected()
        if not self._saves(self.candidates):
            self.candidates = dict.fromkeys(
                filter(self._saves_alone, list(self.candidates))
            )
            self._drop_rejected()
        for reader, values in self._by_reader(self.candidates).items():
            copies, replacements = self._copies(values)
            self.groups.replace(reader, copies, replacements)

    def _by_reader(self, values: Iterable[Any]) -> dict[int, list[Any]]:
        """Return the values that each other group reads."""
        by_reader: defaultdict[int, list[Any]] = defaultdict(list)
        for value in values:
            for reader in self.groups.other_readers(value, self.number):
                by_reader[reader].append(value)
        return by_reader

    def _closure(self, values: Iterable[Value]) -> tuple[NodeGroup, list[Value]]:
        """Return the nodes that compute values from memory, and their operands."""
        nodes: set[Node] = set()
        leaves: dict[Value, None] = {}
        stack = list(values)
        needed = set(stack)
        size = max((value.spec.size for value in stack), default=0)
        while stack:
            value = stack.pop()
            node = self.makers.get(value)
            if value in needed or self._is_inner(value, node, size):
                assert node is not None
                if node not in nodes:
                    nodes.add(node)
                    stack += node.inputs
            elif value.constant is None:
                leaves[value] = None
        return sorted(nodes, key=lambda n: self.order[n]), list(leaves)

    def _is_inner(self, value: Any, node: Node | None, size: int) -> bool:
        """Return whether a value must be recomputed for the selected values."""
        if node is None or value.spec.size != size:
            return False
        if node.op.kind not in (Kind.ELEMENTWISE, Kind.VIEW):
            return False
        return value in self.candidates or not self._is_stored(value)

    def _is_stored(self, value: Any) -> bool:
        """Return whether a value is currently stored in memory."""
        if value not in self.makers or value in self.groups.in_memory:
            return True
        return bool(self.groups.other_readers(value, self.number))

    def _drop_rejected(self) -> None:
        refused = True
        while refused:
            refused = False
            for reader, values in self._by_reader(self.candidates).items():
                copies, _ = self._closure(values)
                cost = sum(MAX_EXPENSIVE_COST if is_expensive(n) else 1 for n in copies)
                ends = set(copies)
                nodes = [n for n in self.groups.nodes[reader] if n not in ends]
                if cost > MAX_COST or not self.groups.fits([*copies, *nodes]):
                    for value in values:
                        del self.candidates[value]
                    refused = True
                    break

    def _saves(self, values: Iterable[Any]) -> bool:
        """Return whether recomputation of values costs less than their storage."""
        values = list(values)
        cost, stored = 0, set()
        for reader, needed in self._by_reader(values).items():
            _, leaves = self._closure(needed)
            for leaf in leaves:
                size = leaf.spec.nbytes
                if reader not in self.groups.readers[leaf]:
                    cost += size
                if leaf in stored:
                    continue
                stored.add(leaf)
                if not self._is_stored(leaf):
                    cost += STORED * size
                elif self.groups.last_reader(leaf) < reader:
                    cost += PROLONGED * size
        spared = sum(
            v.spec.nbytes * (STORED + len(self.groups.other_readers(v, self.number)))
            for v in values
        )
        return bool(cost < spared)

    def _saves_alone(self, value: Any) -> bool:
        saved, self.candidates = self.candidates, {value: None}
        saves = self._saves([value])
        self.candidates = saved
        return saves

    def _copies(self, values: Sequence[Value]) -> tuple[NodeGroup, dict[Value, Value]]:
        """Return copies of the nodes of values, and a map from old to new values."""
        nodes, _ = self._closure(values)
        replacements: dict[Value, Value] = {}
        copies = []
        for node in nodes:
            inputs = [replacements.get(x, x) for x in node.inputs]
            outputs = [Value(y.spec) for y in node.outputs]
            replacements.update(zip(node.outputs, outputs, strict=True))
            copies.append(Node(node.op, inputs, node.attrs, outputs))
        return copies, replacements
