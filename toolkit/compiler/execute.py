"""Programs: a planned graph as generated code and kernel calls over one arena.

A `Frame` is an arena with every step bound to memory on it. A running call borrows a
frame, so concurrent callers never share one; what it returns owns its memory.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np

from toolkit.backends.base import Backend, Operand, Share, workspace_bytes
from toolkit.compiler.control import CONTROL_KERNELS, ControlKernel
from toolkit.compiler.fuse import fuse, fused_p
from toolkit.compiler.layout import Layouts
from toolkit.compiler.memory import Plan, overwrites, plan_memory
from toolkit.compiler.passes import optimize, own
from toolkit.compiler.schedule import schedule, updates_last
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ir import Graph, Kind, Node
from toolkit.tensor import Tensor, backend

Array = Any
Step = Callable[[], Any]


class Program:
    """A graph, optimized, scheduled and planned for a backend, ready to run.

    Args:
        graph: what to compute.
        backend: whose kernels compute it.
        generate: whether the backend may generate code for nodes.
        inputs: how the inputs lie in memory; None: whole arrays, in row-major order.
        updates: pairs of an output and the input that it is the new value of, or None.
            If `in_place` they may be one array.
    """

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        generate: bool = True,
        inputs: Sequence[Operand] | None = None,
        updates: Sequence[tuple[int, int | None]] = (),
    ) -> None:
        self.source = graph
        self.backend = backend
        self.generate = generate
        optimized = own(optimize(graph, backend))
        if generate:
            optimized = fuse(optimized, backend.fuses)
        self.graph = schedule(optimized)
        updated = [self.graph.outputs[i] for i, _ in updates]
        self.graph, self._barrier = updates_last(self.graph, updated)
        self.layouts = Layouts(self.graph, inputs)
        # For each node: what the backend lowered it to, or else its kernel.
        self.kernels: list[Any] = []
        self.lowered: list[Any] = []
        for node in self.graph.nodes:
            kernel = self._kernel(node)
            lowered = self._lower(node, kernel)
            self.lowered.append(lowered)
            self.kernels.append(kernel)
        self.segments = list(self._segments())
        work = [self._work(i) for i in range(len(self.lowered))]
        moments = self._moments()
        self.plan: Plan = plan_memory(self.graph, self.layouts.views, work, moments)
        # Generated code knows arrays that come with a call by their numbers.
        moving = (*self.graph.inputs, *self.graph.outputs)
        self.numbers = {id(value): i for i, value in enumerate(moving)}
        reads = (x for node in self.graph.nodes for x in node.inputs)
        self.constants = {
            id(x): np.asarray(x.constant, order="C")
            for x in reads
            if x.constant is not None
        }
        self.in_place = bool(updates) and self._is_in_place(updates, moments)
        self._frames: list[Frame] = []

    def _kernel(self, node: Node) -> Any:
        if node.op.kind is Kind.CONTROL:

            def compiled(graph: Graph, inputs: Any = None) -> Program:
                return Program(graph, self.backend, self.generate, inputs)

            return CONTROL_KERNELS[node.op.name](node, compiled)
        if node.op is fused_p:
            return Inlined(node, self.backend)
        return self.backend.kernels[node.op.name]

    def _lower(self, node: Node, kernel: Any) -> Any:
        if not self.generate or id(node.outputs[0]) in self.layouts.views:
            return None
        inputs = [self.layouts.operand(x) for x in node.inputs]
        outputs = [self.layouts.operand(y) for y in node.outputs]
        if isinstance(kernel, ControlKernel) and node.op is not fused_p:
            return kernel.lower(self.backend, inputs, outputs)
        return self.backend.lower(node, inputs, outputs)

    def _work(self, index: int) -> int:
        """Bytes of scratch memory of a node."""
        lowered, node = self.lowered[index], self.graph.nodes[index]
        if lowered is not None:
            return int(lowered.work)
        specs = [x.spec for x in node.inputs]
        return workspace_bytes(self.kernels[index], specs, dict(node.attrs))

    def _segments(self) -> Iterator[tuple[list[int], Any]]:
        """Runs of lowered nodes with what they are joined to; other nodes alone."""
        run: list[int] = []
        for i, lowered in enumerate(self.lowered):
            if lowered is not None:
                run.append(i)
                continue
            if run and id(self.graph.nodes[i].outputs[0]) not in self.layouts.views:
                yield run, self._assemble(run)
                run = []
            yield [i], None
        if run:
            yield run, self._assemble(run)

    def _assemble(self, run: list[int]) -> Any:
        def share(which: int, operand: tuple[str, int]) -> Share:
            value = self.operand(run[which], operand)
            if value is None:
                return Share(("work", run[which]), self.lowered[run[which]].work, False)
            layout = self.layouts[value]
            whole = layout.root.spec.nbytes == value.spec.nbytes
            whole = whole and self.layouts.operand(value).is_contiguous
            return Share(id(layout.root), value.spec.nbytes, whole)

        barrier = sum(i < self._barrier for i in run)
        lowered = [self.lowered[i] for i in run]
        return self.backend.assemble(lowered, share, barrier)

    def _moments(self) -> list[tuple[int, int]]:
        """When each node runs: its first and its last step."""
        moments, now = [(0, 0)] * len(self.lowered), 0
        for members, native in self.segments:
            steps = {} if native is None else native.moments
            for i, member in enumerate(members):
                first, last = steps.get(i, (0, 0))
                moments[member] = (now + first, now + last)
            now += 1 + max((last for _, last in steps.values()), default=0)
        return moments

    def _is_in_place(
        self, updates: Sequence[tuple[int, int | None]], moments: list[tuple[int, int]]
    ) -> bool:
        """Whether every update may overwrite what it is the new value of.

        All of the program must be generated code, which nothing can interrupt, and
        what reads an old value must have run before the new one is written.
        """
        if self.native is None:
            return False
        nodes = self.graph.nodes
        writers = {id(y): i for i, node in enumerate(nodes) for y in node.outputs}
        readers = defaultdict(set)
        for i, node in enumerate(nodes):
            if i in self.native[0]:
                for x in node.inputs:
                    readers[id(self.layouts[x].root)].add((i, id(x)))
        for output, number in updates:
            writer = writers[id(self.graph.outputs[output])]
            if number is None:
                continue
            old = self.graph.inputs[number]
            for reader, read in readers[id(old)]:
                if reader == writer:
                    if read != id(old) or not overwrites(nodes[writer], old):
                        return False
                elif moments[reader][1] >= moments[writer][0]:
                    return False
        return True

    # --- what generated code is bound to ----------------------------------------------

    def operand(self, index: int, operand: tuple[str, int]) -> Any:
        """The value that a lowered node's operand is, None for scratch memory."""
        kind, number = operand
        node = self.graph.nodes[index]
        if kind == "work":
            return None
        return (node.inputs if kind == "in" else node.outputs)[number]

    def place(
        self, arena: int, index: int, operand: tuple[str, int]
    ) -> tuple[int | None, int]:
        """Where an operand is when the arena is at an address.

        Returns:
            (None, its address), or (the number of an array of the call, the offset).
        """
        value = self.operand(index, operand)
        if value is None:
            return None, arena + self.plan.work[index].offset + operand[1]
        layout = self.layouts[value]
        root = id(layout.root)
        if root in self.numbers:
            return self.numbers[root], layout.offset
        if root in self.constants:
            return None, self.constants[root].ctypes.data + layout.offset
        return None, arena + self.plan.buffers[root].offset + layout.offset

    @cached_property
    def native(self) -> Any:
        """The generated code, if that is all that the program is; else None."""
        steps = [
            (members, native)
            for members, native in self.segments
            if native is not None or not self._is_view(members[0])
        ]
        return steps[0] if len(steps) == 1 and steps[0][1] is not None else None

    def _is_view(self, index: int) -> bool:
        return id(self.graph.nodes[index].outputs[0]) in self.layouts.views

    # --- running ----------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Peak bytes of intermediate values, sub-programs included."""
        inner: int = sum(
            program.nbytes
            for kernel, lowered in zip(self.kernels, self.lowered, strict=True)
            for program in getattr(kernel, "programs", {}).values()
            if lowered is None
        )
        return self.plan.nbytes + inner

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Run.

        Args:
            inputs: one array for each input of the graph; never modified.
            outs: for each output an array to write it to, or None for a new one.

        Returns:
            One array for each output.
        """
        if self.native is not None:  # machine code warns of nothing
            return self.run(inputs, outs)
        with self.backend.errstate():
            return self.run(inputs, outs)

    def run(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Like a call, for callers that have silenced warnings already."""
        try:
            frame = self._frames.pop()
        except IndexError:  # all are lent to other threads
            frame = Frame(self)
        try:
            return frame.run(inputs, outs)
        finally:
            self._frames.append(frame)


