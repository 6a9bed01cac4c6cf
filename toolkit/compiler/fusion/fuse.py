"""Fusion: nodes over the same elements become one node, one pass over memory.

A fused node holds its members as a graph; values between members are not stored in
memory. Elementwise nodes are fused with other elementwise nodes, with reductions of
their results, and with readers of those reductions that work row by row. Nodes after a
convolution or a matrix product become its epilogue.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from typing import Any

from toolkit.backends.library_calls import LibraryCallLimits
from toolkit.backends.target import Target
from toolkit.compiler.frozen_values import constant_subexpressions
from toolkit.compiler.fusion.groups import Group, Groups
from toolkit.compiler.fusion.recompute import recompute
from toolkit.ir import Graph, Kind, Node, Value, fused_node, needed_nodes
from toolkit.plans.layout import Layouts
from toolkit.plans.loops.iteration_space import (
    can_be_epilogue,
    can_share_loop,
    iteration_space_of,
    uniform_value,
)

# A body with more nodes is not fused further: its loop would need too many registers.
MAX_NODES = 160
# A group is not tried again after this number of failed attempts to fuse with it.
MAX_FAILURES = 64


def fuse(graph: Graph, target: Target) -> Graph:
    """Fuse nodes into fused nodes, as large as the backend permits."""
    generator = target.backend.generator
    cached = constant_subexpressions(graph, target)
    return join_nodes(
        graph, generator.can_fuse, generator.anchors, generator.library_calls, cached
    )


def join_nodes(
    graph: Graph,
    fusable: Callable[[Node], bool],
    anchors: Collection[str] = (),
    calls: LibraryCallLimits | None = None,
    cached: Collection[Value] = (),
) -> Graph:
    """Fuse nodes into fused nodes that are as large as possible.

    Args:
        graph: an optimized graph.
        fusable: whether the backend can compute a node inside a fused one.
        anchors: primitives that the backend can compute with an elementwise epilogue.
        calls: the epilogues that library calls support; None: any.
        cached: values that are computed once if the nodes that lead to them are fused
            only with such nodes, and have one result.
    """
    fusion = _Fusion(graph, fusable, anchors, calls, cached)
    fusion.join_with_producers()
    fusion.join_readers_of_one_value()
    fusion.join_scalars()
    groups = [group.nodes for group in fusion.groups.in_order()]
    is_body = [not fusion.able.isdisjoint(group) for group in groups]
    groups = recompute(graph, groups, is_body, fusion.fits)
    readers: defaultdict[Value, set[int]] = defaultdict(set)
    for number, members in enumerate(groups):
        for value in (x for node in members for x in node.inputs):
            readers[value].add(number)
    for value in graph.outputs:
        readers[value].add(len(groups))
    nodes: list[Node] = []
    for number, members in enumerate(groups):
        results = {y for node in members for y in node.outputs}
        read_outside = {value for value in results if readers[value] - {number}}
        nodes += _Body(members, read_outside).nodes if is_body[number] else members
    return graph.replace(nodes)


class _Fusion:
    """Groups of a graph, and the rules for fusing them."""

    def __init__(
        self,
        graph: Graph,
        fusable: Callable[[Node], bool],
        anchors: Collection[str],
        calls: LibraryCallLimits | None,
        cached: Collection[Value],
    ) -> None:
        self.graph = graph
        self.library_calls = calls
        self.cached_nodes = {n for n in graph.nodes if n.outputs[0] in cached}
        self.groups = Groups(graph)
        self.layouts = Layouts(graph)
        self.able = {n for n in graph.nodes if fusable(n) and _fits_alone(n)}
        self.readers: defaultdict[Value, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers[value].append(node)
        self.anchors = {n for n in graph.nodes if n.op.name in anchors}
        self.outputs = set(graph.outputs)
        # Cached results of the test whether all readers of a value are light.
        self.read_lightly: dict[Value, bool] = {}
        # Cached element counts of groups, with the number of nodes that they are valid
        # for.
        self.sizes: dict[Group, tuple[int, int]] = {}

    def join_with_producers(self) -> None:
        """Fuse every node with the groups that it reads from."""
        for node in self.graph.nodes:
            self.groups.add(node)
            if node not in self.able and not _is_reshape(node):
                continue
            for value in node.inputs:
                producer = self.groups.producers.get(value)
                if producer is not None and self._may_be_followed(producer, value):
                    self.try_join(self.groups.of(producer), self.groups.of(node))

    def _may_be_followed(self, node: Node, value: Any) -> bool:
        """Return whether readers of a value may be fused with the group of its node."""
        group = self.groups.of(node)
        if self._has_anchor(group):
            # If other nodes need the value in memory, fusion gains nothing.
            if value not in self.read_lightly:
                is_light = map(self._is_light, self.readers[value])
                self.read_lightly[value] = all(is_light)
            return self.read_lightly[value]
        return not self.able.isdisjoint(group.nodes)

    def _is_light(self, node: Node) -> bool:
        return _is_reshape(node) or (
            node in self.able and node.op.kind is Kind.ELEMENTWISE
        )

    def join_readers_of_one_value(self) -> None:
        """Fuse groups that read the same array, so that they read it once."""
        for value, readers in self.readers.items():
            nodes = [node for node in readers if node in self.able]
            size = value.spec.size
            for other in nodes[1:] if size > 1 else ():
                a, b = self.groups.of(nodes[0]), self.groups.of(other)
                if self._size(a) == self._size(b) == size:
                    self.try_join(a, b)

    def join_scalars(self) -> None:
        """Fuse scalar arithmetic where no other node runs in between."""
        joined: list[Group] = []
        refusals: Counter[Group] = Counter()
        for group in self.groups.all():
            if self._has_anchor(group) or self._size(group) != 1:
                continue
            for other in joined:
                if self.try_join(other, group):
                    break
                refusals[other] += 1
            else:
                joined.append(group)
            joined = [g for g in joined if refusals[g] < MAX_FAILURES]

    def _has_anchor(self, *groups: Group) -> bool:
        return any(not self.anchors.isdisjoint(group.nodes) for group in groups)

    def _size(self, group: Group) -> int:
        """Return the number of elements of a group's loop; 0: do not fuse it."""
        count, size = self.sizes.get(group, (0, 0))
        if count != len(group.nodes):  # groups only grow
            size = self._visited(group)
            self.sizes[group] = len(group.nodes), size
        return size

    def _visited(self, group: Group) -> int:
        if not self.able.issuperset(group.nodes):
            members = [n for n in group.nodes if not _is_reshape(n)]
            if not members or any(n not in self.able for n in members):
                return 0
        return iteration_space_of(group.nodes).size

    def try_join(self, a: Group, b: Group) -> bool:
        """Fuse two groups if they can run as one; return whether they were fused."""
        if a is b or len(a.nodes) + len(b.nodes) > MAX_NODES:
            return False
        if not self.groups.can_join(a, b) or not self._run_equally_often(a, b):
            return False
        has_same_shape = a.shape is not None and a.shape == b.shape
        if not has_same_shape and not self.fits(self.groups.union(a, b)):
            return False
        return self.groups.join(a, b)

    def _run_equally_often(self, a: Group, b: Group) -> bool:
        """Return whether both groups run in each call, or both once and for one result.

        A group that runs once may also be fused with others of the same number of
        elements. Those run in each call, and where the inputs change in each call this
        costs less.
        """
        is_once = [self.cached_nodes.issuperset(group.nodes) for group in (a, b)]
        if not any(is_once):
            return True
        if not all(is_once):
            return 0 < self._size(a) == self._size(b)
        members = {*a.nodes, *b.nodes}
        read = [
            any(reader not in members for reader in self.readers[node.outputs[0]])
            for node in members
        ]
        return sum(read) == 1

    def fits(self, nodes: list[Node]) -> bool:
        """Return whether nodes can run as one."""
        if not self.anchors.isdisjoint(nodes):
            return can_be_epilogue(nodes, self._is_contiguous) and self._is_chain(nodes)
        return can_share_loop(nodes)

    def _is_chain(self, nodes: list[Node]) -> bool:
        """Return whether the backend supports an anchor with this epilogue."""
        if self.library_calls is None:
            return True
        nodes = _anchor_first(nodes)
        members = set(nodes)
        passed_on = [y for node in nodes[:-1] for y in node.outputs]
        if any(y in self.outputs for y in passed_on):
            return False
        readers = (reader for y in passed_on for reader in self.readers[y])
        return all(
            reader in members for reader in readers
        ) and self.library_calls.can_take_epilogue(nodes)

    def _is_contiguous(self, value: Any) -> bool:
        return bool(self.layouts.operand(value).is_contiguous)


