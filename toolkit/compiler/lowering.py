"""Lowering: the kernel or the generated code of each node of an ordered graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from toolkit.backends.target import Target
from toolkit.compiler.control import (
    CONTROL_KERNELS,
    ControlKernel,
    Inlined,
    collective_kernel,
)
from toolkit.compiler.execute import Executable
from toolkit.compiler.frozen_values import is_worth_caching
from toolkit.compiler.fusion.fuse import is_literal
from toolkit.compiler.passes.placement import transfer_p
from toolkit.compiler.passes.schedule import first_late_index
from toolkit.compiler.program import Program
from toolkit.compiler.segments import LoweredGraph, Unit
from toolkit.console.progress import stage
from toolkit.ir import Graph, Kind, Node, Value, fused_node, fused_p
from toolkit.plans.layout import Layouts
from toolkit.plans.operands import Operand

Array = Any
Compile = Callable[[Graph, Target], Program]


def lower(graph: Graph, target: Target, compile_graph: Compile) -> LoweredGraph:
    """Select a kernel or generate code for each node of a graph.

    Args:
        graph: the result of the last pass, in execution order.
        target: the compilation target.
        compile_graph: compiles sub-graphs of nodes.
    """
    layouts = Layouts(graph, target.inputs)
    lowering = _Lowering(target, layouts, compile_graph, graph)
    try:
        units = lowering.units(graph)
    except BaseException:
        # otherwise the process would wait for all queued compilation before it exits
        target.backend.generator.cancel_precompile()
        raise
    added = len(units) - len(graph.nodes)
    return LoweredGraph(
        graph=graph.replace(unit.node for unit in units),
        units=units,
        layouts=layouts,
        cached_values=frozenset(lowering.cached_values),
        barrier=first_late_index(graph, target.updates) + added,
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
            return collective_kernel(node)
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
        if node.op.kind is Kind.COLLECTIVE:
            return None
        inputs = [self._operand(x, node) for x in node.inputs]
        outputs = [self.layouts.operand(y) for y in node.outputs]
        if isinstance(kernel, ControlKernel) and not isinstance(kernel, Inlined):
            return kernel.lower(self.generator, inputs, outputs)
        layouts = (self.layouts[v] for v in (*node.inputs, *node.outputs))
        is_aligned = all(layout.offset % 16 == 0 for layout in layouts)
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
        operand, root = self.layouts.operand(value), self.layouts[value].root
        is_known = root in self.frozen
        if self.target.is_body:  # the sources of the value are operands of the loop
            is_known &= self.layouts[value].offset == 0
        else:
            is_known |= root.constant is not None
        return replace(
            operand,
            is_frozen=bool(self.frozen) and is_known,
            is_replaced=any(self.replaced.get(y) is value for y in node.outputs),
        )


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
