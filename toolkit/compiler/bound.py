"""Bound programs: an arena, and the steps of a program that use its memory.

Each running call borrows one bound program, so concurrent callers never share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from toolkit.backends.memory import Memory
from toolkit.compiler.control import ControlKernel
from toolkit.compiler.exchanges import Exchange
from toolkit.compiler.plain_calls import make_call
from toolkit.compiler.prepared import PreparedOperands
from toolkit.compiler.program import Program, Segment
from toolkit.console.progress import show_progress
from toolkit.definitions.records import record
from toolkit.ir import Graph, Kind, Node, Spec, Value

Array = Any
Step = Callable[[], Any]


@record
class TimedUnit:
    """Unit of timing: one kernel, or generated calls that run together.

    moment: the step of the memory plan; the units of one moment run in parallel. codes:
    the generated codes of the calls, each with `text()`. is_shared: whether several
    threads share the tasks of this unit, or each task runs on one thread in parallel
    with other units. duration: the number of later moments in which it can still run.
    """

    nodes: Sequence[Node]
    moment: int
    flops: int = 0
    nbytes: int = 0
    codes: Sequence[Any] = ()
    is_shared: bool = False
    duration: int = 0


@record
class Event:
    """Start and end of a unit in seconds, and its thread; -1: no compute thread."""

    unit: int
    start: float
    end: float
    thread: int = 0


class BoundProgram:
    """Arena and steps of a program, bound to memory."""

    def __init__(self, program: Program) -> None:
        self.program: Program = program
        self.memory: Memory = program.backend.memory
        generator = program.backend.generator
        self.handle: Callable[[Array], int] = generator.handle
        self.graph: Graph = program.graph
        self.arena: Any = self.memory.arena(program.plan.nbytes, program.plan)
        self.specs: list[tuple[tuple[int, ...], str]] = [
            (y.spec.shape, y.spec.dtype) for y in self.graph.outputs
        ]
        if program.domain is None:
            self.allocators = self.memory.allocators(self.specs)
        # Generated code finds each array of a call in this table.
        moving = (*self.graph.inputs, *self.graph.outputs)
        specs = [value.spec for value in moving]
        specs += [Spec((x.nbytes,), "uint8") for x in program.preparations]
        self.objects: Any = generator.call_table(
            specs, program.updated_numbers, program.plan
        )
        self.prepared = PreparedOperands(program, self.objects)
        # Arrays for kernels, by slot: first the arrays of a call. Arrays in `fixed` are
        # the same in every call.
        self.slots: list[Array] = [None] * len(program.numbers)
        self.index: dict[Value, int] = dict(program.numbers)
        self.fixed: set[int] = set()
        self.steps: list[Step] = []
        self.last = 0  # the index of the last step that is generated code
        # Slots of values that are computed once, and the numbers of their arrays.
        self.cached_slots: list[tuple[int, int, Spec]] = []
        # Collectives that run in parallel with other steps, by the index of their
        # nodes.
        self.exchanges: dict[int, Exchange] = {}
        # The timer of each step, and the units of all steps.
        self.timed: list[Callable[[], list[Event]]] = []
        self.timed_units: list[TimedUnit] = []
        self.has_code: bool = any(
            segment.code is not None for segment in program.segments
        )
        # The `id` of each array that the last `update` overwrote.
        self.updated_ids: list[int] = []
        # The free extents that are set, and the specs that contain them.
        self.extents: tuple[int, ...] | None = None
        self.runners: list[Any] = []
        self._open_specs = self.specs
        self._evaluate: Callable[..., tuple[Any, ...]] | None = None
        self._plain_call: Callable[..., list[Array]] | None = None
        with show_progress(f"compiling {program.name}"):
            self._bind()
        self.dynamic: list[int] = [
            s for s in range(len(self.slots)) if s not in self.fixed
        ]

    # --- binding ----------------------------------------------------------------------

    def _bind(self) -> None:
        """Convert every segment into a step; bind steps on fixed arrays only once."""
        needed = self._needed_by_kernels()
        for segment in self.program.segments:
            for index in segment.starts:
                self._bind_start(index)
            if segment.code is not None:
                self._bind_code(segment)
                continue
            (index,) = segment.members
            node = self.graph.nodes[index]
            if not self.program.is_view(index):
                self._bind_kernel(index, node)
            elif node.outputs[0] in needed:
                self._bind_view(node)
            if len(self.steps) > len(self.timed):
                events = partial(_events, self.steps[-1], len(self.timed_units))
                if index in self.exchanges:
                    exchange = self.exchanges[index]
                    events = partial(
                        _collective_events, exchange, len(self.timed_units)
                    )
                self.timed.append(events)
                self.timed_units.append(
                    TimedUnit([node], segment.start, nbytes=_collective_nbytes(node))
                )

    def _bind_code(self, segment: Segment) -> None:
        """Give generated code the addresses of its operands."""
        locations = self.program.locations_of(segment)
        address = self.memory.address(self.arena)
        runner = segment.code.bind(locations.at(address), self.objects)
        self.prepared.bind(segment, locations)
        self.runners.append(runner)
        self.last = len(self.steps)
        self.steps.append(runner.run)
        self.timed.append(partial(_code_events, runner, len(self.timed_units)))
        nodes = [self.graph.nodes[i] for i in segment.members]
        self.timed_units += [
            TimedUnit([nodes[i] for i in which], segment.start + after, *figures)
            for after, which, *figures in segment.code.timed_sections
        ]

    def _bind_start(self, index: int) -> None:
        """Add a step that starts a collective; the step of its segment waits for it."""
        node, kernel = self.graph.nodes[index], self.program.kernels[index]
        ins = [self._slot(value) for value in node.inputs]
        outs = [self._slot(value) for value in node.outputs]
        prepared: list[Step] = []

        def make() -> Step:
            if prepared:
                return prepared[0]
            arrays = [self.slots[slot] for slot in ins]
            out = tuple(self.slots[slot] for slot in outs)
            run: Step = kernel.on(*arrays, out=out, **node.attrs)
            if self.fixed.issuperset((*ins, *outs)):
                prepared.append(run)
            return run

        exchange = self.exchanges[index] = Exchange(kernel.background, make)
        self.steps.append(exchange.start)
        self.timed.append(partial(_no_events, exchange.start))

    def _needed_by_kernels(self) -> set[Value]:
        """Return the values that kernels read, and the sources of views among them."""
        needed: set[Value] = set()
        for i in reversed(range(len(self.graph.nodes))):
            node = self.graph.nodes[i]
            is_view = self.program.is_view(i)
            if is_view and node.outputs[0] not in needed:
                continue
            if is_view or self.program.lowered[i] is None:
                needed.update(node.inputs)
        return needed

    def _slot(self, value: Any) -> int:
        """Return the slot of a value that a kernel reads or writes."""
        if value not in self.index:
            self.index[value] = len(self.slots)
            self.slots.append(None)
            buffer = self.program.plan.buffers.get(value)
            if value in self.program.cached_values:
                number = self.program.number_of(value)
                assert number is not None
                self.cached_slots.append((self.index[value], number, value.spec))
            elif value.constant is not None:
                self._fix(value, self.program.constants[value])
            elif buffer is not None:
                shape, dtype = value.spec.shape, value.spec.dtype
                array = self.memory.view(self.arena, buffer.offset, shape, dtype)
                self._fix(value, array)
        return self.index[value]

    def _fix(self, value: Any, array: Array) -> None:
        slot = self.index[value]
        self.slots[slot] = array
        self.fixed.add(slot)

    def _bind_view(self, node: Node) -> None:
        source, target = self._slot(node.inputs[0]), self._slot(node.outputs[0])
        view = partial(self.program.backend.kernels[node.op.name], **node.attrs)
        if source in self.fixed:
            self._fix(node.outputs[0], view(self.slots[source]))
        else:
            self.steps.append(_view_step(view, self.slots, source, target))

    def _bind_kernel(self, index: int, node: Node) -> None:
        if index in self.exchanges:
            self.steps.append(self.exchanges[index].wait)
            return
        kernel: Any = self.program.kernels[index]
        ins = [self._slot(value) for value in node.inputs]
        outs = [self._slot(value) for value in node.outputs]
        attrs = {} if isinstance(kernel, ControlKernel) else dict(node.attrs)
        if node.op.kind is Kind.VIEW:  # a reshape that copies
            kernel, attrs = _copy_reshaped, {}
        work = self.program.plan.work.get(index)
        if work is not None:
            attrs["work"] = self.memory.view(
                self.arena, work.offset, (work.nbytes,), "uint8"
            )
        has_several = len(outs) > 1 or isinstance(kernel, ControlKernel)
        if self.fixed.issuperset(ins) and self.fixed.issuperset(outs):
            arrays = [self.slots[slot] for slot in ins]
            results = tuple(self.slots[slot] for slot in outs)
            out = results if has_several else results[0]
            if node.op.kind is Kind.COLLECTIVE:  # it prepares its work for these arrays
                self.steps.append(kernel.on(*arrays, out=out, **attrs))
            else:
                self.steps.append(partial(kernel, *arrays, out=out, **attrs))
        else:
            call = partial(kernel, **attrs) if attrs else kernel
            self.steps.append(_step(call, self.slots, ins, outs, has_several))

    def close(self) -> None:
        """Release all memory, even if a traceback still references this object."""
        self.arena = None
        self.prepared.close()
        for bound in (self.steps, self.timed, self.slots, self.exchanges):
            bound.clear()

    def set_extents(self, values: tuple[int, ...]) -> None:
        """Set the free extents of the program, for the next runs.

        The program is generated code only.
        """
        if values == self.extents:
            return
        domain, program = self.program.domain, self.program
        assert domain is not None
        self.extents = None  # the state is unknown if this is interrupted
        for runner in self.runners:
            runner.set_extents(domain, values)
        if self._evaluate is None:
            shapes = [n for shape, _ in self._open_specs for n in shape]
            numbers = [x.extent for x in program.cells]
            self._evaluate = domain.evaluator([*shapes, *numbers])
        remaining = iter(self._evaluate(*values))
        self.specs = [
            (tuple(islice(remaining, len(shape))), dtype)
            for shape, dtype in self._open_specs
        ]
        for (value, offset), number in zip(
            program.cells.items(), remaining, strict=True
        ):
            cell = self.memory.view(self.arena, offset, (), value.spec.dtype)
            cell[...] = number
        self.extents = values

    # --- running ----------------------------------------------------------------------

    def run(
        self,
        inputs: Sequence[Array],
        outs: Sequence[Array | None] | None,
        events: list[Event] | None = None,
    ) -> list[Array]:
        """Run every step; append the events of the units to `events`, if given."""
        arrays = list(inputs)
        if self.has_code or any(type(a) is not np.ndarray for a in inputs):
            arrays = [self.memory.as_row_major(a) for a in inputs]
        results = (
            self._output_arrays(outs)
            if outs
            else self.memory.allocate_results(self.specs)
        )
        arrays += results
        if self.has_code:
            self.objects[: len(arrays)] = list(map(self.handle, arrays))
            self.updated_ids = []
            self._settle(arrays)
        self.slots[: len(arrays)] = arrays
        self._run_steps(self.steps, events)
        return results

    def _output_arrays(self, outs: Sequence[Array | None]) -> list[Array]:
        """Return the given arrays, and a new array for each `None`."""
        results = list(outs)
        missing = [i for i, y in enumerate(results) if y is None]
        allocated = self.memory.allocate_results([self.specs[i] for i in missing])
        for i, y in zip(missing, allocated, strict=True):
            results[i] = y
        return results

    def update(
        self,
        inputs: Sequence[Array],
        updated: Sequence[Array],
        settle: Step | None = None,
    ) -> list[Array]:
        """Run a program whose last step overwrites persistent arrays.

        Args:
            inputs: arrays for the first inputs of the graph.
            updated: row-major arrays for the other inputs of the graph, and for its
                last outputs.
            settle: called before the last step; it may raise.

        Returns:
            New arrays for its first outputs.
        """
        row_major = list(map(self.memory.as_row_major, inputs))
        variables = len(self.graph.inputs) - len(row_major)
        fetched = self.specs[: len(self.specs) - (len(updated) - variables)]
        outputs = self.memory.allocate_results(fetched)
        first = len(self.graph.inputs)
        handle = self.handle
        ids: list[Any] = list(map(handle, updated))
        if ids != self.updated_ids:
            self.objects[len(row_major) : first] = ids[:variables]
            self.objects[first + len(outputs) : first + len(self.specs)] = ids[
                variables:
            ]
            self.updated_ids = ids
        self.objects[: len(row_major)] = list(map(handle, row_major))
        self.objects[first : first + len(outputs)] = list(map(handle, outputs))
        self._settle([*row_major, *updated[:variables]])
        steps = self.steps
        if settle is not None:
            steps = [*steps[: self.last], settle, *steps[self.last :]]
        if self.program.single_segment is not None:  # no kernel reads the slots
            for step in steps:
                step()
            return outputs
        arrays = [*row_major, *updated[:variables], *outputs, *updated[variables:]]
        self.slots[: len(arrays)] = arrays
        self._run_steps(steps)
        return outputs

    def call(self, inputs: Sequence[Array]) -> list[Array]:
        """Run a plain program; see `Program.is_plain`."""
        if self.extents is not None:  # the shapes differ between calls
            return self.run(inputs, None)
        if self._plain_call is None:
            self._plain_call = make_call(self)
        return self._plain_call(*inputs)

    def _settle(self, inputs: Sequence[Array]) -> None:
        """Recompute the values that depend on frozen inputs, if the inputs changed."""
        if self.program.preparations:
            self.prepared.settle(inputs)
            for slot, number, spec in self.cached_slots:
                array = self.prepared.array(number)
                view = self.memory.view(array, 0, spec.shape, spec.dtype)
                self.slots[slot] = view

    def _run_steps(
        self, steps: Sequence[Step], events: list[Event] | None = None
    ) -> None:
        """Run every step, then release the arrays of the call."""
        try:
            if events is None:
                for step in steps:
                    step()
            else:
                for timed in self.timed:
                    events += timed()
        finally:
            for exchange in self.exchanges.values():
                exchange.settle()
            for slot in self.dynamic:
                self.slots[slot] = None


def _collective_nbytes(node: Node) -> int:
    """Return the bytes of a collective's results; 0 (unknown) for other kernels."""
    is_collective = node.op.kind is Kind.COLLECTIVE
    return sum(y.spec.nbytes for y in node.outputs[:-1]) if is_collective else 0


