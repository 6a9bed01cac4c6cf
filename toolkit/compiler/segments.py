"""Segments: runs of lowered nodes as one generated code, and single kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import Any

from toolkit.backends.generator import CodeGenerator
from toolkit.backends.kernels import workspace_bytes
from toolkit.definitions.records import record
from toolkit.ir import Graph, Kind, Node, Value
from toolkit.plans.layout import Layouts
from toolkit.plans.locations import NodeOperands, Shares
from toolkit.plans.operands import OperandMemory, StepSpan


@record
class Unit:
    """A node, its kernel, and the code that the backend generates for it, or None."""

    node: Node
    kernel: Any
    lowered: Any

    @property
    def work(self) -> int:
        """Return the bytes of scratch memory."""
        if self.lowered is not None:
            return int(self.lowered.work)
        specs = [x.spec for x in self.node.inputs]
        return workspace_bytes(self.kernel, specs, dict(self.node.attrs))


@record
class LoweredGraph:
    """Units of a graph in execution order.

    Attributes:
        graph: of the nodes of the units.
        units: the kernel and the code of each node.
        layouts: memory layouts of values.
        cached_values: values that are computed once from frozen inputs.
        barrier: the index of the first node that runs after all earlier ones.
    """

    graph: Graph
    units: Sequence[Unit]
    layouts: Layouts
    cached_values: frozenset[Value]
    barrier: int


@record
class Segment:
    """Consecutive nodes as one generated code, or one node with a kernel.

    Attributes:
        members: the indices of the nodes.
        start: the first step of the segment in the memory plan.
        code: the result of `CodeGenerator.assemble`; None: the kernel of the only
            member runs.
        starts: the indices of collectives that are started before it.
    """

    members: Sequence[int]
    start: int
    code: Any = None
    starts: Sequence[int] = ()


def divide(
    lowered: LoweredGraph, generator: CodeGenerator
) -> tuple[list[Segment], list[StepSpan]]:
    """Divide a graph into segments, in order, and return the moment of each node."""
    units, layouts = lowered.units, lowered.layouts
    segments: list[Segment] = []
    moments, current = [StepSpan(0, 0, 0)] * len(units), 0
    starts = _collective_starts(units, layouts)
    started: dict[int, int] = {}  # the steps in which collectives are started
    for members, is_code in _lowered_runs(units, layouts, starts):
        code, steps, beginning = None, {}, starts.get(members[0], [])
        started.update(dict.fromkeys(beginning, current))
        if is_code:
            operands = Shares([_memory_operands(i, units[i], layouts) for i in members])
            codes = [units[i].lowered for i in members]
            late = sum(i < lowered.barrier for i in members)
            code = generator.assemble(codes, operands, late)
            steps = code.moments
        segments.append(Segment(members, current, code, beginning))
        for i, member in enumerate(members):
            moments[member] = StepSpan(
                *(current + step for step in steps.get(i, (0, 0, 0)))
            )
            if member in started:
                moments[member] = StepSpan(started[member], started[member], current)
        current += 1 + max((moment.last for moment in steps.values()), default=0)
    return segments, moments


def _collective_starts(units: Sequence[Unit], layouts: Layouts) -> dict[int, list[int]]:
    """Return the collectives that run in parallel, by the node before which they start.

    A collective starts when its operands are computed and all earlier collectives have
    started: their order is the same on all ranks.
    """
    starts: defaultdict[int, list[int]] = defaultdict(list)
    computed_at: dict[Value, int] = {}  # the index of the node that computes each value
    earliest = 0
    for i, unit in enumerate(units):
        inputs, outputs = unit.node.inputs, unit.node.outputs
        after = i
        if unit.node.op.kind is Kind.COLLECTIVE:
            # the last operand is a token of the collective before it
            *operands, _ = inputs
            ready = max((computed_at.get(x, -1) + 1 for x in operands), default=0)
            earliest = max(earliest, ready)
            if unit.kernel.background is None:
                earliest = i + 1
            else:
                starts[earliest].append(i)
        elif outputs[0] in layouts.views:
            # A view of program memory is available when its source is.
            after = computed_at.get(inputs[0], i)
        computed_at.update(dict.fromkeys(outputs, after))
    return dict(starts)


def _lowered_runs(
    units: Sequence[Unit], layouts: Layouts, cuts: Container[int] = ()
) -> Iterator[tuple[list[int], bool]]:
    """Yield runs of consecutive lowered nodes, without the views in between.

    A node that is not lowered is a run with one member. A cut separates runs.
    """
    run: list[int] = []
    for i, unit in enumerate(units):
        if run and i in cuts:
            yield run, True
            run = []
        if unit.lowered is not None:
            run.append(i)
            continue
        if run and unit.node.outputs[0] not in layouts.views:
            yield run, True
            run = []
        yield [i], False
    if run:
        yield run, True


def _memory_operands(
    index: int, unit: Unit, layouts: Layouts
) -> NodeOperands[OperandMemory]:
    """Return the memory of a lowered node's operands."""
    return NodeOperands(
        [_share(x, layouts) for x in unit.node.inputs],
        [_share(y, layouts) for y in unit.node.outputs],
        OperandMemory(("work", index), unit.lowered.work, False),
        [
            OperandMemory(("kept", index, number), nbytes, False)
            for number, nbytes in enumerate(getattr(unit.lowered, "kept_sizes", ()))
        ],
    )


def _share(value: Value, layouts: Layouts) -> OperandMemory:
    layout = layouts[value]
    view, root = map(layouts.operand, (value, layout.root))
    if root.spec.nbytes == value.spec.nbytes and view.is_contiguous:
        return OperandMemory(layout.root, value.spec.nbytes, True)
    rows = view.count_local_rows(root, layout.offset)
    return OperandMemory(layout.root, value.spec.nbytes, rows > 0, rows)
