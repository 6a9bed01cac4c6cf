"""Micro-batches: the graph of a step for a part of the rows of its batch.

A step is sharded along its batch as over ranks, with one micro-batch for each, but the
micro-batches run in sequence. Instead of collectives there are edges between the graph
of a micro-batch and the values that are computed once per step. These edges take rows
of a whole value, join rows to a whole value, or add terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from toolkit.backends.target import Target
from toolkit.compiler.passes.simplify import share
from toolkit.compiler.sharding.choices import Choice, ShardedGraph
from toolkit.compiler.sharding.layouts import Layout, MeshAxis, Partial, Split
from toolkit.compiler.sharding.partition import Local
from toolkit.compiler.sharding.propagate import propagate
from toolkit.definitions.records import record
from toolkit.errors import UnsupportedError
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value

Array = Any


def _attribute_spec(x: Spec, spec: Spec, **attrs: object) -> Spec:
    return spec


# Not in the registry: they are edges between split graphs, and are never computed.
# `cut`: the rows of a micro-batch, of a whole value.
cut_p: Primitive = Primitive("cut", Kind.COLLECTIVE, _attribute_spec)
# `first`: a whole value in the first micro-batch, zeros in all later ones.
first_p: Primitive = Primitive("first", Kind.COLLECTIVE, _attribute_spec)
# `join`: a whole value: the rows of all micro-batches.
join_p: Primitive = Primitive("join", Kind.COLLECTIVE, _attribute_spec)
# `total`: a whole value: the terms of all micro-batches, combined in order.
total_p: Primitive = Primitive("total", Kind.COLLECTIVE, _attribute_spec)
ENTRIES, EXITS = (cut_p, first_p), (join_p, total_p)


class MicroBatch(NamedTuple):
    """Index of a micro-batch in a step, with the interface of a group of ranks.

    Attributes:
        rank: its index.
        size: number of micro-batches.
    """

    rank: int
    size: int


@record
class MicroBatches:
    """A step that runs over micro-batches.

    Attributes:
        axis: the axis along which the batch is split.
        rows: number of rows of the whole batch.
        data: computation that depends on the batch only, and runs first.
        graphs: graphs of a micro-batch, by number of rows; their nodes correspond. The
            last inputs are the results of `data`.
        layouts: shardings of the inputs of these graphs.
    """

    axis: MeshAxis
    rows: int
    data: Graph
    graphs: dict[int, Graph]
    layouts: Sequence[Layout]

    @property
    def count(self) -> int:
        """Return the number of micro-batches."""
        return self.axis.leaves

    @property
    def first(self) -> Graph:
        """Return the graph of the first micro-batch."""
        return self.graphs[len(self.row_range(0))]

    @property
    def split(self) -> dict[Value, Split]:
        """Return the shardings of the inputs that are parts of the batch."""
        pairs = zip(self.first.inputs, self.layouts, strict=True)
        return {x: layout for x, layout in pairs if isinstance(layout, Split)}

    def row_range(self, micro_batch: int) -> range:
        """Return the rows of a micro-batch."""
        return self.axis.rows(self.rows, micro_batch)


def micro_batches(
    graph: Graph,
    layouts: Sequence[Layout],
    batch: int,
    count: int,
    stays_whole: Callable[[Node], str | None],
    target: Target,
) -> MicroBatches:
    """Return the graphs of a step over micro-batches.

    Args:
        graph: graph of the step.
        layouts: shardings of its inputs.
        batch: number of inputs that are parts of the batch.
        count: number of micro-batches; fewer if the batch has fewer rows.
        stays_whole: returns a reason if a node cannot be computed once for the whole
            batch after all micro-batches, else None.
        target: the compilation target.

    Raises:
        UnsupportedError: if such a node needs the whole batch.
    """
    first = next(n for n, layout in enumerate(layouts) if layout is not None)
    rows = graph.inputs[first].spec.shape[0]
    axis = _axis(0, max(1, min(count, rows)))
    sharded = propagate(graph, axis, layouts)
    graph = share(sharded.graph, target)
    sharded = propagate(graph, axis, layouts)
    wholes = _batch_values(sharded, graph.inputs[:batch])
    data = graph.slice(graph.inputs[:batch], wholes)
    graph, new_inputs = _with_inputs(graph, wholes)
    layouts = [*layouts, *[None] * len(new_inputs)]
    sharded = _hoist_once_nodes(propagate(graph, axis, layouts), stays_whole)
    graphs = {}
    for number in range(axis.leaves):
        local_axis = _axis(number, axis.leaves)
        extent = len(local_axis.rows(rows))
        if extent not in graphs:
            graphs[extent] = _graph_of(sharded, local_axis, layouts)
    return MicroBatches(axis, rows, data, graphs, layouts)


def _axis(number: int, count: int) -> MeshAxis:
    # The axis uses only these attributes of a group.
    group: Any = MicroBatch(number, count)
    return MeshAxis("micro_batch", group, count, even=False, can_gather=False)


def _batch_values(sharded: ShardedGraph, batch: Sequence[Value]) -> list[Value]:
    """Return the whole values that depend on the batch only, as the sum of weights.

    They are computed before the first micro-batch, so that micro-batches need not wait.
    """
    batch_values = set(batch)
    needed: dict[Value, None] = {}
    for choice in sharded.choices:
        node = choice.node
        for x, layout in zip(node.inputs, choice.inputs, strict=True):
            split = x.constant is None and sharded.layouts.get(x) is not None
            if x in batch_values and split and layout is None:
                needed[x] = None
        if all(x in batch_values or x.constant is not None for x in node.inputs):
            batch_values.update(node.outputs if node.inputs else ())
    return list(needed)


def _with_inputs(graph: Graph, values: Sequence[Value]) -> tuple[Graph, list[Value]]:
    """Return the graph with computed values as inputs, and these new inputs."""
    replacements = {value: Value(value.spec) for value in values}
    nodes = [
        node.with_inputs([replacements.get(x, x) for x in node.inputs])
        for node in graph.nodes
    ]
    outputs = tuple(replacements.get(y, y) for y in graph.outputs)
    new_inputs = list(replacements.values())
    inputs = (*graph.inputs, *new_inputs)
    return Graph(inputs, tuple(nodes), outputs, graph.names).pruned(), new_inputs


def _hoist_once_nodes(
    sharded: ShardedGraph, stays_whole: Callable[[Node], str | None]
) -> ShardedGraph:
    """Compute nodes that need all micro-batches once, for the whole batch."""
    layouts, choices = dict(sharded.layouts), []
    late: set[Value] = set()
    for choice in sharded.choices:
        node, cut = choice.node, any(choice.inputs) or any(choice.outputs)
        if any(x in late for x in node.inputs) or any(
            layouts.get(x) is not None and layout is None
            for x, layout in zip(node.inputs, choice.inputs, strict=True)
            if x.constant is None
        ):
            late.update(node.outputs)
            if cut:
                reason = stays_whole(node)
                if reason is not None:
                    raise UnsupportedError(reason)
                inputs, outputs = ([None] * len(x) for x in (node.inputs, node.outputs))
                choice = Choice(node, inputs, outputs)
                layouts.update(dict.fromkeys(node.outputs))
        choices.append(choice)
    return replace(sharded, choices=choices, layouts=layouts)


def _graph_of(sharded: ShardedGraph, axis: MeshAxis, inputs: Sequence[Layout]) -> Graph:
    """Return the graph of one micro-batch, with its edges."""
    local = _OfMicroBatch(axis, sharded)
    pairs = zip(sharded.graph.inputs, inputs, strict=True)
    local_inputs = [local.define(x, layout) for x, layout in pairs]
    for choice in sharded.choices:
        local.add(choice)
    outputs = [local.read(y, None) for y in sharded.graph.outputs]
    return Graph(tuple(local_inputs), tuple(local.nodes), tuple(outputs))


class _OfMicroBatch(Local):
    """Nodes of a micro-batch, as of a rank, with edges instead of collectives."""

    def _changed(self, value: Value, layout: Layout) -> Value:
        outer, self.origin = self.origin, value.origin or self.origin
        try:
            if isinstance(layout, Split):
                full = value if value.constant is not None else self.read(value, None)
                return self._edge(cut_p, full, self.spec(value.spec, layout), layout)
            have = self.sharded.layouts.get(value)
            if isinstance(have, Split):
                return self._edge(join_p, self.read(value, have), value.spec, have)
            (term,) = self.terms[value].values()
            return self._edge(total_p, term, value.spec, self.partials[value])
        finally:
            self.origin = outer

    def _edge(
        self, op: Primitive, x: Value, spec: Spec, layout: Split | Partial | None
    ) -> Value:
        result = self.new(spec)
        self.nodes.append(Node(op, [x], {"spec": spec, "layout": layout}, [result]))
        return result

    def _initial_or_zero(
        self, choice: Choice, inputs: Sequence[Value], is_first: bool
    ) -> Value:
        """Return the same node for all micro-batches: only its operands differ."""
        number: int | None = choice.node.op.initial_operand
        assert number is not None
        base = inputs[number]
        if _is_zero(base, self.nodes):
            return base
        return self._edge(first_p, base, base.spec, None)


def _is_zero(value: Value, nodes: Sequence[Node]) -> bool:
    """Return whether a value is known to be all zeros."""
    while value.constant is None:
        producers = (node for node in nodes if node.outputs[0] is value)
        node = next(producers, None)
        if node is None or node.op.kind is not Kind.VIEW:
            return False
        value = node.inputs[0]
    return not np.any(value.constant)
