"""The memory plan: one offset in one arena for every value that needs a buffer.

A view shares its source's buffer and prolongs its life. An elementwise node may write
over an input that dies there. Graph outputs have buffers of their own.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
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


def is_contiguous_slice(shape: tuple[int, ...], attrs: Any) -> bool:
    """Whether a slice takes one run of elements: only the outermost axis is cut."""
    outer = True
    for n, *bounds in zip(
        shape, attrs["start"], attrs["stop"], attrs["step"], strict=True
    ):
        taken = range(*bounds)
        whole = len(taken) == n and (n < 2 or bounds[2] == 1)
        if not whole and not (outer and (bounds[2] == 1 or len(taken) < 2)):
            return False
        outer = outer and len(taken) == 1
    return True


def _keeps_extents(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether a reshape only adds or drops axes of extent 1."""
    return [n for n in a if n != 1] == [n for n in b if n != 1]


class _Layouts:
    """Which values are contiguous, and which view nodes really are views."""

    def __init__(self, graph: Graph) -> None:
        self.scattered: set[int] = set()
        self.views: set[int] = set()
        for node in graph.nodes:
            if node.op.kind is Kind.VIEW:
                self._visit(node)

    def _visit(self, node: Node) -> None:
        x, y = node.inputs[0], node.outputs[0]
        shape, result = x.spec.shape, y.spec.shape
        scattered = id(x) in self.scattered
        if node.op.name == "reshape":
            if scattered and not _keeps_extents(shape, result):
                return  # it has to copy, into a buffer of its own
        elif node.op.name == "slice":
            scattered = scattered or not is_contiguous_slice(shape, node.attrs)
        elif node.op.name == "transpose":
            order = [a for a in node.attrs["axes"] if shape[a] != 1]
            scattered = scattered or order != sorted(order)
        else:
            scattered = scattered or prod(shape) != prod(result)
        self.views.add(id(y))
        if scattered:
            self.scattered.add(id(y))


def plan_memory(graph: Graph, workspace: Callable[[Node], int]) -> Plan:
    """Lay out every intermediate value of a scheduled graph in one arena.

    Args:
        graph: in the order in which it will run.
        workspace: the bytes of scratch memory that a node needs.
    """
    plan = Plan(graph, views=_Layouts(graph).views)
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
    if node.op.kind is not Kind.ELEMENTWISE:
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
