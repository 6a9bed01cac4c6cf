"""Buckets: collectives that can start at the same time are merged.

A collective is delayed until another collective depends on it, together with its
readers. A step then has the minimum number of collectives: without batch normalization
one sum, after the backward pass. Over a network and between GPUs there are more
buckets, and each is sent in parallel with the backward pass. The collectives of large
sharded weights are not delayed, so that few whole weights are in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.comm.group import Group
from toolkit.comm.overlap import bucket_bytes, can_overlap
from toolkit.compiler.sharding.collectives import (
    TOKEN,
    JointMember,
    all_gather_p,
    all_reduce_p,
    joint_collectives_p,
    pieces_of,
    reduce_scatter_p,
)
from toolkit.compiler.sharding.weight_gathers import is_large
from toolkit.ir import Graph, Kind, Node, Value

# The last bucket is merged with the one before it if it is smaller than 1 / `_FEW` of
# the limit.
_SMALL_FRACTION = 16


def join_collectives(
    graph: Graph, overlaps: Callable[[Group], bool] = can_overlap
) -> Graph:
    """Merge independent collectives: their sums, and their small gathers.

    Args:
        graph: of one rank.
        overlaps: returns whether the collectives of a group overlap with computation,
            the same on all ranks.
    """
    if sum(node.op.kind is Kind.COLLECTIVE for node in graph.nodes) < 2:
        return graph
    walk = _Walk(overlaps)
    for node in graph.nodes:
        walk.add(node)
    walk.flush()
    return graph.replace(walk.nodes)


def join_exchanges(graph: Graph) -> Graph:
    """Merge adjacent sums and small gathers of processes of one machine.

    Each then needs only a part of the shared memory, and all need one barrier.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        if nodes and _can_join(nodes[-1], node):
            nodes[-1] = _joint(nodes[-1], node)
        else:
            nodes.append(node)
    return graph.replace(nodes)


def _can_join(first: Node, second: Node) -> bool:
    """Return whether two adjacent nodes are independent collectives of one axis."""
    if not all(map(_is_joinable, (first, second))):
        return False
    axis, other_axis = first.attrs["axis"], second.attrs["axis"]
    return (
        axis.name == other_axis.name
        and not axis.group.is_remote
        and not can_overlap(axis.group)
        and not any(x in first.outputs[:-1] for x in second.inputs)
    )


def _is_joinable(node: Node) -> bool:
    if node.op is all_reduce_p:
        return _condition(node) is None
    return node.op is joint_collectives_p or _is_small_gather(node)


def _joint(first: Node, second: Node) -> Node:
    members, specs, extents = [], [], []
    for node in (first, second):
        attrs = node.attrs
        member = JointMember(node.op.name, attrs, len(node.inputs) - 1)
        members += attrs.get("members", (member,))
        specs += attrs["specs"]
        extents += attrs.get("extents", (None,) * len(attrs["specs"]))
    attrs = {
        "axis": first.attrs["axis"],
        "members": tuple(members),
        "specs": tuple(specs),
        "extents": tuple(extents),
        "ready": max(_ready(first), _ready(second)),
    }
    inputs = [*first.inputs[:-1], *second.inputs[:-1], first.inputs[-1]]
    return Node(
        joint_collectives_p, inputs, attrs, [*first.outputs[:-1], *second.outputs]
    )


