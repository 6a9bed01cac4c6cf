"""The memory plan: one offset in one arena for every value that needs a buffer.

A view shares its source's buffer and prolongs its life. An elementwise node may write
over an input that dies there. Graph outputs have buffers of their own.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolkit.backends.base import aligned
from toolkit.ir import Graph, Kind, Node, Spec


@dataclass
class Buffer:
    """A piece of the arena: live from node `first` to node `last`, inclusive."""

    nbytes: int
    first: int
    last: int
    offset: int = -1
    label: str = ""

    @property
    def extent(self) -> int:
        return aligned(self.nbytes)


@dataclass
class Plan:
    """Where every value of a graph lives.

    buffers: by the value's id, for values in the arena; values that share one share it.
    views: ids of values that are views of their node's first input.
    work: scratch memory, by the index of the node.
    """

    graph: Graph
    buffers: dict[int, Buffer] = field(default_factory=dict)
    views: set[int] = field(default_factory=set)
    work: dict[int, Buffer] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def distinct(self) -> list[Buffer]:
        """Every buffer once."""
        found = {id(b): b for b in (*self.buffers.values(), *self.work.values())}
        return list(found.values())

    @property
    def live_peak(self) -> int:
        """The bytes that live at the worst point: no arena can be smaller."""
        change: defaultdict[int, int] = defaultdict(int)
        for buffer in self.distinct:
            change[buffer.first] += buffer.nbytes
            change[buffer.last + 1] -= buffer.nbytes
        live = peak = 0
        for moment in sorted(change):
            live += change[moment]
            peak = max(peak, live)
        return peak


def plan_memory(
    graph: Graph, views: set[int], workspace: Callable[[Node], int]
) -> Plan:
    """Lay out every intermediate value of a scheduled graph in one arena.

    Args:
        graph: in the order in which it will run.
        views: ids of the values that lie in the buffer of their node's first input.
        workspace: the bytes of scratch memory that a node needs.
    """
    plan = Plan(graph, views=views)
    last_use = graph.last_uses()
    outputs = {id(value) for value in graph.outputs}
    roots: dict[int, int] = {}  # the value whose buffer a view shares
    for i, node in enumerate(graph.nodes):
        for value in node.outputs:
            if id(value) in plan.views:
                source = id(node.inputs[0])
                roots[id(value)] = roots.get(source, source)
                _prolong(plan, roots[id(value)], last_use.get(id(value), i))
            elif id(value) not in outputs:
                death = last_use.get(id(value), i)
                reused = _donor(plan, node, i, value.spec, roots, outputs)
                if reused is None:
                    label = f"{node.op.name} {value.spec}"
                    reused = Buffer(value.spec.nbytes, i, death, label=label)
                reused.last = max(reused.last, death)
                plan.buffers[id(value)] = reused
        size = workspace(node)
        if size:
            plan.work[i] = Buffer(size, i, i, label=f"{node.op.name} workspace")
    _place(plan)
    return plan


def _prolong(plan: Plan, root: int, death: int) -> None:
    if root in plan.buffers:
        plan.buffers[root].last = max(plan.buffers[root].last, death)


def _donor(
    plan: Plan,
    node: Node,
    index: int,
    spec: Spec,
    roots: dict[int, int],
    outputs: set[int],
) -> Buffer | None:
    """The buffer of an input that an elementwise node may write its output over."""
    if not _is_elementwise(node):
        return None
    owners = [roots.get(id(x), id(x)) for x in node.inputs]
    for x in node.inputs:
        buffer = plan.buffers.get(id(x))
        if buffer is None or x.spec != spec or buffer.last != index:
            continue
        readers = {
            id(y)
            for y, owner in zip(node.inputs, owners, strict=True)
            if plan.buffers.get(owner) is buffer
        }
        if readers == {id(x)}:  # no other input looks at the same memory
            return buffer
    return None


def _is_elementwise(node: Node) -> bool:
    """Whether each element of the outputs depends on the inputs' same element only."""
    body = node.attrs.get("body") if node.op.name == "fused" else None
    members = (node,) if body is None else body.nodes
    return all(member.op.kind is Kind.ELEMENTWISE for member in members)


# No order of placement is best for every graph, so each is tried.
_ORDERS: tuple[Callable[[Buffer], Any], ...] = (
    lambda b: (-b.nbytes, b.first),
    lambda b: (-b.nbytes * (b.last - b.first + 1), b.first),
    lambda b: (b.first - b.last, -b.nbytes),
    lambda b: (b.first, -b.nbytes),
)


def _place(plan: Plan) -> None:
    """Give every buffer an offset that is free for its whole life."""
    buffers = plan.distinct
    layouts = [_layout(sorted(buffers, key=order)) for order in _ORDERS]
    plan.nbytes, offsets = min(layouts, key=lambda layout: layout[0])
    for buffer in buffers:
        buffer.offset = offsets[id(buffer)]


def _layout(buffers: list[Buffer]) -> tuple[int, dict[int, int]]:
    """Place buffers one after the other, each at the lowest offset that is free.

    Returns:
        The size of the arena, and the offsets by the buffers' ids.
    """
    placed: list[tuple[int, int, Buffer]] = []  # (offset, end), in order
    size, offsets = 0, {}
    for buffer in buffers:
        offset = 0
        for start, end, other in placed:
            if other.first > buffer.last or buffer.first > other.last:
                continue
            if offset + buffer.extent <= start:
                break
            offset = max(offset, end)
        offsets[id(buffer)] = offset
        size = max(size, offset + buffer.extent)
        insort(placed, (offset, offset + buffer.extent, buffer), key=lambda row: row[0])
    return size, offsets
