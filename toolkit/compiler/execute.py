"""Programs: a planned graph as a flat list of kernel calls over one arena.

A `Frame` is an arena with every call bound to its arrays. A running call borrows a
frame, so concurrent callers never share one; what it returns owns its memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from toolkit.backends.base import Backend, Share, workspace_bytes
from toolkit.compiler.control import CONTROL_KERNELS, ControlKernel, Inlined
from toolkit.compiler.fuse import fuse, fused_p
from toolkit.compiler.layout import Layouts
from toolkit.compiler.memory import Plan, plan_memory
from toolkit.compiler.passes import optimize
from toolkit.compiler.schedule import schedule
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
    """

    def __init__(self, graph: Graph, backend: Backend, generate: bool = True) -> None:
        self.source = graph
        self.backend = backend
        self.generate = generate
        optimized = optimize(graph, backend)
        if generate:
            optimized = fuse(optimized, backend.fuses)
        self.graph = schedule(optimized)
        self.layouts = Layouts(self.graph)
        # For each node: what the backend lowered it to, or else its kernel.
        self.lowered = [self._lower(node) for node in self.graph.nodes]
        self.kernels = [
            self._kernel(node) if lowered is None else None
            for node, lowered in zip(self.graph.nodes, self.lowered, strict=True)
        ]
        self.segments = list(self._segments())
        self.has_native = any(native is not None for _, native in self.segments)
        work = [self._work(i) for i in range(len(self.lowered))]
        self.plan: Plan = plan_memory(
            self.graph, self.layouts.views, work, self._moments()
        )
        self._frames: list[Frame] = []

    def _lower(self, node: Node) -> Any:
        if not self.generate or id(node.outputs[0]) in self.layouts.views:
            return None
        operand = self.layouts.operand
        return self.backend.lower(
            node, [operand(x) for x in node.inputs], [operand(y) for y in node.outputs]
        )

    def _kernel(self, node: Node) -> Any:
        if node.op.kind is Kind.CONTROL:
            programs = {
                name: Program(value, self.backend, self.generate)
                for name, value in node.attrs.items()
                if isinstance(value, Graph)
            }
            return CONTROL_KERNELS[node.op.name](node, programs)
        if node.op is fused_p:
            body = Program(node.attrs["body"], self.backend, generate=False)
            return Inlined(node, {"body": body})
        return self.backend.kernels[node.op.name]

    def _work(self, index: int) -> int:
        """Bytes of scratch memory of a node."""
        lowered, node = self.lowered[index], self.graph.nodes[index]
        if lowered is not None:
            return int(lowered.work)
        specs = [x.spec for x in node.inputs]
        kernel: Any = self.kernels[index]
        return workspace_bytes(kernel, specs, dict(node.attrs))

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

        return self.backend.assemble([self.lowered[i] for i in run], share)

    def operand(self, index: int, operand: tuple[str, int]) -> Any:
        """The value that a lowered node's operand is, None for scratch memory."""
        kind, number = operand
        node = self.graph.nodes[index]
        if kind == "work":
            return None
        return (node.inputs if kind == "in" else node.outputs)[number]

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

    @property
    def nbytes(self) -> int:
        """Peak bytes of intermediate values, sub-programs included."""
        inner: int = sum(
            program.nbytes
            for kernel in self.kernels
            for program in getattr(kernel, "programs", {}).values()
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
        if all(native is not None for _, native in self.segments):
            return self.run(inputs, outs)  # machine code warns of nothing
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


class Frame:
    """One arena, and the steps of a program bound to memory on it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.backend = program.backend
        plan, graph = program.plan, program.graph
        self.arena = self.backend.arena(plan.nbytes)
        # Arrays by slot; those in `fixed` never change from call to call.
        self.slots: list[Array] = []
        self.index: dict[int, int] = {}
        self.fixed: set[int] = set()
        self.inputs = [self._slot(value) for value in graph.inputs]
        for value in (v for node in graph.nodes for v in node.inputs):
            if value.constant is not None:
                self._fix(value, np.asarray(value.constant, order="C"))
        self._collect(graph)
        # What generated code reads from and writes to arrays that come with a call.
        self.moving = [*self.inputs, *(slot for _, slot in self.direct)]
        self.numbers = {slot: i for i, slot in enumerate(self.moving)}
        self.objects = (ctypes.c_int64 * max(1, len(self.moving)))()
        self.steps: list[Step] = []
        self.step_nodes: list[list[Node]] = []  # what each step computes
        self._bind(plan, graph)
        self.dynamic = [s for s in range(len(self.slots)) if s not in self.fixed]

    def _slot(self, value: Any) -> int:
        if id(value) not in self.index:
            self.index[id(value)] = len(self.slots)
            self.slots.append(None)
        return self.index[id(value)]

    def _fix(self, value: Any, array: Array) -> None:
        slot = self._slot(value)
        self.slots[slot] = array
        self.fixed.add(slot)

    def _collect(self, graph: Graph) -> None:
        """Note which outputs nodes write themselves, and which must be copied."""
        written = {
            id(value)
            for node in graph.nodes
            for value in node.outputs
            if id(value) not in self.program.layouts.views
        }
        self.specs = [(value.spec.shape, value.spec.dtype) for value in graph.outputs]
        self.direct: list[tuple[int, int]] = []  # (output, slot)
        self.copied: list[tuple[int, int]] = []
        for i, value in enumerate(graph.outputs):
            if value.constant is not None:
                self._fix(value, value.constant)
            slot = self._slot(value)
            if id(value) in written:
                written.discard(id(value))
                self.direct.append((i, slot))
            else:
                self.copied.append((i, slot))

    # --- binding ----------------------------------------------------------------------

    def _bind(self, plan: Plan, graph: Graph) -> None:
        """Turn every segment into a step; those on fixed arrays are bound for good."""
        view = self.backend.view
        for value in (v for node in graph.nodes for v in node.outputs):
            buffer = plan.buffers.get(id(value))
            if buffer is not None:
                shape, dtype = value.spec.shape, value.spec.dtype
                self._fix(value, view(self.arena, buffer.offset, shape, dtype))
        viewed = self._needed_views(graph)
        for members, native in self.program.segments:
            nodes = [graph.nodes[i] for i in members]
            if native is not None:
                runner = native.bind(partial(self._place, members), self.objects)
                self.steps.append(runner.run)
            elif id(nodes[0].outputs[0]) not in plan.views:
                self._bind_kernel(members[0], nodes[0], plan)
            elif id(nodes[0].outputs[0]) in viewed:
                self._bind_view(nodes[0])
            self.step_nodes += [nodes] * (len(self.steps) - len(self.step_nodes))

    def _needed_views(self, graph: Graph) -> set[int]:
        """The views that kernels or copies read, and what those are views of."""
        views = self.program.layouts.views
        needed = {id(graph.outputs[i]) for i, _ in self.copied}
        for i in reversed(range(len(graph.nodes))):
            node = graph.nodes[i]
            is_view = id(node.outputs[0]) in views
            if is_view and id(node.outputs[0]) not in needed:
                continue
            if is_view or self.program.lowered[i] is None:
                needed |= {id(x) for x in node.inputs}
        return needed

    def _place(
        self, members: list[int], which: int, operand: tuple[str, int]
    ) -> tuple[int | None, int]:
        """Where an operand of a lowered node is, for the backend to bind."""
        value = self.program.operand(members[which], operand)
        if value is None:
            work = self.program.plan.work[members[which]]
            return None, self.arena.ctypes.data + work.offset + operand[1]
        layout = self.program.layouts[value]
        slot = self._slot(layout.root)
        if slot in self.fixed:
            return None, self.slots[slot].ctypes.data + layout.offset
        return self.numbers[slot], layout.offset

    def _bind_view(self, node: Node) -> None:
        (source,) = [self._slot(value) for value in node.inputs]
        view = partial(self.backend.kernels[node.op.name], **node.attrs)
        if source in self.fixed:
            self._fix(node.outputs[0], view(self.slots[source]))
        else:
            target = self._slot(node.outputs[0])
            self.steps.append(_view_step(view, self.slots, source, target))

    def _bind_kernel(self, index: int, node: Node, plan: Plan) -> None:
        kernel: Any = self.program.kernels[index]
        ins = [self._slot(value) for value in node.inputs]
        outs = [self._slot(value) for value in node.outputs]
        attrs = {} if isinstance(kernel, ControlKernel) else dict(node.attrs)
        if node.op.kind is Kind.VIEW:  # a reshape that has to copy
            kernel, attrs = _copy_reshaped, {}
        work = plan.work.get(index)
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
        slots, empty = self.slots, self.backend.empty
        for slot, array in zip(self.inputs, inputs, strict=True):
            slots[slot] = array
        results: list[Array] = list(outs) if outs else [None] * len(self.specs)
        for i, (shape, dtype) in enumerate(self.specs):
            if results[i] is None:
                results[i] = empty(shape, dtype)
        for i, slot in self.direct:
            slots[slot] = results[i]
        if self.program.has_native:
            self._number(slots)
        try:
            if times is None:
                for step in self.steps:
                    step()
            else:
                times += [_timed(step) for step in self.steps]
            for i, slot in self.copied:
                np.copyto(results[i], slots[slot])
        finally:
            for slot in self.dynamic:
                slots[slot] = None
        return results

    def _number(self, slots: list[Array]) -> None:
        """Tell generated code where this call's arrays are."""
        for slot in self.inputs:
            array = slots[slot]
            if type(array) is not np.ndarray or not array.flags.c_contiguous:
                slots[slot] = np.array(array, order="C")
        self.objects[: len(self.moving)] = [id(slots[slot]) for slot in self.moving]


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
