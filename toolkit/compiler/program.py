"""Programs: the kernel of each node of a planned graph, and the memory of its values.

A program is data. `BoundProgram` binds one to memory, `Executable` runs it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from toolkit.backends.base import Backend
from toolkit.backends.kernels import workspace_bytes
from toolkit.backends.target import Target
from toolkit.compiler.memory import Plan, plan_memory
from toolkit.console.progress import stage
from toolkit.definitions.records import record
from toolkit.ir import Graph, Node, Value
from toolkit.ir.extents import Domain, Extent, upper_bound
from toolkit.plans.layout import Layouts
from toolkit.plans.locations import Location, NodeOperands, OperandLocations
from toolkit.plans.operands import ALIGNMENT, StepSpan

Array = Any


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
            return int(upper_bound(self.lowered.work))
        specs = [x.spec for x in self.node.inputs]
        return workspace_bytes(self.kernel, specs, dict(self.node.attrs))


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


@record
class LoweredGraph:
    """Units of a graph in execution order.

    Attributes:
        graph: of the nodes of the units.
        units: the kernel and the code of each node.
        layouts: memory layouts of values.
        segments: in execution order.
        moments: the schedule of each node.
        cached_values: values that are computed once from frozen inputs.
    """

    graph: Graph
    units: Sequence[Unit]
    layouts: Layouts
    segments: Sequence[Segment]
    moments: Sequence[StepSpan]
    cached_values: frozenset[Value]


@record
class Preparation:
    """Operand of a program that depends on frozen inputs only.

    Attributes:
        number: the number of its array in generated code.
        nbytes: size of the array.
        sources: the numbers of the source inputs.
        recipe: equal where equal sources give equal bytes.
        node, call: the node that computes it, and the node that reads it.
    """

    number: int
    nbytes: int
    sources: Sequence[int]
    recipe: Hashable
    node: int
    call: Any


@record(eq=False)
class Program:
    """A graph, optimized, scheduled and planned for a backend.

    Attributes:
        graph: in execution order.
        backend: the backend of its kernels and code.
        layouts: memory layouts of values.
        kernels: the kernel of each node.
        lowered: for each node the code that the backend generates instead, or None.
        segments: in execution order.
        plan: memory plan of the arena.
        numbers: numbers of the arrays of a call in generated code.
        constants: the arrays of the constants.
        updated_numbers: the numbers of the arrays that are updated in place.
        in_place: whether updates may overwrite their old values.
        source: the traced graph.
        name: name of the traced function.
        cached_values: values that are computed once from frozen inputs.
        cells: the offsets in the arena of numbers that depend on free extents.
    """

    graph: Graph
    backend: Backend
    layouts: Layouts
    kernels: Sequence[Any]
    lowered: Sequence[Any]
    segments: Sequence[Segment]
    plan: Plan
    numbers: Mapping[Value, int]
    constants: Mapping[Value, Array]
    updated_numbers: frozenset[int]
    in_place: bool
    source: Graph
    name: str = "a graph"
    cached_values: frozenset[Value] = frozenset()
    cells: Mapping[Value, int] = field(default_factory=dict)

    def is_view(self, index: int) -> bool:
        """Return whether a node only views its operand."""
        return self.graph.nodes[index].outputs[0] in self.layouts.views

    @cached_property
    def domain(self) -> Domain | None:
        """Return the free extents of its inputs, or None."""
        shapes = (x.spec.shape for x in self.graph.inputs)
        extents = (n for shape in shapes for n in shape if type(n) is Extent)
        return next((n.domain for n in extents), None)

    @cached_property
    def _computing(self) -> list[Segment]:
        """Return the segments that do more than create views."""
        return [
            segment
            for segment in self.segments
            if segment.code is not None or not self.is_view(segment.members[0])
        ]

    @property
    def last(self) -> Segment | None:
        """Return the last segment that computes, or None."""
        return self._computing[-1] if self._computing else None

    @cached_property
    def single_segment(self) -> Segment | None:
        """Return the segment of generated code, if it is the whole program."""
        segments = self._computing
        is_code = len(segments) == 1 and segments[0].code is not None
        return segments[0] if is_code else None

    @cached_property
    def is_plain(self) -> bool:
        """Return whether it is generated code that only reads inputs of this call."""
        is_code = self.single_segment is not None and not self.preparations
        return is_code and not self.updated_numbers

    @property
    def code(self) -> Any:
        """Return the generated code, if it is the whole program; else None."""
        return None if self.single_segment is None else self.single_segment.code

    @cached_property
    def locations(self) -> OperandLocations:
        """Return the operand addresses of a program that is generated code only."""
        assert self.single_segment is not None
        return self.locations_of(self.single_segment)

    def locations_with(self, constant: Callable[[Array], Any]) -> OperandLocations:
        """Return the addresses, with the results of a function for constants."""
        assert self.single_segment is not None
        return self.locations_of(self.single_segment, constant)

    @cached_property
    def preparations(self) -> list[Preparation]:
        """Return the values that are cached until a frozen input changes."""
        result = []
        address = self.backend.memory.address
        for index, k in self._prepared:
            call, node = self.lowered[index].prepared[k], self.graph.nodes[index]
            sources = [node.inputs[number] for _, number in call.inputs]
            locations = [self._location(x, address) for x in sources]
            result.append(
                Preparation(
                    self._prepared[index, k],
                    self.lowered[index].kept_sizes[k],
                    [x.array for x in locations if x.array is not None],
                    (call.recipe, tuple(location.offset for location in locations)),
                    index,
                    call,
                )
            )
        return result

    @cached_property
    def _prepared(self) -> dict[tuple[int, int], int]:
        """Return the numbers of their arrays, by node and operand index."""
        operands = [
            (index, k)
            for index, lowered in enumerate(self.lowered)
            for k in range(len(getattr(lowered, "prepared", ())))
        ]
        return {operand: len(self.numbers) + i for i, operand in enumerate(operands)}

    @cached_property
    def _makers(self) -> dict[Value, int]:
        """Return the array numbers of the values that are computed once."""
        return {
            y: self._prepared[index, 0]
            for index, node in enumerate(self.graph.nodes)
            for y in node.outputs
            if y in self.cached_values
        }

    def number_of(self, value: Value) -> int | None:
        """Return the number of a value's array in generated code, or None."""
        return self.numbers.get(value, self._makers.get(value))

    def locations_of(
        self, segment: Segment, constant: Callable[[Array], Any] | None = None
    ) -> OperandLocations:
        """Return the operand addresses of a segment's nodes.

        Args:
            segment: a segment of this program.
            constant: returns the address of a constant's array; None: the memory of the
                backend.
        """
        address = constant or self.backend.memory.address
        return OperandLocations(
            [self._operands(index, address) for index in segment.members]
        )

    def _operands(
        self, index: int, address: Callable[[Array], Any]
    ) -> NodeOperands[Location]:
        node = self.graph.nodes[index]
        # None for a contraction over an axis of extent 0
        work = self.plan.work.get(index)
        return NodeOperands(
            [self._location(x, address) for x in node.inputs],
            [self._location(y, address) for y in node.outputs],
            Location(None, work.offset if work else 0, in_arena=True),
            [
                Location(self._prepared[index, k], 0)
                for k in range(len(getattr(self.lowered[index], "prepared", ())))
            ],
        )

    def _location(self, value: Value, address: Callable[[Array], Any]) -> Location:
        layout = self.layouts[value]
        root = layout.root
        number = self.number_of(root)
        if number is not None:
            return Location(number, layout.offset)
        if root in self.cells:
            return Location(None, self.cells[root] + layout.offset, in_arena=True)
        if root in self.constants:
            start = address(self.constants[root])
            return Location(None, start + layout.offset)
        start = self.plan.buffers[root].offset
        return Location(None, start + layout.offset, in_arena=True)

    @property
    def arena_bytes(self) -> int:
        """Return the bytes of the arena for intermediate values."""
        return self.plan.nbytes

    @property
    def nbytes(self) -> int:
        """Return the peak bytes of intermediate values, including sub-programs."""
        inner: int = sum(
            inner.program.nbytes
            for kernel, lowered in zip(self.kernels, self.lowered, strict=True)
            for inner in getattr(kernel, "programs", {}).values()
            if lowered is None
        )
        return self.plan.nbytes + inner


