"""Programs of sharded graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from toolkit import comm
from toolkit.backends.base import Backend
from toolkit.backends.target import Target
from toolkit.comm import Group, compare_programs
from toolkit.comm.overlap import can_overlap
from toolkit.compiler.bound import BoundProgram
from toolkit.compiler.execute import Executable
from toolkit.compiler.passes.simplify import share
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.program import Program
from toolkit.compiler.sharding.buckets import join_collectives, join_exchanges
from toolkit.compiler.sharding.layouts import Layout, MeshAxis, Split
from toolkit.compiler.sharding.leaf_sums import separate_terms
from toolkit.compiler.sharding.leafwise import LeafwiseLocal
from toolkit.compiler.sharding.partition import partition
from toolkit.compiler.sharding.propagate import propagate
from toolkit.ir import Graph, Kind, Spec, Value

Array = Any


class AxisSharding(NamedTuple):
    """Sharding of a step along one mesh axis.

    Attributes:
        axis: axis of the mesh.
        inputs, outputs: shardings of the graph's inputs and outputs.
        stored: indices of inputs that are sharded only to save memory.
    """

    axis: MeshAxis
    inputs: Sequence[Layout]
    outputs: Sequence[Layout] | None = None
    stored: Sequence[int] = ()


def compile_sharded(
    graph: Graph,
    backend: Backend,
    generate: bool,
    updates: Sequence[tuple[int, int | None]],
    name: str,
    axes: Sequence[AxisSharding],
    batch: int,
    settle: Callable[[], None] | None = None,
    keep: Callable[[list[Array]], None] | None = None,
) -> Executable:
    """Compile this rank's part of a graph.

    Args:
        graph, backend, generate, updates, name: as for `compile_graph`.
        axes: the mesh axes along which to shard, in order.
        batch: number of inputs that are parts of a batch; they may be passed whole.
        settle: called before results become valid; it may raise.
        keep: called instead of `settle`, with the new values in separate memory; it may
            replace them.
    """
    update_count = len(updates)
    # A device runs updates before the host knows that all ranks have their results.
    if keep is not None or (settle is not None and backend.is_accelerator):
        updates = ()
    target = Target(backend, generate, updates=updates, rows_independent=True)
    # A dead node would exchange its operands: no pass removes a collective.
    local, cuts = separate_terms(graph, batch).pruned(), []
    for axis, layouts, output_layouts, stored in axes:
        for number, layout in enumerate(layouts[:batch]):
            if isinstance(layout, Split):
                cuts.append(_cut(number, local.inputs[number].spec, layout, axis))
        sharded = propagate(local, axis, layouts, output_layouts, stored)
        # Bodies of composites repeat sums, each of which would need a collective. They
        # are merged at this point, where the graph is still the same on all ranks.
        full = share(sharded.graph, target).pruned()
        if len(full.nodes) < len(sharded.graph.nodes):
            sharded = propagate(full, axis, layouts, output_layouts, stored)
        builder = LeafwiseLocal if backend.generator.rows_depend_on_batch else None
        local = partition(sharded, axis, layouts, builder)
    generator = backend.generator

    def overlaps(group: Group) -> bool:
        return generator.can_overlap(group) or can_overlap(group)

    local = join_collectives(local, overlaps)
    if not backend.is_accelerator:
        local = join_exchanges(local)
    compare_programs(comm.world(), _describe_lines(graph, local), f"program of {name}")
    program = replace(compile_program(local, target, name), source=graph)
    if keep is None:
        return ShardedExecutable(program, cuts, settle)
    return ReplicatedExecutable(program, cuts, keep, update_count)


def _describe_lines(graph: Graph, local: Graph) -> list[str]:
    """Return lines that must be equal on all ranks: graph, collectives, constants."""
    lines = [f"takes {', '.join(str(x.spec) for x in graph.inputs)}"]
    for node in local.nodes:
        if node.op.kind is Kind.COLLECTIVE:
            # Not the shapes: ranks may exchange different numbers of rows.
            dtypes = " ".join(y.spec.dtype for y in node.outputs[:-1])
            when = f" after {node.attrs['ready']}" if "ready" in node.attrs else ""
            when += " if needed" * bool(node.attrs.get("conditional"))
            axis = node.attrs["axis"]
            where = f"{axis}{' by nccl' * (axis.reduction == 'nccl')}"
            lines.append(f"{node.op.name} along {where} of {dtypes}{when}")
    lines += [node.op.name for node in graph.nodes]
    values = [x for node in graph.walk() for x in node.inputs] + [*graph.outputs]
    constants = dict.fromkeys(x for x in values if x.constant is not None)
    return [*lines, *map(_describe_constant, constants)]


def _describe_constant(value: Value) -> str:
    """Return the spec, checksum and first elements of a constant."""
    array = np.ascontiguousarray(value.constant).reshape(-1)
    checksum = crc32(array.view(np.uint8).data)
    first = ", ".join(map(str, array[:3]))
    return f"constant {value.spec} of [{first}], checksum {checksum:08x}"


# The index of an input, its extent before it is split, and the local part.
Cut = tuple[int, int, tuple[slice, ...]]


def _cut(number: int, spec: Spec, layout: Split, axis: MeshAxis) -> Cut:
    return number, spec.shape[layout.axis], axis.local_slices(layout, spec)


class ShardedExecutable(Executable):
    """Program of this rank, which takes its shard of each input that is whole."""

    def __init__(
        self,
        program: Program,
        cuts: Sequence[Cut],
        settle: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(program)
        self.cuts = cuts
        self._settle = settle

    def run(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """See `Executable.run`; the results are valid on all ranks, or on none."""
        results = super().run(inputs, outs)
        if self._settle is not None:
            self._settle()
        return results

    def _update(self, inputs: Sequence[Array], updated: Sequence[Array]) -> list[Array]:
        """Overwrite the values after all ranks have reached this point."""
        return self._on_memory(BoundProgram.update, inputs, updated, self._settle)

    def _on_memory(
        self, call: Callable[..., list[Array]], inputs: Sequence[Array], *arguments: Any
    ) -> list[Array]:
        if self.cuts:
            inputs = list(inputs)
            for number, extent, bounds in self.cuts:
                axis = len(bounds) - 1
                if number < len(inputs) and inputs[number].shape[axis] == extent:
                    inputs[number] = inputs[number][bounds]
        return super()._on_memory(call, inputs, *arguments)


class ReplicatedExecutable(ShardedExecutable):
    """Executable whose new values are copied to other ranks before they become valid.

    Args:
        program, cuts: see `ShardedExecutable`.
        keep: receives the new values.
        update_count: the number of these values; they are the last outputs.
    """

    def __init__(
        self,
        program: Program,
        cuts: Sequence[Cut],
        keep: Callable[[list[Array]], None],
        update_count: int,
    ) -> None:
        super().__init__(program, cuts)
        self._keep, self._first = keep, len(program.graph.outputs) - update_count

    def run(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """See `ShardedExecutable.run`."""
        results = super().run(inputs, outs)
        new = results[self._first :]
        self._keep(new)
        return [*results[: self._first], *new]
