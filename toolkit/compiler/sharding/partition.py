"""Partition: build the graph of one rank from the sharding of every value.

Shapes become local. Where a reader needs another sharding, the nodes that convert the
value are inserted. A sum over a split axis is computed for each leaf separately and
combined along a tree, so that the result has the same bits on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.comm.leaves import Subtree, combine_subtree
from toolkit.compiler.sharding.choices import (
    EXCHANGE,
    Choice,
    ShardedGraph,
    operation_in_shard,
)
from toolkit.compiler.sharding.collectives import (
    TOKEN,
    all_gather_p,
    all_reduce_p,
    pieces_of,
    reduce_scatter_p,
)
from toolkit.compiler.sharding.layouts import Layout, MeshAxis, Partial, Split
from toolkit.compiler.sharding.leaf_sums import add_leaf_sums
from toolkit.compiler.sharding.weight_gathers import find_gathers, is_large
from toolkit.ir import PRIMITIVES, Constant, Graph, Kind, Node, Spec, Value

_COMBINE = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_COMBINE_BOOLS = {"max": "logical_or", "min": "logical_and"}
# By leaf, in order.
Terms = dict[int, Value]


def partition(
    sharded: ShardedGraph,
    axis: MeshAxis,
    inputs: Sequence[Layout],
    builder: type[Local] | None = None,
) -> Graph:
    """Return the graph that this rank runs.

    Args:
        sharded: result of `propagate`.
        axis: axis of the mesh.
        inputs: shardings of the graph's inputs, as passed to `propagate`.
        builder: the builder of the graph; None for one node for all leaves of a rank.

    Returns:
        A graph with the same number of inputs and outputs, with local shapes.
    """
    local = (builder or Local)(axis, sharded)
    local_inputs = [
        local.define(x, layout)
        for x, layout in zip(sharded.graph.inputs, inputs, strict=True)
    ]
    gathers = find_gathers(sharded) if axis.group.size > 1 else {}
    for index, choice in enumerate(sharded.choices):
        for weight in gathers.get(index, ()):
            local.gather(weight, choice)
        local.add(choice)
    pairs = zip(sharded.graph.outputs, sharded.output_layouts, strict=True)
    outputs = [local.read(y, layout) for y, layout in pairs]
    names = {
        new: sharded.graph.names[old]
        for old, new in zip(sharded.graph.inputs, local_inputs, strict=True)
        if old in sharded.graph.names
    }
    return Graph(tuple(local_inputs), tuple(local.nodes), tuple(outputs), names)


class Local:
    """Builder of the graph of a rank, with the local value of each global value."""

    def __init__(self, axis: MeshAxis, sharded: ShardedGraph) -> None:
        self.axis = axis
        self.sharded = sharded
        self.nodes: list[Node] = []
        self.values: dict[tuple[Value, Layout], Value] = {}
        self.terms: dict[Value, Terms] = {}
        self.partials: dict[Value, Partial] = {}
        # Operands of a value's terms on other ranks only. Dependencies between
        # collectives must be the same on all ranks.
        self.sources: dict[Value, list[Value]] = {}
        # Whether a sum is needed, for sums that not every run of the graph needs.
        self.conditions: dict[Value, Value] = {}
        self.origin: tuple[str, ...] = ()
        # The index of the choice that computes a value or its terms, equal on all
        # ranks.
        self.choice_index: dict[Value, int] = {}
        # The extent of the table that a value indexes. A gather checks its indices.
        self.extents: dict[Value, int] = {
            choice.node.inputs[0]: choice.node.attrs["extent"]
            for choice in sharded.choices
            if choice.node.op.name == EXCHANGE
        }
        self.count = 0
        reads = (x for choice in sharded.choices for x in choice.node.inputs)
        self.read_values: set[Value] = {*reads, *sharded.graph.outputs}
        self.token: Value = Constant(np.zeros((), np.uint8))

    def define(self, value: Value, layout: Layout) -> Value:
        """Create the local value of a global input or result."""
        local = self.new(self.spec(value.spec, layout))
        self.values[value, layout] = local
        return local

    def new(self, spec: Spec) -> Value:
        """Return a new value with the origin of the current layer."""
        value = Value(spec)
        if self.origin:
            value._origin = self.origin
        return value

    def spec(self, spec: Spec, layout: Layout) -> Spec:
        """Return the local spec of a value."""
        if not isinstance(layout, Split):
            return spec
        return layout.local(spec, len(self.axis.rows(layout.units(spec))))

    def emit(
        self, name: str, inputs: Sequence[Value], spec: Spec, **attrs: Any
    ) -> Value:
        """Append a node with one result."""
        result = self.new(spec)
        self.nodes.append(Node(PRIMITIVES[name], inputs, attrs, (result,)))
        return result

    # --- nodes ------------------------------------------------------------------------

    def add(self, choice: Choice) -> None:
        """Add the nodes of a choice."""
        node = choice.node
        self.origin = node.outputs[0].origin
        self.count += 1
        for y, layout in zip(node.outputs, choice.outputs, strict=True):
            self.choice_index[y] = self.count
            if isinstance(layout, Partial):
                self.partials[y] = layout
        if add_leaf_sums(self, choice):
            return
        if isinstance(choice.outputs[0], Partial):
            if any(isinstance(layout, Partial) for layout in choice.inputs):
                self._add_to_terms(choice)
            else:
                self._add_for_leaves(choice)
            self._scatter_early(choice)
            return
        self._add_for_rows(choice)

    def gather(self, weight: Value, reader: Choice) -> None:
        """Add the gather of a weight for a choice, and free an earlier result."""
        self.values.pop((weight, None), None)
        self.origin = reader.node.outputs[0].origin
        self.read(weight, None)

    def _scatter_early(self, choice: Choice) -> None:
        """Scatter large sums where their terms are computed, to free the terms."""
        for y in choice.node.outputs:
            layout = self.sharded.layouts.get(y)
            is_read = y in self.read_values and y not in self.conditions
            if isinstance(layout, Split) and is_read and is_large(y.spec):
                self.read(y, layout)

    def _add_for_rows(self, choice: Choice) -> None:
        """Add a node that computes the results for all local rows."""
        inputs = self._inputs(choice)
        outputs = [
            self.define(y, layout)
            for y, layout in zip(choice.node.outputs, choice.outputs, strict=True)
        ]
        self._append(choice, inputs, outputs)

    def _append(
        self,
        choice: Choice,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        leaf: int | None = None,
    ) -> None:
        """Append the local node of a choice, for one leaf or for all local leaves."""
        op, device = choice.node.op, choice.node.device
        attrs = self._attrs(choice, inputs, [y.spec for y in outputs])
        table = choice.inputs[0] if choice.inputs else None
        name = operation_in_shard(choice.node, table)
        if name is not None:
            extent = choice.node.inputs[0].spec.shape[0]
            rows = self.axis.rows(extent)
            start = rows.start if leaf is None else self.axis.bound(leaf, extent)
            op, attrs = PRIMITIVES[name], {"start": start, "extent": extent}
        self.nodes.append(Node(op, inputs, attrs, outputs, device))

    def _inputs(self, choice: Choice) -> list[Value]:
        pairs = zip(choice.node.inputs, choice.inputs, strict=True)
        return [self.read(x, layout) for x, layout in pairs]

    def _add_for_leaves(self, choice: Choice) -> None:
        """Add a node that sums over a split axis, once for each leaf of this rank."""
        node, inputs = choice.node, self._inputs(choice)
        (first,) = set(choice.outputs)
        assert isinstance(first, Partial)
        owned = self.axis.present(first.units)
        local_leaves = self._local_leaves(first.units)
        terms: list[Terms] = [{} for _ in node.outputs]
        for leaf in local_leaves:
            operands = self._leaf_operands(choice, inputs, first.units, leaf)
            if node.op.initial_operand is not None:
                is_first = leaf == owned.present[0]
                operands[node.op.initial_operand] = self._initial_or_zero(
                    choice, inputs, is_first
                )
            outputs = [self.new(y.spec) for y in node.outputs]
            self._append(choice, operands, outputs, leaf)
            for term, y in zip(terms, outputs, strict=True):
                term[leaf] = y
        self.terms.update(zip(node.outputs, terms, strict=True))
        initial = (
            [] if node.op.initial_operand is None else [inputs[node.op.initial_operand]]
        )
        self.sources.update(
            dict.fromkeys(node.outputs, initial if local_leaves else inputs)
        )

    def _local_leaves(self, units: int) -> list[int]:
        """Return the leaves of this rank that have units."""
        group, leaves = self.axis.group, self.axis.present(units)
        local = leaves.range_of_rank(group.rank, group.size)
        return [leaf for leaf in local if leaf in leaves.present]

    def _leaf_operands(
        self, choice: Choice, inputs: Sequence[Value], units: int, leaf: int
    ) -> list[Value]:
        """Return the operands of a node for one leaf, from its local operands."""
        return [
            self.leaf(x, layout, units, leaf)
            for x, layout in zip(inputs, choice.inputs, strict=True)
        ]

    def _initial_or_zero(
        self, choice: Choice, inputs: Sequence[Value], is_first: bool
    ) -> Value:
        """Return the operand for the first leaf; zeros for all later leaves."""
        number: int | None = choice.node.op.initial_operand
        assert number is not None
        if is_first:
            return inputs[number]
        spec: Spec = choice.node.inputs[number].spec
        zero = Constant(np.zeros((), dtypes.numpy_dtype(spec.dtype)))
        return self.emit("broadcast_to", [zero], spec, shape=spec.shape)

    def _add_to_terms(self, choice: Choice) -> None:
        """Add a node whose terms are computed from the terms of its operands."""
        node, (y,) = choice.node, choice.node.outputs
        operand_terms = [self.terms[x] for x in node.inputs]
        result_terms: Terms = {}
        for leaf in operand_terms[0]:
            result_terms[leaf] = self.new(y.spec)
            inputs = [terms[leaf] for terms in operand_terms]
            self.nodes.append(Node(node.op, inputs, node.attrs, (result_terms[leaf],)))
        self.terms[y] = result_terms
        self.sources[y] = [s for x in node.inputs for s in self.sources[x]]

    def _attrs(
        self, choice: Choice, inputs: Sequence[Value], outputs: Sequence[Spec]
    ) -> Mapping[str, Any]:
        """Return the attributes of a node for local shapes."""
        attrs = dict(choice.node.attrs)
        for name, body in choice.bodies.items():
            attrs[name] = self._body(body)
        if choice.bodies:
            if "backward" in attrs:  # only tapes use it, and its shapes are global
                attrs["backward"] = None
            return attrs
        if "shape" in attrs and attrs["shape"] == choice.node.outputs[0].spec.shape:
            attrs["shape"] = outputs[0].shape
        if choice.node.op.kind is Kind.COLLECTIVE:
            return _of_collective(choice.node, attrs, inputs, outputs)
        if "sizes" in attrs:
            attrs["sizes"] = outputs[0].shape
        if choice.node.op.name == "slice":
            pairs = zip(attrs["stop"], choice.node.inputs[0].spec.shape, strict=True)
            local = inputs[0].spec.shape
            attrs["stop"] = tuple(
                local[i] if local[i] != full else stop
                for i, (stop, full) in enumerate(pairs)
            )
        return attrs

    def _body(self, body: ShardedGraph) -> Graph:
        """Return a sub-graph of a loop or a branch; it contains no collective."""
        inputs = [body.layouts.get(x) for x in body.graph.inputs]
        return partition(body, self.axis, inputs)

    # --- layouts ----------------------------------------------------------------------

    def read(self, value: Value, layout: Layout) -> Value:
        """Return a value in the sharding that a reader needs."""
        if value.constant is not None and layout is None:
            return value
        if (value, layout) not in self.values:
            self.values[value, layout] = self._changed(value, layout)
        return self.values[value, layout]

    def _changed(self, value: Value, layout: Layout) -> Value:
        outer, self.origin = self.origin, value.origin or self.origin
        try:
            have = self.sharded.layouts.get(value)
            if value.constant is not None:
                have = None
            if isinstance(layout, Split) and value in self.partials and have == layout:
                return self._scattered(value, layout)
            if isinstance(layout, Split):
                full = value if value.constant is not None else self.read(value, None)
                rows = self.axis.rows(layout.units(value.spec))
                return self._units(full, layout, layout.units(value.spec), rows)
            if isinstance(have, Split):
                return self._gathered(value, have)
            return self._combined(value)
        finally:
            self.origin = outer

    def leaf(self, local: Value, layout: Layout, units: int, leaf: int) -> Value:
        """Return the part of a local value that belongs to one leaf."""
        if not isinstance(layout, Split):
            return local
        local_rows = self.axis.rows(units)
        start, stop = (
            self.axis.bound(leaf + i, units) - local_rows.start for i in (0, 1)
        )
        return self._units(local, layout, len(local_rows), range(start, stop))

    def _units(self, value: Value, layout: Split, units: int, rows: range) -> Value:
        """Return a range of the units of a value."""
        if len(rows) == units:
            return value
        axis, spec = layout.axis, value.spec
        local_spec = layout.local(spec, len(rows))
        if layout.major > 1:
            shape = [*spec.shape]
            shape[axis : axis + 1] = [layout.major, units * layout.minor]
            wide = spec.with_shape(shape)
            value = self.emit("reshape", [value], wide, shape=wide.shape)
            axis, spec = axis + 1, wide
        start, stop = [0] * spec.ndim, list(spec.shape)
        start[axis], stop[axis] = rows.start * layout.minor, rows.stop * layout.minor
        shape = [b - a for a, b in zip(start, stop, strict=True)]
        value = self.emit(
            "slice",
            [value],
            spec.with_shape(shape),
            start=tuple(start),
            stop=tuple(stop),
            step=(1,) * spec.ndim,
        )
        if layout.major > 1:
            value = self.emit("reshape", [value], local_spec, shape=local_spec.shape)
        return value

    def _combined(self, value: Value) -> Value:
        """Return all terms of all ranks, combined along the tree."""
        pieces, partial = self._pieces(value), self.partials[value]
        if self.axis.group.size == 1 and len(pieces) == 1:
            return pieces[0]
        inputs = [*pieces, *self.sources[value]]
        ready = self.choice_index[value]
        attrs = {"terms": (partial,), "specs": (value.spec,), "ready": ready}
        if value in self.conditions:
            inputs.append(self.conditions[value])
            attrs["conditional"] = True
        return self._collective(all_reduce_p, inputs, value.spec, **attrs)

    def _scattered(self, value: Value, split: Split) -> Value:
        """Return this rank's shard of all terms combined."""
        partial, spec = self.partials[value], value.spec
        rows = self.axis.rows(split.units(spec))
        has_condition = value in self.conditions
        if self.axis.group.size == 1 or split[:2] != (0, 1) or has_condition:
            full = self._combined(value)
            return self._units(full, split, split.units(spec), rows)
        inputs = [*self._pieces(value), *self.sources[value]]
        ready = self.choice_index[value]
        attrs = {"term": partial, "split": split, "full_spec": spec, "ready": ready}
        local = split.local(spec, len(rows))
        return self._collective(reduce_scatter_p, inputs, local, **attrs)

    def _pieces(self, value: Value) -> list[Value]:
        """Return the subtrees of which this rank has all terms."""
        partial, terms = self.partials[value], self.terms[value]
        trees = pieces_of(self.axis, partial.units)
        pieces = [
            self._combine_terms(tree, terms, partial.op, value.spec) for tree in trees
        ]
        return [piece for piece in pieces if piece is not None]

    def _combine_terms(
        self, tree: Subtree, terms: Terms, op: str, spec: Spec
    ) -> Value | None:
        """Return the terms of a subtree, combined along it; None without a term."""
        names = _COMBINE_BOOLS if spec.dtype == "bool" else _COMBINE

        def term(tree: Subtree) -> Value | None:
            first, size = tree
            return terms.get(first) if size == 1 else None

        def combine(left: Value, right: Value) -> Value:
            return self.emit(names[op], [left, right], spec)

        return combine_subtree(tree, term, combine)

    def _gathered(self, value: Value, split: Split) -> Value:
        """Return the shards of all ranks."""
        local, spec = self.read(value, split), value.spec
        if self.axis.group.size == 1:
            return local
        attrs: dict[str, Any] = {"splits": (split,), "specs": (spec,)}
        attrs["extents"] = (self.extents.get(value),)
        attrs["ready"] = self.choice_index.get(value, 0)
        return self._collective(all_gather_p, [local], spec, **attrs)

    def _collective(
        self, op: Any, inputs: Sequence[Value], spec: Spec, **attrs: Any
    ) -> Value:
        """Append a collective after the last one."""
        result, token = self.new(spec), self.new(TOKEN)
        attrs = {"axis": self.axis, **attrs}
        node = Node(op, [*inputs, self.token], attrs, (result, token))
        self.nodes.append(node)
        self.token = token
        return result


def _of_collective(
    node: Node, attrs: dict[str, Any], inputs: Sequence[Value], outputs: Sequence[Spec]
) -> dict[str, Any]:
    """Return local attributes of a collective along another mesh axis."""
    if node.op is reduce_scatter_p:
        return {**attrs, "full_spec": inputs[0].spec}
    return {**attrs, "specs": tuple(outputs[:-1])}