class Inlined(ControlKernel):
    """The program of a body: what a fused node runs as where no code is generated."""

    def __init__(self, node: Node, backend: Backend) -> None:
        self.node = node
        self.backend = backend

    @cached_property
    def programs(self) -> dict[str, Program]:  # type: ignore[override]
        """The body's nodes, one kernel each."""
        return {"body": Program(self.node.attrs["body"], self.backend, generate=False)}

    def __call__(self, *inputs: Array, out: Any, work: Any = None) -> None:
        self.programs["body"].run(inputs, out)


class Frame:
    """One arena, and the steps of a program bound to memory on it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.backend = program.backend
        self.graph = program.graph
        self.arena = self.backend.arena(program.plan.nbytes)
        self.specs = [(y.spec.shape, y.spec.dtype) for y in self.graph.outputs]
        # The `id` of each array of a call, for generated code.
        self.objects = (ctypes.c_int64 * max(1, len(program.numbers)))()
        # Arrays that kernels work on, by slot: first those of a call. Those in `fixed`
        # never change from call to call.
        self.slots: list[Array] = [None] * len(program.numbers)
        self.index = dict(program.numbers)
        self.fixed: set[int] = set()
        self.steps: list[Step] = []
        self.step_nodes: list[list[Node]] = []  # what each step computes
        self.has_native = any(native is not None for _, native in program.segments)
        self._bind()
        self.dynamic = [s for s in range(len(self.slots)) if s not in self.fixed]

    # --- binding ----------------------------------------------------------------------

    def _bind(self) -> None:
        """Turn every segment into a step; those on fixed arrays are bound for good."""
        needed = self._needed_by_kernels()
        for members, native in self.program.segments:
            nodes = [self.graph.nodes[i] for i in members]
            if native is not None:
                address = self.arena.ctypes.data
                runner = native.bind(
                    partial(self._place, address, members), self.objects
                )
                self.steps.append(runner.run)
            elif id(nodes[0].outputs[0]) not in self.program.layouts.views:
                self._bind_kernel(members[0], nodes[0])
            elif id(nodes[0].outputs[0]) in needed:
                self._bind_view(nodes[0])
            self.step_nodes += [nodes] * (len(self.steps) - len(self.step_nodes))

    def _place(
        self, arena: int, members: list[int], which: int, operand: tuple[str, int]
    ) -> tuple[int | None, int]:
        return self.program.place(arena, members[which], operand)

    def _needed_by_kernels(self) -> set[int]:
        """The values that kernels read, and what those are views of."""
        views, needed = self.program.layouts.views, set()
        for i in reversed(range(len(self.graph.nodes))):
            node = self.graph.nodes[i]
            is_view = id(node.outputs[0]) in views
            if is_view and id(node.outputs[0]) not in needed:
                continue
            if is_view or self.program.lowered[i] is None:
                needed |= {id(x) for x in node.inputs}
        return needed

    def _slot(self, value: Any) -> int:
        """The slot of a value that a kernel reads or writes."""
        if id(value) not in self.index:
            self.index[id(value)] = len(self.slots)
            self.slots.append(None)
            buffer = self.program.plan.buffers.get(id(value))
            if value.constant is not None:
                self._fix(value, self.program.constants[id(value)])
            elif buffer is not None:
                shape, dtype = value.spec.shape, value.spec.dtype
                array = self.backend.view(self.arena, buffer.offset, shape, dtype)
                self._fix(value, array)
        return self.index[id(value)]

    def _fix(self, value: Any, array: Array) -> None:
        slot = self.index[id(value)]
        self.slots[slot] = array
        self.fixed.add(slot)

    def _bind_view(self, node: Node) -> None:
        source, target = self._slot(node.inputs[0]), self._slot(node.outputs[0])
        view = partial(self.backend.kernels[node.op.name], **node.attrs)
        if source in self.fixed:
            self._fix(node.outputs[0], view(self.slots[source]))
        else:
            self.steps.append(_view_step(view, self.slots, source, target))

    def _bind_kernel(self, index: int, node: Node) -> None:
        kernel: Any = self.program.kernels[index]
        ins = [self._slot(value) for value in node.inputs]
        outs = [self._slot(value) for value in node.outputs]
        attrs = {} if isinstance(kernel, ControlKernel) else dict(node.attrs)
        if node.op.kind is Kind.VIEW:  # a reshape that has to copy
            kernel, attrs = _copy_reshaped, {}
        work = self.program.plan.work.get(index)
        if work is not None:
            attrs["work"] = self.backend.view(
                self.arena, work.offset, (work.nbytes,), "uint8"
            )
        several = len(outs) > 1 or isinstance(kernel, ControlKernel)
        if self.fixed.issuperset(ins) and self.fixed.issuperset(outs):
            arrays = [self.slots[slot] for slot in ins]
            results = tuple(self.slots[slot] for slot in outs)
            out = results if several else results[0]
            self.steps.append(partial(kernel, *arrays, out=out, **attrs))
        else:
            call = partial(kernel, **attrs) if attrs else kernel
            self.steps.append(_step(call, self.slots, ins, outs, several))

    # --- running ----------------------------------------------------------------------

    def run(
        self,
        inputs: Sequence[Array],
        outs: Sequence[Array | None] | None,
        times: list[float] | None = None,
    ) -> list[Array]:
        """Run every step; `times`, if given, takes the seconds of each."""
        arrays = list(inputs)
        if self.has_native:
            arrays = [_in_order(a) for a in inputs]
        results: list[Array] = list(outs) if outs else [None] * len(self.specs)
        for i, (shape, dtype) in enumerate(self.specs):
            if results[i] is None:
                results[i] = self.backend.empty(shape, dtype)
        arrays += results
        if self.has_native:
            self.objects[: len(arrays)] = [id(a) for a in arrays]
        self.slots[: len(arrays)] = arrays
        try:
            if times is None:
                for step in self.steps:
                    step()
            else:
                times += [_timed(step) for step in self.steps]
        finally:
            for slot in self.dynamic:
                self.slots[slot] = None
        return results


def _in_order(array: Array) -> Array:
    """As generated code expects an array: NumPy's own class, row-major."""
    if type(array) is np.ndarray and array.flags.c_contiguous:
        return array
    return np.array(array, order="C")