def _fits_alone(node: Node) -> bool:
    if node.op.kind is not Kind.ELEMENTWISE:
        return can_share_loop([node])
    return all(v.spec.size for v in (*node.inputs, *node.outputs))


def _is_reshape(node: Node) -> bool:
    return bool(node.op.name == "reshape")


class _Body:
    """A group as a fused node, and the views of its results that other nodes read.

    Args:
        members: the nodes of the group.
        read_outside: the values that other nodes read.
    """

    def __init__(self, members: list[Node], read_outside: set[Value]) -> None:
        self.read_outside = read_outside
        # Copies can leave a member unused.
        members = needed_nodes(members, set(read_outside))
        self.views = self._views(members)
        # A reshaped value has different `Value` objects inside and outside.
        self.inner: dict[Value, Value] = {}
        self.nodes = [*([self._fused(members)] if members else ()), *self.views]

    def _views(self, members: list[Node]) -> list[Node]:
        """Return the reshapes of results that nodes outside read."""
        views: list[Node] = []
        for node in reversed(members):
            if _is_reshape(node) and node.outputs[0] in self.read_outside:
                self.read_outside.add(node.inputs[0])
                views.insert(0, node)
        return views

    def _fused(self, members: list[Node]) -> Node:
        read_inside = {x for node in members for x in node.inputs}
        outer = {node.outputs[0] for node in self.views}
        body = []
        for node in _anchor_first(members):
            if _is_reshape(node):
                if node.outputs[0] not in read_inside:
                    continue
                node = self._inner_reshape(node)
            body.append(node.with_inputs([self.inner.get(x, x) for x in node.inputs]))
        results = {y for node in body for y in node.outputs}
        inputs = dict.fromkeys(
            x
            for node in body
            for x in node.inputs
            if x not in results and not is_literal(x)
        )
        outputs = [
            y
            for node in members
            for y in node.outputs
            if y in self.read_outside and y not in outer
        ]
        return fused_node(Graph(tuple(inputs), tuple(body), tuple(outputs)))

    def _inner_reshape(self, node: Node) -> Node:
        """Return a reshape for use inside the fused node only."""
        (old,) = node.outputs
        self.inner[old] = Value(old.spec)
        return Node(node.op, node.inputs, node.attrs, [self.inner[old]])


def _anchor_first(members: list[Node]) -> list[Node]:
    """Move the anchor before its epilogue, on which it does not depend."""
    return sorted(members, key=lambda node: node.op.kind is not Kind.CONTRACT)


def is_literal(value: Any) -> bool:
    """Return whether a value is a number that a kernel can contain as a literal."""
    return uniform_value(value) is not None
