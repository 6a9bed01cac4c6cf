"""Lowering: the kernels and the generated code of an ordered graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from toolkit.backends.generator import CodeGenerator
from toolkit.backends.target import Target
from toolkit.compiler.control import (
    CONTROL_KERNELS,
    ControlKernel,
    Inlined,
    collective_kernel,
)
from toolkit.compiler.execute import Executable
from toolkit.compiler.frozen_values import is_fixed, is_worth_caching
from toolkit.compiler.fusion.fuse import is_literal
from toolkit.compiler.passes.placement import transfer_p
from toolkit.compiler.passes.schedule import first_late_index
from toolkit.compiler.program import LoweredGraph, Program, Segment, Unit
from toolkit.compiler.staging import StagedCollective
from toolkit.console.progress import stage
from toolkit.dtypes import is_float, itemsize
from toolkit.ir import Graph, Kind, Node, Value, fused_node, fused_p
from toolkit.ir.extents import has_extent, is_always
from toolkit.plans.layout import Layouts
from toolkit.plans.locations import NodeOperands, Shares
from toolkit.plans.operands import Operand, OperandMemory, StepSpan

Array = Any
Compile = Callable[[Graph, Target], Program]


def lower(graph: Graph, target: Target, compile_graph: Compile) -> LoweredGraph:
    """Select a kernel or generate code for each node, and join code to segments.

    Args:
        graph: the result of the last pass, in execution order.
        target: the compilation target.
        compile_graph: compiles sub-graphs of nodes.
    """
    layouts, generator = Layouts(graph, target.inputs), target.backend.generator
    lowering = _Lowering(target, layouts, compile_graph, graph)
    try:
        units = lowering.units(graph)
    except BaseException:
        # otherwise the process would wait for all queued compilation before it exits
        generator.cancel_precompile()
        raise
    barrier = first_late_index(graph, target.updates) + len(units) - len(graph.nodes)
    with stage("scheduling"):
        segments, moments = _divide(units, layouts, generator, barrier)
    return LoweredGraph(
        graph=graph.replace(unit.node for unit in units),
        units=units,
        layouts=layouts,
        segments=segments,
        moments=moments,
        cached_values=frozenset(lowering.cached_values),
    )


class _Lowering:
    """Selection of a kernel or generated code for each node."""

    def __init__(
        self,
        target: Target,
        layouts: Layouts,
        compile_graph: Compile,
        graph: Graph,
    ) -> None:
        self.target = target
        self.frozen = {graph.inputs[number] for number in target.frozen}
        self.frozen -= _narrow_operands_of_loops(graph, layouts)
        # Outputs of nodes that depend on frozen inputs only.
        self.cached_values: set[Value] = set()
        self.returned = {layouts[y].root for y in graph.outputs}
        self.replaced = {
            graph.outputs[output]: graph.inputs[number]
            for output, number in target.updates
            if number is not None
        }
        self.kernels = target.backend.kernels
        self.generator = target.backend.generator
        self.layouts = layouts
        self.compile_graph = compile_graph

    def units(self, graph: Graph) -> list[Unit]:
        """Return the units of a graph; split a fused node that nothing can compute."""
        units: list[Unit] = []
        with stage("lowering", len(graph.nodes)) as lowering:
            for node in graph.nodes:
                unit = self._unit(node)
                members = [node] if unit.lowered is not None else _split_anchor(node)
                units += map(self._unit, members) if len(members) > 1 else [unit]
                lowering.count += 1
        return units

    def _unit(self, node: Node) -> Unit:
        kernel = self._kernel(node)
        return Unit(node, kernel, self._lowered(node, kernel))

    def _kernel(self, node: Node) -> Any:
        if node.op.kind is Kind.CONTROL:
            return CONTROL_KERNELS[node.op.name](node.attrs, self._executable)
        if node.op.kind is Kind.COLLECTIVE:
            backend, kernel = self.target.backend, collective_kernel(node)
            is_staged = backend.is_accelerator
            return StagedCollective(kernel, backend.memory) if is_staged else kernel
        if node.op is fused_p:
            return Inlined(node.attrs, self._per_node_executable)
        if node.op.kind is Kind.COMPOSITE and not self.kernels.supports(node.op.name):
            body = node.op.graph((x.spec for x in node.inputs), node.attrs)
            return Inlined({"body": body}, self._per_node_executable)
        if node.op is transfer_p:
            return partial(_copy_between_devices, self.kernels["stop_gradient"])
        return self.kernels[node.op.name]

    def _executable(
        self, graph: Graph, inputs: Any = None, updates: Any = ()
    ) -> Executable:
        """Return a sub-graph of a loop or a branch as a separate program."""
        target = replace(
            self.target,
            inputs=inputs,
            updates=updates,
            frozen=[i for i, x in enumerate(inputs or ()) if x.is_frozen],
            is_body=True,
        )
        return Executable(self.compile_graph(graph, target))

    def _per_node_executable(self, graph: Graph, inputs: Any = None) -> Executable:
        """Return a body without generated code, as one kernel for each node."""
        return Executable(
            self.compile_graph(graph, Target(self.target.backend, generate=False))
        )

    def _lowered(self, node: Node, kernel: Any) -> Any:
        if not self.target.generate or node.outputs[0] in self.layouts.views:
            return None
        inputs = [self._operand(x, node) for x in node.inputs]
        outputs = [self.layouts.operand(y) for y in node.outputs]
        if node.op.kind is Kind.COLLECTIVE:
            lowered = self.generator.lower_collective(node, inputs, outputs)
            if lowered is not None:
                self.generator.precompile(lowered)
            return lowered
        if isinstance(kernel, ControlKernel) and not isinstance(kernel, Inlined):
            return kernel.lower(self.generator, inputs, outputs)
        layouts = (self.layouts[v] for v in (*node.inputs, *node.outputs))
        is_aligned = all(is_always(layout.offset % 16, 0) for layout in layouts)
        lowered = self.generator.lower(node, inputs, outputs, is_aligned)
        if lowered is not None:
            self.generator.precompile(lowered)
        frozen = [i for i, x in enumerate(inputs) if x.is_frozen]
        if lowered is None or not frozen:
            return lowered
        result = self._cacheable_nbytes(node, inputs)
        specialized = self.generator.specialize(lowered, frozen, result)
        cached: Sequence[int] = getattr(specialized, "kept_sizes", ())
        if result and cached and not specialized.calls:
            self.cached_values.add(node.outputs[0])
            self.frozen.add(node.outputs[0])
        return specialized

    def _cacheable_nbytes(self, node: Node, inputs: Sequence[Operand]) -> int:
        """Return the bytes of a result if it is to be cached, else 0."""
        (result, *other_outputs), body = node.outputs, self.target.is_body
        is_known = all(x.is_frozen for x in inputs)
        if other_outputs or body or not is_known or result in self.returned:
            return 0
        return result.spec.nbytes if is_worth_caching(result, inputs) else 0

    def _operand(self, value: Value, node: Node) -> Operand:
        """Return an input as an operand, with its use in this and later runs."""
        operand, layout = self.layouts.operand(value), self.layouts[value]
        is_known = layout.root in self.frozen
        if self.target.is_body:  # the sources of the value are operands of the loop
            is_known = is_known and layout.offset == 0
        else:
            is_known |= is_fixed(layout.root)
        # A result that is computed once must not depend on free extents.
        is_known &= not has_extent(layout.offset)
        return replace(
            operand,
            is_frozen=bool(self.frozen) and is_known,
            is_replaced=any(self.replaced.get(y) is value for y in node.outputs),
        )


def _narrow_operands_of_loops(graph: Graph, layouts: Layouts) -> set[Value]:
    """Return the 16-bit operands of loops and branches.

    Weights have 16 bits for the sake of memory. The loop reads them as they are, so no
    other reader makes a packed copy that stays in memory.
    """
    operands = {
        layouts[x].root
        for node in graph.nodes
        if node.op.kind is Kind.CONTROL
        for x in node.inputs
    }
    return {x for x in operands if _is_narrow_float(x.spec.dtype)}


def _is_narrow_float(dtype: str) -> bool:
    return is_float(dtype) and itemsize(dtype) == 2


def _copy_between_devices(copy: Any, x: Array, *, out: Array, device: str) -> Array:
    """Copy between logical devices of one memory."""
    return copy(x, out=out)


def _split_anchor(node: Node) -> list[Node]:
    """Split a fused node into its anchor and its epilogue; keep all other nodes."""
    if node.op is not fused_p:
        return [node]
    body = node.attrs["body"]
    anchor, *epilogue = body.nodes
    if anchor.op.kind in (Kind.ELEMENTWISE, Kind.REDUCE, Kind.VIEW) or not epilogue:
        return [node]
    results = {y for member in epilogue for y in member.outputs}
    reads = dict.fromkeys(x for member in epilogue for x in member.inputs)
    inputs = [x for x in reads if x not in results and not is_literal(x)]
    outputs = [y for y in body.outputs if y in results]
    return [anchor, fused_node(Graph(tuple(inputs), tuple(epilogue), tuple(outputs)))]


def _divide(
    units: Sequence[Unit], layouts: Layouts, generator: CodeGenerator, barrier: int
) -> tuple[list[Segment], list[StepSpan]]:
    """Divide nodes into segments, in order, and return the moment of each node."""
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
            late = sum(i < barrier for i in members)
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
    started: their order is the same on all ranks. A gather of an input starts when the
    program waits for the gather of an input before it, because its result needs memory.
    """
    starts: defaultdict[int, list[int]] = defaultdict(list)
    computed_at: dict[Value, int] = {}  # the index of the node that computes each value
    earliest = last_gather = 0
    for i, unit in enumerate(units):
        inputs, outputs = unit.node.inputs, unit.node.outputs
        after = i
        if unit.node.op.kind is Kind.COLLECTIVE:
            # the last operand is a token of the collective before it
            *operands, _ = inputs
            ready = max((computed_at.get(x, -1) + 1 for x in operands), default=0)
            earliest = max(earliest, ready)
            if ready == 0:
                earliest, last_gather = max(earliest, last_gather), i
            if unit.kernel.background is None or unit.lowered is not None:
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
    if is_always(root.spec.nbytes, value.spec.nbytes) and view.is_contiguous:
        return OperandMemory(layout.root, value.spec.nbytes, True)
    rows = view.count_local_rows(root, layout.offset)
    return OperandMemory(layout.root, value.spec.nbytes, rows > 0, rows)
