"""Programs of graphs that are spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from toolkit.backends.base import Backend
from toolkit.backends.target import Target
from toolkit.compiler.execute import Executable
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.program import Program
from toolkit.compiler.sharding.buckets import join_sums
from toolkit.compiler.sharding.layouts import Layout, MeshAxis, Split
from toolkit.compiler.sharding.partition import partition
from toolkit.compiler.sharding.propagate import propagate
from toolkit.ir import Graph, Spec

Array = Any


def compile_spread(
    graph: Graph,
    backend: Backend,
    generate: bool,
    updates: Sequence[tuple[int, int | None]],
    name: str,
    axes: Sequence[tuple[MeshAxis, Sequence[Layout]]],
) -> Executable:
    """What runs this rank's part of a graph, on local or on global inputs."""
    local = graph
    cuts: list[Cut] = []
    for axis, layouts in axes:
        for number, layout in enumerate(layouts):
            if isinstance(layout, Split):
                cuts.append(_cut(number, local.inputs[number].spec, layout, axis))
        spread = propagate(local, axis, layouts)
        local = join_sums(partition(spread, axis, layouts))
    target = Target(backend, generate, updates=updates)
    program = replace(compile_program(local, target, name), source=graph)
    return SpreadExecutable(program, cuts)


# The number of an input, its extent before it is cut, and the part that stays.
Cut = tuple[int, int, tuple[slice, ...]]


def _cut(number: int, spec: Spec, layout: Split, axis: MeshAxis) -> Cut:
    rows = axis.rows(layout.units(spec))
    front = (slice(None),) * layout.axis
    part = slice(rows.start * layout.minor, rows.stop * layout.minor)
    return number, spec.shape[layout.axis], (*front, part)


class SpreadExecutable(Executable):
    """This rank's program, which takes its part of each input that is whole."""

    def __init__(self, program: Program, cuts: Sequence[Cut]) -> None:
        super().__init__(program)
        self.cuts = cuts

    def _on_memory(
        self,
        call: Callable[..., list[Array]],
        inputs: Sequence[Array],
        *rest: Any,
    ) -> list[Array]:
        if self.cuts:
            inputs = list(inputs)
            for number, extent, part in self.cuts:
                axis = len(part) - 1
                if number < len(inputs) and inputs[number].shape[axis] == extent:
                    inputs[number] = inputs[number][part]
        return super()._on_memory(call, inputs, *rest)
