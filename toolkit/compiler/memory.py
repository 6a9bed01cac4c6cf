"""The memory plan: one offset in one arena for every value that needs a buffer.

A view shares the buffer of its source and extends its lifetime. An elementwise node may
overwrite an input whose lifetime ends there. Graph outputs have separate buffers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.compiler.packing import Rectangle, pack_by_time, pack_lowest
from toolkit.ir import Graph, Spec, Value
from toolkit.ir.extents import upper_bound
from toolkit.plans.loops.iteration_space import is_elementwise
from toolkit.plans.operands import StepSpan, align_up


@dataclass(eq=False)
class Buffer:
    """Range of the arena that is live from step `first` to step `last`, inclusive.

    label, origin: the value in the buffer, and the path of the layer that computes it.
    death: the last step, and the last node that reads the buffer in that step.
    """

    nbytes: int
    first: int
    last: int
    label: str = ""
    origin: str = ""
    offset: int = -1
    death: tuple[int, int] = (-1, -1)

    def extend(self, death: tuple[int, int]) -> None:
        """Extend the lifetime to this step, if it is later."""
        self.death = max(self.death, death)
        self.last = max(self.last, self.death[0])

    @property
    def extent(self) -> int:
        return align_up(self.nbytes)


@dataclass
class Plan:
    """Buffers and views of the values of a graph.

    buffers: buffers of the values in the arena; values that share memory share a
    buffer. views: values that are views of their node's first input. work: scratch
    buffers, by the index of the node.
    """

    graph: Graph
    buffers: dict[Value, Buffer] = field(default_factory=dict)
    views: set[Value] = field(default_factory=set)
    work: dict[int, Buffer] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def distinct(self) -> list[Buffer]:
        """Return every buffer once."""
        return list(dict.fromkeys((*self.buffers.values(), *self.work.values())))

    @property
    def live_peak(self) -> int:
        """Return the largest number of live bytes: a lower bound for the arena."""
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
    moments: Sequence[StepSpan],
    external: Container[Value] = (),
) -> Plan:
    """Assign an arena offset to every intermediate value of a scheduled graph.

    Args:
        graph: in execution order.
        views: values that share the buffer of their node's first input.
        work: the bytes of scratch memory of each node.
        moments: when each node runs.
        external: values in memory outside the arena.
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
            # A view shares the buffer of its source, which lives as long.
            is_free = value not in plan.views and value not in outputs
            if is_free and value not in external:
                reused = _donor(plan, i, moments[i], value.spec, readers)
                if reused is None:
                    label = f"{node.op.name} {value.spec}"
                    size = upper_bound(value.spec.nbytes)
                    reused = Buffer(size, written, last, label, node.origin)
                reused.extend(max(death, (last, i)))
                plan.buffers[value] = reused
        if work[i]:
            label = f"{node.op.name} workspace"
            plan.work[i] = Buffer(work[i], first, last, label, node.origin)
    _assign_offsets(plan)
    return plan


def _deaths(
    graph: Graph, views: set[Value], moments: Sequence[StepSpan]
) -> dict[Value, tuple[int, int]]:
    """Return the step and the node of the last read of each value or of its views."""
    deaths: dict[Value, tuple[int, int]] = {}
    for i, node in enumerate(graph.nodes):
        for value in node.inputs:
            when = (moments[i].last, i)
            deaths[value] = max(when, deaths.get(value, when))
    end = max((moment.last for moment in moments), default=0)
    deaths.update((value, (end, len(graph.nodes))) for value in graph.outputs)
    for node in reversed(graph.nodes):  # views of views are later in the graph
        for value in node.outputs:
            if value in views and value in deaths:
                source = node.inputs[0]
                deaths[source] = max(deaths[source], deaths[value])
    return deaths


def _roots(graph: Graph, views: set[Value]) -> dict[Value, Value]:
    """Return the value whose buffer each view shares."""
    roots: dict[Value, Value] = {}
    for node in graph.nodes:
        for value in node.outputs:
            if value in views:
                source = node.inputs[0]
                roots[value] = roots.get(source, source)
    return roots


# Nodes that read the buffer of a value, with the value that they read, by value and
# step.
Readers = defaultdict[tuple[Value, int], set[tuple[int, Value]]]


def _readers(
    graph: Graph, moments: Sequence[StepSpan], roots: dict[Value, Value]
) -> Readers:
    readers: Readers = defaultdict(set)
    for i, node in enumerate(graph.nodes):
        if node.outputs[0] not in roots:
            for x in node.inputs:
                owner = roots.get(x, x)
                readers[owner, moments[i].last].add((i, x))
    return readers


def _donor(
    plan: Plan, index: int, moment: StepSpan, spec: Spec, readers: Readers
) -> Buffer | None:
    """Return the input buffer that an elementwise node may reuse for its output.

    Only the last step of the node may write to the buffer. Nothing else may read that
    memory in the same step. The node itself may not read it in another layout, in which
    the same element has another address.
    """
    node, (_, written, last) = plan.graph.nodes[index], moment
    if written != last:
        return None
    for x in node.inputs:
        buffer = plan.buffers.get(x)
        if buffer is None or buffer.death != (last, index):
            continue
        if not x.spec.is_always(spec):
            continue
        # Another output of the node may already use it.
        is_reused = any(plan.buffers.get(y) is buffer for y in node.outputs)
        if is_reused or not is_elementwise(node, x):
            continue
        if readers[x, last] == {(index, x)}:
            return buffer
    return None


# No order of allocation is best for every graph, so each is tried.
_ORDERS: tuple[Callable[[Buffer], Any], ...] = (
    lambda b: (-b.nbytes, b.first),
    lambda b: (-b.nbytes * (b.last - b.first + 1), b.first),
    lambda b: (b.first - b.last, -b.nbytes),
    lambda b: (b.first, -b.nbytes),
)
# With more buffers, only orders that take linear time are tried.
MAX_COMPARED = 2048


def _assign_offsets(plan: Plan) -> None:
    """Assign to every buffer an offset that is free for its whole lifetime."""
    buffers = plan.distinct
    if len(buffers) > MAX_COMPARED:
        layouts = [pack_by_time(_rectangles(buffers))]
        orders = [buffers]
    else:
        orders = [sorted(buffers, key=order) for order in _ORDERS]
        layouts = [pack_lowest(_rectangles(order)) for order in orders]
    smallest = min(range(len(orders)), key=lambda i: layouts[i][0])
    plan.nbytes, offsets = layouts[smallest]
    for buffer, offset in zip(orders[smallest], offsets, strict=True):
        buffer.offset = offset


def _rectangles(buffers: Sequence[Buffer]) -> list[Rectangle]:
    return [Rectangle(b.first, b.last, b.extent) for b in buffers]