def plan_program(lowered: LoweredGraph, target: Target) -> Program:
    """Plan the memory of a lowered graph."""
    graph, backend = lowered.graph, target.backend
    with stage("planning memory"):
        work = [unit.work for unit in lowered.units]
        views, cached_values = lowered.layouts.views, lowered.cached_values
        plan = plan_memory(graph, views, work, lowered.moments, cached_values)
    moving = (*graph.inputs, *graph.outputs)
    reads = (x for node in graph.nodes for x in node.inputs)
    constants = [x for x in reads if x.constant is not None]
    cells: dict[Value, int] = {}
    for x in constants:
        if x.extent is not None and target.is_body:
            # Only the cells of the outer program are written for each length.
            x.extent.domain.fix(x.extent)
        elif x.extent is not None and x not in cells:
            cells[x] = plan.nbytes
            plan.nbytes += ALIGNMENT
    program = Program(
        graph=graph,
        backend=backend,
        layouts=lowered.layouts,
        kernels=[unit.kernel for unit in lowered.units],
        lowered=[unit.lowered for unit in lowered.units],
        segments=lowered.segments,
        plan=plan,
        numbers={value: i for i, value in enumerate(moving)},
        constants={x: backend.memory.constant(x.constant) for x in constants},
        updated_numbers=frozenset(),
        in_place=False,
        source=graph,
        cached_values=cached_values,
        cells=cells,
    )
    if not target.updates or not _is_in_place(program, target, lowered.moments):
        return program
    first = len(graph.inputs)
    updated = {first + output for output, _ in target.updates}
    updated |= {number for _, number in target.updates if number is not None}
    return replace(program, in_place=True, updated_numbers=frozenset(updated))


def _is_in_place(program: Program, target: Target, moments: Sequence[StepSpan]) -> bool:
    """Return whether every update may overwrite its old value.

    All updates must be in generated code that runs last and cannot be interrupted.
    Readers of an old value must run before the new one is written. The pass `settle`
    ensures this for nodes that read and write the same value.
    """
    last = program.last
    is_separate = target.backend.is_accelerator and program.single_segment is None
    if last is None or last.code is None or is_separate:
        return False
    graph, members = program.graph, set(last.members)
    writers = {y: i for i, node in enumerate(graph.nodes) for y in node.outputs}
    readers: defaultdict[Value, set[tuple[int, Value]]] = defaultdict(set)
    for i, node in enumerate(graph.nodes):
        if i in members:
            for x in node.inputs:
                readers[program.layouts[x].root].add((i, x))
    for output, number in target.updates:
        writer = writers[graph.outputs[output]]
        if writer not in members:
            return False
        if number is None:
            continue
        old = graph.inputs[number]
        for reader, read in readers[old]:
            if reader != writer and moments[reader].last >= moments[writer].written:
                return False
            if reader == writer and read is not old:
                return False
    return True