def _timed(step: Step) -> float:
    start = perf_counter()
    step()
    return perf_counter() - start


def _view_step(view: Any, slots: list[Array], source: int, target: int) -> Step:
    def step() -> None:
        slots[target] = view(slots[source])

    return step


def _step(
    call: Any, slots: list[Array], ins: list[int], outs: list[int], several: bool
) -> Step:
    if several:

        def step() -> None:
            call(*[slots[i] for i in ins], out=tuple([slots[o] for o in outs]))

    else:
        (target,) = outs

        def step() -> None:
            call(*[slots[i] for i in ins], out=slots[target])

    return step


def _copy_reshaped(x: Array, out: Array) -> None:
    np.copyto(out.reshape(x.shape), x)


def _run_graph(
    graph: Graph, fetches: Sequence[Any], feeds: Mapping[Any, Any]
) -> list[Any]:
    part = graph.slice(list(feeds), fetches)
    missing = [value for value in part.inputs if value not in feeds]
    if missing:
        specs = ", ".join(repr(value.spec) for value in missing)
        raise ArgumentError(f"Graph.run: the fetches also need inputs {specs}")
    arrays = []
    for value in part.inputs:
        array = backend().asarray(feeds[value], value.spec.dtype)
        if array.shape != value.spec.shape:
            raise ShapeError(
                f"Graph.run: expected {value.spec} to be fed; "
                f"received shape {array.shape}"
            )
        arrays.append(array)
    return [Tensor(array) for array in Program(part, backend())(arrays)]


# The representation cannot import the compiler, so its method is defined from here.
Graph.run = _run_graph  # type: ignore[assignment, method-assign]
