"""Programs: a planned graph as generated code and kernel calls over one arena."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from toolkit.backends.base import Backend, Moment, Operand, Share, workspace_bytes
from toolkit.compiler.control import CONTROL_KERNELS, ControlKernel
from toolkit.compiler.frame import Frame
from toolkit.compiler.fuse import fuse, fused_p, is_literal
from toolkit.compiler.layout import Layouts
from toolkit.compiler.memory import Plan, plan_memory
from toolkit.compiler.passes import optimize, own
from toolkit.compiler.placement import place, transfer_p
from toolkit.compiler.products import join_products
from toolkit.compiler.schedule import casts_first, schedule, settle, updates_last
from toolkit.console.progress import stage
from toolkit.core.tensor import Tensor, backend
from toolkit.core.trace import body_graph
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ir import Graph, Kind, Node

Array = Any


class Program:
    """A graph, optimized, scheduled and planned for a backend, ready to run.

    Args:
        graph: what to compute.
        backend: whose kernels compute it.
        generate: whether the backend may generate code for nodes.
        inputs: how the inputs lie in memory; None: whole arrays, in row-major order.
        updates: pairs of an output and the input that it is the new value of, or None.
            If `in_place` they may be one array.

    Attributes:
        name: of the function that it comes from.
    """

    name = "a graph"

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
        with stage("simplifying"):
            optimized = own(optimize(place(graph, backend.device_name), backend))
        with stage("fusing"):
            if generate:
                optimized = join_products(optimized, backend, inputs)
                optimized = fuse(
                    optimized, backend.fuses, backend.anchors, backend.calls
                )
            self.graph = schedule(optimized)
            if generate and backend.is_accelerator:
                self.graph = casts_first(self.graph)
            if updates and generate and backend.generates:
                self.graph = settle(self.graph, updates)
        updated = [self.graph.outputs[i] for i, _ in updates]
        self.graph, self._barrier = updates_last(self.graph, updated)
        self.layouts = Layouts(self.graph, inputs)
        # For each node: what the backend lowered it to, or else its kernel.
        self.kernels: list[Any] = []
        self.lowered: list[Any] = []
        nodes = self._lower_all()
        self._barrier += len(nodes) - len(self.graph.nodes)
        self.graph = self.graph.replace(nodes)
        with stage("scheduling"):
            self.segments = list(self._segments())
        work = [self._work(i) for i in range(len(self.lowered))]
        moments = self._moments()
        with stage("planning memory"):
            self.plan: Plan = plan_memory(self.graph, self.layouts.views, work, moments)
        # Generated code knows arrays that come with a call by their numbers.
        moving = (*self.graph.inputs, *self.graph.outputs)
        self.numbers = {value: i for i, value in enumerate(moving)}
        reads = (x for node in self.graph.nodes for x in node.inputs)
        self.constants = {
            x: backend.constant(x.constant) for x in reads if x.constant is not None
        }
        self.in_place = bool(updates) and self._is_in_place(updates, moments)
        # The numbers of arrays that are written over in place.
        self.kept: set[int] = set()
        if self.in_place:
            first = len(self.graph.inputs)
            self.kept = {first + output for output, _ in updates}
            self.kept |= {number for _, number in updates if number is not None}
        self._frames: list[Frame] = []
        backend.on_shortage(self._frames_back)

    def _lower_all(self) -> list[Node]:
        """Lower each node, or its parts; returns these nodes."""
        nodes: list[Node] = []
        with stage("lowering", len(self.graph.nodes)) as lowering:
            for node in self.graph.nodes:
                kernel = self._kernel(node)
                lowered = self._lower(node, kernel)
                parts = [node] if lowered is not None else _apart(node)
                if len(parts) > 1:
                    kernels = [self._kernel(part) for part in parts]
                    pairs = zip(parts, kernels, strict=True)
                    self.lowered += [self._lower(part, k) for part, k in pairs]
                    self.kernels += kernels
                else:
                    self.lowered.append(lowered)
                    self.kernels.append(kernel)
                nodes += parts
                lowering.done += 1
        return nodes

    def _kernel(self, node: Node) -> Any:
        if node.op.kind is Kind.CONTROL:

            def compiled(graph: Graph, inputs: Any = None) -> Program:
                return Program(graph, self.backend, self.generate, inputs)

            return CONTROL_KERNELS[node.op.name](node, compiled)
        if node.op is fused_p:
            return Inlined(node.attrs["body"], self.backend)
        if node.op.kind is Kind.COMPOSITE and not self.backend.supports(node.op.name):
            body = body_graph(node.op, (x.spec for x in node.inputs), node.attrs)
            return Inlined(body, self.backend)
        if node.op is transfer_p:
            return partial(_copied, self.backend.kernels["stop_gradient"])
        return self.backend.kernels[node.op.name]

    def _lower(self, node: Node, kernel: Any) -> Any:
        if not self.generate or node.outputs[0] in self.layouts.views:
            return None
        inputs = [self.layouts.operand(x) for x in node.inputs]
        outputs = [self.layouts.operand(y) for y in node.outputs]
        if isinstance(kernel, ControlKernel) and not isinstance(kernel, Inlined):
            return kernel.lower(self.backend, inputs, outputs)
        layouts = (self.layouts[v] for v in (*node.inputs, *node.outputs))
        is_aligned = all(layout.offset % 16 == 0 for layout in layouts)
        return self.backend.lower(node, inputs, outputs, is_aligned)

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
            if run and self.graph.nodes[i].outputs[0] not in self.layouts.views:
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
            view, root = map(self.layouts.operand, (value, layout.root))
            whole = root.spec.nbytes == value.spec.nbytes and view.is_contiguous
            if whole:
                return Share(layout.root, value.spec.nbytes, True)
            rows = view.rows_kept_of(root, layout.offset)
            return Share(layout.root, value.spec.nbytes, rows > 0, rows)

        barrier = sum(i < self._barrier for i in run)
        lowered = [self.lowered[i] for i in run]
        return self.backend.assemble(lowered, share, barrier)

    def _moments(self) -> list[Moment]:
        """When each node runs; and when segments do."""
        moments, now = [Moment(0, 0, 0)] * len(self.lowered), 0
        self.starts: list[int] = []
        for members, native in self.segments:
            self.starts.append(now)
            steps = {} if native is None else native.moments
            for i, member in enumerate(members):
                steps_of = steps.get(i, (0, 0, 0))
                moments[member] = Moment(*(now + step for step in steps_of))
            now += 1 + max((moment.last for moment in steps.values()), default=0)
        return moments

    def _is_in_place(
        self, updates: Sequence[tuple[int, int | None]], moments: Sequence[Moment]
    ) -> bool:
        """Whether every update may overwrite what it is the new value of.

        All of the program must be generated code, which nothing can interrupt, and
        what reads an old value must have run before the new one is written; `settle`
        saw to it that what writes one and reads it may.
        """
        if self.native is None:
            return False
        nodes = self.graph.nodes
        writers = {y: i for i, node in enumerate(nodes) for y in node.outputs}
        readers = defaultdict(set)
        for i, node in enumerate(nodes):
            if i in self.native[0]:
                for x in node.inputs:
                    readers[self.layouts[x].root].add((i, x))
        for output, number in updates:
            writer = writers[self.graph.outputs[output]]
            if number is None:
                continue
            old = self.graph.inputs[number]
            for reader, read in readers[old]:
                if reader != writer and moments[reader].last >= moments[writer].written:
                    return False
                if reader == writer and read is not old:
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
            work = self.plan.work.get(index)  # none for a product of no extent
            return None, arena + (work.offset if work else 0) + operand[1]
        layout = self.layouts[value]
        root = layout.root
        if root in self.numbers:
            return self.numbers[root], layout.offset
        if root in self.constants:
            return None, self.backend.address(self.constants[root]) + layout.offset
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
        return self.graph.nodes[index].outputs[0] in self.layouts.views

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
        return self._on_frame(Frame.run, inputs, outs)

    def update(self, inputs: Sequence[Array], kept: Sequence[Array]) -> list[Array]:
        """Run in place, for a program that may: see `Frame.update`."""
        return self._on_frame(Frame.update, inputs, kept)

    def _on_frame(
        self, call: Callable[..., list[Array]], *arguments: Any
    ) -> list[Array]:
        frame = self._borrow()
        try:
            found = call(frame, *arguments)
        except MemoryError:  # what the frame holds may be what the next call lacks
            frame.close()
            raise
        except BaseException:
            self._frames.append(frame)
            raise
        self._frames.append(frame)
        return found

    def _frames_back(self) -> None:
        """Let go of the memory of calls that are over."""
        self._frames.clear()

    def _borrow(self) -> Frame:
        try:
            return self._frames.pop()
        except IndexError:  # all are lent to other threads
            return Frame(self)


def _copied(copy: Any, x: Array, *, out: Array, device: str) -> Array:
    """A transfer between logical devices of one memory."""
    return copy(x, out=out)


def _apart(node: Node) -> list[Node]:
    """A fused node as its anchor and what follows that; other nodes as they are."""
    if node.op is not fused_p:
        return [node]
    body = node.attrs["body"]
    anchor, *rest = body.nodes
    if anchor.op.kind in (Kind.ELEMENTWISE, Kind.REDUCE, Kind.VIEW) or not rest:
        return [node]
    made = {y for member in rest for y in member.outputs}
    reads = dict.fromkeys(x for member in rest for x in member.inputs)
    inputs = [x for x in reads if x not in made and not is_literal(x)]
    outputs = [y for y in body.outputs if y in made]
    graph = Graph(tuple(inputs), tuple(rest), tuple(outputs))
    return [anchor, Node(fused_p, inputs, {"body": graph}, outputs)]


class Inlined(ControlKernel):
    """The program of a body: what a fused node, or a composite, runs as where no code
    is generated."""

    def __init__(self, body: Graph, backend: Backend) -> None:
        self.body = body
        self.backend = backend

    @cached_property
    def programs(self) -> dict[str, Program]:
        """The body's nodes, one kernel each."""
        return {"body": Program(self.body, self.backend, generate=False)}

    def __call__(self, *inputs: Array, out: Any, work: Any = None) -> None:
        self.programs["body"].run(inputs, out)


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
