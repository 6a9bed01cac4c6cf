"""The passes of the compiler in their order: from a traced graph to a program.

A pass takes a graph and what it is compiled for, and returns a graph that computes the
same. `pipeline` is all of them, top to bottom; `lower` turns the last graph into a
`Program`, which `Executable` binds to memory and runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from toolkit.backends.base import Backend
from toolkit.backends.target import Pass, Target, rules
from toolkit.compiler.fusion.fuse import fuse
from toolkit.compiler.lowering import lower
from toolkit.compiler.passes.branches import select_branches
from toolkit.compiler.passes.pads import absorb_pads, join_pads
from toolkit.compiler.passes.placement import place
from toolkit.compiler.passes.rewriting import (
    decompose,
    own_carried,
    own_outputs,
    prune,
)
from toolkit.compiler.passes.scales import fold_scales
from toolkit.compiler.passes.scans import hoist, tidy_scans
from toolkit.compiler.passes.schedule import (
    needed_first,
    schedule,
    settle,
    updates_last,
)
from toolkit.compiler.passes.simplify import fold, share, simplify, take_parts_apart
from toolkit.compiler.program import Program
from toolkit.console.progress import stage
from toolkit.ir import Graph, Node


def simplifying(target: Target) -> tuple[Pass, ...]:
    """The passes that make a graph small; they run on sub-graphs first."""
    own = target.backend.passes
    return (
        select_branches,
        *own.traced,
        decompose,
        *own.expanded,
        prune,
        simplify,
        fold,
        share,
        tidy_scans,
        join_pads,
        absorb_pads,
        prune,  # pads, which are no readers of what they pad any more
        fold_scales,
        fold,  # what it made of constants
        simplify,
        prune,
        hoist,  # last: it makes copies that `simplify` sees no use in
    )


def pipeline(target: Target) -> tuple[tuple[str, tuple[Pass, ...]], ...]:
    """All passes from a traced graph to what is lowered, in stages with names."""
    own = target.backend.passes
    generated = target.generate
    return (
        ("simplifying", (place, optimize, own_outputs, own_carried)),
        (
            "fusing",
            (*own.simplified, take_parts_apart, fuse) if generated else (),
        ),
        ("ordering", (schedule, needed_first, *(own.scheduled if generated else ()))),
        ("updating", (settle, updates_last)),
    )


def compile_program(graph: Graph, target: Target, name: str = "a graph") -> Program:
    """The program of a graph.

    Args:
        graph: as it was traced.
        target: what it is compiled for.
        name: of the function that it comes from.
    """
    compiled = graph
    # What is known is folded by kernels of arrays; so is what a signal's handler calls.
    of_target = {
        "rows_independent": target.rows_independent,
        "processor": target.processor or rules.processor,
        "plain": True,
    }
    with rules.inside(**of_target):
        for title, passes in pipeline(target):
            with stage(title):
                for step in passes:
                    compiled = step(compiled, target)
        program = lower(compiled, target, compile_program)
    return replace(program, source=graph, name=name)


def stages(graph: Graph, backend: Backend) -> Iterator[tuple[str, Graph]]:
    """The graph as traced, then after each pass that makes it small."""
    yield "trace", graph
    target = Target(backend)
    for step in simplifying(target):
        graph = step(graph, target)
        yield step.__name__, graph


def optimize(graph: Graph, target: Target) -> Graph:
    """Make a graph small, and its sub-graphs before it."""
    graph = graph.replace(_with_small_subgraphs(node, target) for node in graph.nodes)
    for step in simplifying(target):
        graph = step(graph, target)
    return graph


def _with_small_subgraphs(node: Node, target: Target) -> Node:
    if not node.subgraphs:
        return node
    # The numbers of frozen inputs are those of the graph around them.
    inside = replace(target, frozen=())
    attrs = {
        name: optimize(value, inside) if isinstance(value, Graph) else value
        for name, value in node.attrs.items()
    }
    return Node(node.op, node.inputs, attrs, node.outputs, node.device)
