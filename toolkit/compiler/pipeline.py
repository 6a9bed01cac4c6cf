"""The passes of the compiler in order: from a traced graph to a program.

A pass receives a graph and a target, and returns a graph that computes the same
results. `pipeline` lists all passes in order. `lower` selects a kernel or code for each
node of the last graph. `plan_program` plans the memory. The result is a `Program`,
which `Executable` binds to memory and runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from toolkit.backends.base import Backend
from toolkit.backends.target import Pass, Target
from toolkit.compiler.fusion.fuse import fuse
from toolkit.compiler.lowering import lower
from toolkit.compiler.passes.branches import select_branches
from toolkit.compiler.passes.extents import lift_numbers
from toolkit.compiler.passes.overlap import start_in_background, start_on_stream
from toolkit.compiler.passes.pads import absorb_pads, join_pads
from toolkit.compiler.passes.placement import assign_devices
from toolkit.compiler.passes.rewriting import (
    copy_aliased_outputs,
    copy_carried_views,
    decompose,
    prune,
)
from toolkit.compiler.passes.scales import fold_scales
from toolkit.compiler.passes.scans import hoist, tidy_scans
from toolkit.compiler.passes.schedule import (
    copy_unsafe_updates,
    schedule,
    sink_updates,
)
from toolkit.compiler.passes.simplify import expand_unfused, fold, share, simplify
from toolkit.compiler.program import Program, plan_program
from toolkit.console.progress import stage
from toolkit.ir import Graph, Node
from toolkit.ir.extents import hashable_extents
from toolkit.plans.rules import rules


def simplifying_passes(target: Target) -> tuple[Pass, ...]:
    """Return the passes that simplify a graph; they run on sub-graphs first."""
    backend_passes = target.backend.generator.passes
    if target.keeps_bits:
        return decompose, prune, share
    return (
        select_branches,
        *backend_passes.after_trace,
        decompose,
        *backend_passes.after_expansion,
        prune,
        simplify,
        fold,
        share,
        tidy_scans,
        join_pads,
        absorb_pads,
        prune,  # pads, so that they are no longer readers of their operands
        fold_scales,
        fold,  # the constants that it created
        simplify,
        prune,
        lift_numbers,
        hoist,  # last: it adds copies that `simplify` would remove
    )


def pipeline(target: Target) -> tuple[tuple[str, tuple[Pass, ...]], ...]:
    """Return all passes between trace and lowering, in named stages."""
    backend_passes = target.backend.generator.passes
    generated, rewrites = target.generate, backend_passes.before_fusion
    if target.keeps_bits:
        rewrites = ()
    return (
        (
            "simplifying",
            (assign_devices, optimize, copy_aliased_outputs, copy_carried_views),
        ),
        (
            "fusing",
            (*rewrites, expand_unfused, fuse) if generated else (),
        ),
        (
            "ordering",
            (
                schedule,
                start_on_stream,
                start_in_background,
                *(backend_passes.after_scheduling if generated else ()),
            ),
        ),
        ("updating", (copy_unsafe_updates, sink_updates)),
    )


def compile_program(graph: Graph, target: Target, name: str = "a graph") -> Program:
    """Compile a graph to a program.

    Args:
        graph: the traced graph.
        target: the compilation target.
        name: name of the traced function.
    """
    compiled = graph
    # Array kernels fold constants, and also run graphs for signal handlers.
    of_target = {
        "rows_independent": target.rows_independent,
        "keeps_bits": target.keeps_bits,
        "processor": target.processor or rules.processor,
        "array_kernels_only": True,
    }
    with rules.override(**of_target), hashable_extents():
        for title, passes in pipeline(target):
            with stage(title):
                for step in passes:
                    compiled = step(compiled, target)
        lowered = lower(compiled, target, compile_program)
        program = plan_program(lowered, target)
    return replace(program, source=graph, name=name)


def stages(graph: Graph, backend: Backend) -> Iterator[tuple[str, Graph]]:
    """Yield the traced graph, then the graph after each simplifying pass."""
    yield "trace", graph
    target = Target(backend)
    for step in simplifying_passes(target):
        graph = step(graph, target)
        yield step.__name__, graph


def optimize(graph: Graph, target: Target) -> Graph:
    """Simplify a graph, after its sub-graphs."""
    graph = graph.replace(_with_small_subgraphs(node, target) for node in graph.nodes)
    for step in simplifying_passes(target):
        graph = step(graph, target)
    return graph


def _with_small_subgraphs(node: Node, target: Target) -> Node:
    if not node.subgraphs:
        return node
    # The indices of frozen inputs refer to the outer graph.
    inner_target = replace(target, frozen=())
    attrs = {
        name: optimize(value, inner_target) if isinstance(value, Graph) else value
        for name, value in node.attrs.items()
    }
    return Node(node.op, node.inputs, attrs, node.outputs, node.device)
