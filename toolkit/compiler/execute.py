"""Programs: a planned graph as a flat list of kernel calls over one arena.

A `Frame` is an arena with every call bound to its arrays. A running call borrows a
frame, so concurrent callers never share one; what it returns owns its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from toolkit.backends.base import Backend, workspace_bytes
from toolkit.compiler.control import CONTROL_KERNELS, ControlKernel
from toolkit.compiler.fuse import fuse, fused_p
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
        generate: whether the backend may generate kernels for fused nodes.
    """

    def __init__(self, graph: Graph, backend: Backend, generate: bool = True) -> None:
        self.source = graph
        self.backend = backend
        self.generate = generate
        optimized = optimize(graph, backend)
        if generate:
            optimized = fuse(optimized, backend.fuses)
        self.graph = schedule(optimized)
        self.kernels = [self._kernel(node) for node in self.graph.nodes]
        by_node = dict(zip(map(id, self.graph.nodes), self.kernels, strict=True))
        self.plan: Plan = plan_memory(
            self.graph,
            lambda node: workspace_bytes(
                by_node[id(node)], [x.spec for x in node.inputs], dict(node.attrs)
            ),
        )
        self._frames: list[Frame] = []

    def _kernel(self, node: Node) -> Any:
        if node.op.kind is Kind.CONTROL:
            programs = {
                name: Program(value, self.backend, self.generate)
                for name, value in node.attrs.items()
                if isinstance(value, Graph)
            }
            return CONTROL_KERNELS[node.op.name](node, programs)
        if node.op is fused_p:
            return self.backend.fused_kernel(node.attrs["body"])
        return self.backend.kernels[node.op.name]

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
    """One arena, and the calls of a program bound to arrays on it."""

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
                self._fix(value, value.constant)
        self.steps: list[Step] = []
        self.step_nodes: list[Node] = []  # which node each step computes
        self._bind(plan, graph)
        self._collect(graph)

    def _slot(self, value: Any) -> int:
        if id(value) not in self.index:
            self.index[id(value)] = len(self.slots)
            self.slots.append(None)
        return self.index[id(value)]

    def _fix(self, value: Any, array: Array) -> None:
        slot = self._slot(value)
        self.slots[slot] = array
        self.fixed.add(slot)

    def _bind(self, plan: Plan, graph: Graph) -> None:
        """Turn every node into a call; those on fixed arrays are bound for good."""
        arena, view = self.arena, self.backend.view
        for i, node in enumerate(graph.nodes):
            for value in node.outputs:
                buffer = plan.buffers.get(id(value))
                if buffer is not None:
                    spec = value.spec
                    self._fix(value, view(arena, buffer.offset, spec.shape, spec.dtype))
            work = plan.work.get(i)
            scratch = work and view(arena, work.offset, (work.nbytes,), "uint8")
            self._bind_node(node, self.program.kernels[i], scratch, plan)
            self.step_nodes += [node] * (len(self.steps) - len(self.step_nodes))

    def _bind_node(self, node: Node, kernel: Any, scratch: Array, plan: Plan) -> None:
        ins = [self._slot(value) for value in node.inputs]
        outs = [self._slot(value) for value in node.outputs]
        static = self.fixed.issuperset(ins)
        attrs = dict(node.attrs)
        if isinstance(kernel, ControlKernel):
            attrs = {}
        if node.op is fused_p:
            kernel, attrs = kernel.prepared(), {}
        if id(node.outputs[0]) in plan.views:
            view = partial(kernel, **attrs)
            if static:
                self._fix(node.outputs[0], view(self.slots[ins[0]]))
            else:
                self.steps.append(_view_step(view, self.slots, ins[0], outs[0]))
            return
        if node.op.kind is Kind.VIEW:  # a reshape that has to copy
            kernel, attrs = _copy_reshaped, {}
        if scratch is not None:
            attrs["work"] = scratch
        several = len(outs) > 1 or isinstance(kernel, ControlKernel)
        if static and self.fixed.issuperset(outs):
            arrays = [self.slots[slot] for slot in ins]
            results = tuple(self.slots[slot] for slot in outs)
            out = results if several else results[0]
            self.steps.append(partial(kernel, *arrays, out=out, **attrs))
        else:
            call = partial(kernel, **attrs) if attrs else kernel
            self.steps.append(_step(call, self.slots, ins, outs, several))

    def _collect(self, graph: Graph) -> None:
        """Note which outputs nodes write themselves, and which must be copied."""
        written = {
            id(value)
            for node in graph.nodes
            for value in node.outputs
            if id(value) not in self.program.plan.views
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
        self.dynamic = [s for s in range(len(self.slots)) if s not in self.fixed]

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