class _Walk:
    """The new list of nodes, and the nodes that wait for the next collectives."""

    def __init__(self, overlaps: Callable[[Group], bool]) -> None:
        self.overlaps = overlaps
        self.nodes: list[Node] = []
        self.ready: list[Node] = []  # collectives
        self.waiting: list[Node] = []
        self.late: set[Value] = set()
        # The results of collectives, and the values that depend on them.
        self.dependent: set[Value] = set()
        self.token: Value | None = None

    def add(self, node: Node) -> None:
        """Append a node, now or after the collectives that it depends on."""
        operands = [x for x in node.inputs if x.spec != TOKEN]
        is_late = any(x in self.late for x in operands)
        is_dependent = any(x in self.dependent for x in operands)
        if is_dependent or node.op.kind is Kind.COLLECTIVE:
            self.dependent.update(node.outputs)
        if node.op.kind is Kind.COLLECTIVE:
            if is_late:
                self.flush()
            self.token = self.token or node.inputs[-1]
            if _is_immediate(node, is_dependent):
                self._emit(node)
                return
            self.ready.append(node)
            self.late.update(node.outputs)
        elif is_late:
            self.waiting.append(node)
            self.late.update(node.outputs)
        else:
            self.nodes.append(node)

    def flush(self) -> None:
        """Append the collectives, and the nodes that wait for them."""
        sums = _group_by_axis([n for n in self.ready if n.op is all_reduce_p])
        gathers = _group_by_axis(list(filter(_is_small_gather, self.ready)))
        merged = [_merge_sums(b) for same in sums for b in self._buckets(same)]
        merged += map(_merge_gathers, gathers)
        merged += [
            node
            for node in self.ready
            if node.op is not all_reduce_p and not _is_small_gather(node)
        ]
        if any(self.overlaps(node.attrs["axis"].group) for node in merged):
            merged.sort(key=_ready)
        for node in merged:
            self._emit(node)
        self.nodes += self.waiting
        self.ready, self.waiting, self.late = [], [], set()

    def _emit(self, collective: Node) -> None:
        """Append a collective after the last one."""
        *inputs, _ = collective.inputs
        self.nodes.append(collective.with_inputs([*inputs, self.token]))
        self.token = collective.outputs[-1]

    def _buckets(self, sums: list[Node]) -> list[list[Node]]:
        """Group sums along one axis into buckets.

        Only sums over batches are split, because computation continues during their
        transfer. The sizes are the same on all ranks.
        """
        axis = sums[0].attrs["axis"]
        if axis.even or not self.overlaps(axis.group):
            return [sums]
        room, limit = bucket_bytes(axis.group)
        buckets: list[list[Node]] = [[]]
        nbytes = 0
        for node in sorted(sums, key=_ready):
            if nbytes >= room:
                buckets.append([])
                nbytes, room = 0, limit
            buckets[-1].append(node)
            nbytes += sum(spec.nbytes for spec in node.attrs["specs"])
        # an extra message costs more than it saves
        if len(buckets) > 1 and nbytes < room // _SMALL_FRACTION:
            *buckets, last = buckets
            buckets[-1] += last
        return buckets


def _group_by_axis(nodes: list[Node]) -> list[list[Node]]:
    groups: dict[tuple[str, Value | None], list[Node]] = {}
    for node in nodes:
        key = node.attrs["axis"].name, _condition(node)
        groups.setdefault(key, []).append(node)
    return list(groups.values())


def _condition(node: Node) -> Value | None:
    """Return the operand that says whether a sum is needed; None: it always is."""
    return node.inputs[-2] if node.attrs.get("conditional") else None


def _is_small_gather(node: Node) -> bool:
    return node.op is all_gather_p and not any(map(is_large, node.attrs["specs"]))


def _is_immediate(node: Node, is_dependent: bool) -> bool:
    """Return whether a collective of a large sharded weight stays where it is.

    Args:
        node: the collective.
        is_dependent: whether it depends on another one. A gather of a weight does not.
    """
    if node.op is reduce_scatter_p:
        return is_large(node.attrs["full_spec"])
    return node.op is all_gather_p and not (is_dependent or _is_small_gather(node))


def _ready(node: Node) -> int:
    """Return the earliest start of a node, in numbers that are equal on all ranks."""
    return int(node.attrs.get("ready", 0))


def _merge_sums(sums: list[Node]) -> Node:
    if len(sums) == 1:
        return sums[0]
    axis = sums[0].attrs["axis"]
    terms = tuple(t for node in sums for t in node.attrs["terms"])
    specs = tuple(s for node in sums for s in node.attrs["specs"])
    counts = [
        sum(len(pieces_of(axis, term.units)) for term in node.attrs["terms"])
        for node in sums
    ]
    pairs = [*zip(sums, counts, strict=True)]
    inputs = [x for node, count in pairs for x in node.inputs[:count]]
    inputs += [x for node, count in pairs for x in node.inputs[count:-1]]
    outputs = [y for node in sums for y in node.outputs[:-1]]
    ready = max(map(_ready, sums))
    attrs = {"axis": axis, "terms": terms, "specs": specs, "ready": ready}
    if _condition(sums[0]) is not None:
        attrs["conditional"] = True
    first, last = sums[0], sums[-1]
    return Node(
        all_reduce_p, [*inputs, first.inputs[-1]], attrs, [*outputs, last.outputs[-1]]
    )


def _merge_gathers(gathers: list[Node]) -> Node:
    """Return one gather of the values of several gathers along one axis."""
    if len(gathers) == 1:
        return gathers[0]
    attrs: dict[str, Any] = {"axis": gathers[0].attrs["axis"]}
    for name in ("splits", "specs", "extents"):
        attrs[name] = tuple(x for node in gathers for x in node.attrs[name])
    attrs["ready"] = max(map(_ready, gathers))
    shards = [x for node in gathers for x in node.inputs[:-1]]
    outputs = [y for node in gathers for y in node.outputs[:-1]]
    first, last = gathers[0], gathers[-1]
    return Node(
        all_gather_p, [*shards, first.inputs[-1]], attrs, [*outputs, last.outputs[-1]]
    )
