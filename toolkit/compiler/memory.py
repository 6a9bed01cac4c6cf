"""The memory plan: one offset in one arena for every value that needs a buffer.

A view shares its source's buffer and prolongs its life. An elementwise node may write
over an input that dies there. Graph outputs have buffers of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.backends.base import Moment, aligned
from toolkit.backends.loops.iteration_space import is_elementwise
from toolkit.compiler.packing import Rectangle, by_time, lowest
from toolkit.ir import Graph, Spec, Value


@dataclass(eq=False)
class Buffer:
    """A piece of the arena: live from step `first` to step `last`, inclusive.

    label, origin: what it holds, and the path of the layer that made it.
    death: the last step, and the node that reads it last there.
    """

    nbytes: int
    first: int
    last: int
    label: str = ""
    origin: str = ""
    offset: int = -1
    death: tuple[int, int] = (-1, -1)

    def extend(self, death: tuple[int, int]) -> None:
        """Live at least until then."""
        self.death = max(self.death, death)
        self.last = max(self.last, self.death[0])

    @property
    def extent(self) -> int:
        return aligned(self.nbytes)


@dataclass
class Plan:
    """Where every value of a graph lives.

    buffers: of the values in the arena; values that share memory share one.
    views: values that are views of their node's first input.
    work: scratch memory, by the index of the node.
    """

    graph: Graph
    buffers: dict[Value, Buffer] = field(default_factory=dict)
    views: set[Value] = field(default_factory=set)
    work: dict[int, Buffer] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def distinct(self) -> list[Buffer]:
        """Every buffer once."""
        return list(dict.fromkeys((*self.buffers.values(), *self.work.values())))

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
    graph: Graph,
    views: set[Value],
    work: Sequence[int],
    moments: Sequence[Moment],
    elsewhere: Container[Value] = (),
) -> Plan:
    """Lay out every intermediate value of a scheduled graph in one arena.

    Args:
        graph: in the order in which it will run.
        views: the values that lie in the buffer of their node's first input.
        work: the bytes of scratch memory of each node.
        moments: when each node runs.
        elsewhere: values that have memory of their own.
    """
    plan = Plan(graph, views=views)
    roots = _roots(graph, views)
    deaths = _deaths(graph, views, moments)
    readers = _readers(graph, moments, roots)
    outputs = set(graph.outputs)
    for i, node in enumerate(graph.nodes):
        first, written, last = moments[i]
        for value in node.outputs:
            death = deaths.get(value, (last, i))
            # A view lies in the buffer of its source, which lives as long.
            is_free = value not in plan.views and value not in outputs
            if is_free and value not in elsewhere:
                reused = _donor(plan, i, moments[i], value.spec, readers)
                if reused is None:
                    label = f"{node.op.name} {value.spec}"
                    size = value.spec.nbytes
                    reused = Buffer(size, written, last, label, node.origin)
                reused.extend(max(death, (last, i)))
                plan.buffers[value] = reused
        if work[i]:
            label = f"{node.op.name} workspace"
            plan.work[i] = Buffer(work[i], first, last, label, node.origin)
    _place(plan)
    return plan


def _deaths(
    graph: Graph, views: set[Value], moments: Sequence[Moment]
) -> dict[Value, tuple[int, int]]:
    """When each value, or a view of it, is read last, and by which node."""
    deaths: dict[Value, tuple[int, int]] = {}
    for i, node in enumerate(graph.nodes):
        for value in node.inputs:
            when = (moments[i].last, i)
            deaths[value] = max(when, deaths.get(value, when))
    end = max((moment.last for moment in moments), default=0)
    deaths.update((value, (end, len(graph.nodes))) for value in graph.outputs)
    for node in reversed(graph.nodes):  # views of views come later
        for value in node.outputs:
            if value in views and value in deaths:
                source = node.inputs[0]
                deaths[source] = max(deaths[source], deaths[value])
    return deaths


def _roots(graph: Graph, views: set[Value]) -> dict[Value, Value]:
    """The value whose buffer each view shares."""
    roots: dict[Value, Value] = {}
    for node in graph.nodes:
        for value in node.outputs:
            if value in views:
                source = node.inputs[0]
                roots[value] = roots.get(source, source)
    return roots


# The values that each node reads from the buffer of a value, by value and step.
Readers = defaultdict[tuple[Value, int], set[tuple[int, Value]]]


def _readers(
    graph: Graph, moments: Sequence[Moment], roots: dict[Value, Value]
) -> Readers:
    readers: Readers = defaultdict(set)
    for i, node in enumerate(graph.nodes):
        if node.outputs[0] not in roots:
            for x in node.inputs:
                owner = roots.get(x, x)
                readers[owner, moments[i].last].add((i, x))
    return readers


def _donor(
    plan: Plan, index: int, moment: Moment, spec: Spec, readers: Readers
) -> Buffer | None:
    """The buffer of an input that an elementwise node may write its output over.

    It must be written in the node's last step alone. Nothing else may read that memory
    in the same step, nor the node itself in another layout: it may be elsewhere in it.
    """
    node, (_, written, last) = plan.graph.nodes[index], moment
    if written != last:
        return None
    for x in node.inputs:
        buffer = plan.buffers.get(x)
        if buffer is None or x.spec != spec or buffer.death != (last, index):
            continue
        # Another output of the node may have it already.
        given = any(plan.buffers.get(y) is buffer for y in node.outputs)
        if given or not is_elementwise(node, x):
            continue
        if readers[x, last] == {(index, x)}:
            return buffer
    return None


# No order of placement is best for every graph, so each is tried.
_ORDERS: tuple[Callable[[Buffer], Any], ...] = (
    lambda b: (-b.nbytes, b.first),
    lambda b: (-b.nbytes * (b.last - b.first + 1), b.first),
    lambda b: (b.first - b.last, -b.nbytes),
    lambda b: (b.first, -b.nbytes),
)
# Where there are more buffers, only what takes time in proportion to them is tried.
MOST_COMPARED = 2048


def _place(plan: Plan) -> None:
    """Give every buffer an offset that is free for its whole life."""
    buffers = plan.distinct
    if len(buffers) > MOST_COMPARED:
        layouts = [by_time(_rectangles(buffers))]
        orders = [buffers]
    else:
        orders = [sorted(buffers, key=order) for order in _ORDERS]
        layouts = [lowest(_rectangles(order)) for order in orders]
    smallest = min(range(len(orders)), key=lambda i: layouts[i][0])
    plan.nbytes, offsets = layouts[smallest]
    for buffer, offset in zip(orders[smallest], offsets, strict=True):
        buffer.offset = offset


def _rectangles(buffers: Sequence[Buffer]) -> list[Rectangle]:
    return [Rectangle(b.first, b.last, b.extent) for b in buffers]