def _events(step: Step, unit: int) -> list[Event]:
    start = perf_counter()
    step()
    return [Event(unit, start, perf_counter())]


def _no_events(step: Step) -> list[Event]:
    step()
    return []


def _collective_events(exchange: Exchange, unit: int) -> list[Event]:
    """Return the event of a collective that runs in parallel with other steps."""
    return [Event(unit, *exchange.wait(), thread=-1)]


def _code_events(runner: Any, first: int) -> list[Event]:
    """Return the events of generated code, with clock ticks converted to seconds."""
    start = perf_counter()
    rows = runner.timed()
    end = perf_counter()
    if not rows:
        return [Event(first, start, end)]
    lowest, highest = min(row[1] for row in rows), max(row[2] for row in rows)
    tick = (end - start) / max(1, highest - lowest)
    return [
        Event(
            first + number,
            start + tick * (started - lowest),
            start + tick * (ended - lowest),
            thread,
        )
        for number, started, ended, thread in rows
    ]


def _view_step(view: Any, slots: list[Array], source: int, target: int) -> Step:
    def step() -> None:
        slots[target] = view(slots[source])

    return step


def _step(
    call: Any, slots: list[Array], ins: list[int], outs: list[int], has_several: bool
) -> Step:
    if has_several:

        def step() -> None:
            call(*[slots[i] for i in ins], out=tuple([slots[o] for o in outs]))

    else:
        (target,) = outs

        def step() -> None:
            call(*[slots[i] for i in ins], out=slots[target])

    return step


def _copy_reshaped(x: Array, out: Array) -> None:
    out.reshape(x.shape)[...] = x
