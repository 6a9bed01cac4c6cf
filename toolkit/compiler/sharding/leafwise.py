"""Partition for devices on which the bits of a row depend on the size of its batch.

Libraries for GPUs select an algorithm by the shapes of the operands. So a node that is
split along the batch is computed once for each leaf. It then has the same shapes, and
the same bits, on any number of ranks. A rank with one leaf has no more nodes than in
the usual partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import dtypes
from toolkit.comm.leaves import Subtree, combine_subtree
from toolkit.comm.sum_plans import Tree
from toolkit.compiler.sharding.choices import Choice, ShardedGraph
from toolkit.compiler.sharding.layouts import Layout, MeshAxis, Split
from toolkit.compiler.sharding.partition import Local, Terms, partition
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value


def _combined_spec(*terms: Spec, op: str, tree: object) -> Spec:
    return terms[0]


# The terms of leaves, combined along a tree of their indices, each rounded to the
# dtype. It is a separate kernel, as between ranks: a fused kernel could round less. Not
# in the registry: only the compiler adds it, and no pass assumes anything about it.
combine_leaves_p: Primitive = Primitive(
    "combine_leaves", Kind.INDEX, _combined_spec, axes="...->..."
)

# Each element of a result depends on one element of each operand only.
_FREE_KINDS = (Kind.ELEMENTWISE, Kind.VIEW)


class LeafwiseLocal(Local):
    """Builder of the graph of a rank with a node for each leaf of its rows."""

    def __init__(self, axis: MeshAxis, sharded: ShardedGraph) -> None:
        super().__init__(axis, sharded)
        # The values of all local leaves, for a value that is computed by leaf.
        self._leaf_results: dict[tuple[Value, Layout], dict[int, Value]] = {}
        self._leaf_slices: dict[tuple[Value, Layout, int], Value] = {}
        self._leaf: int | None = None  # of the node that is added

    def _inputs(self, choice: Choice) -> list[Value]:
        """Return the local operands. Leaves stay separate: see `_leaf_operands`."""
        operands = []
        for x, layout in zip(choice.node.inputs, choice.inputs, strict=True):
            key = x, layout
            is_separate = key in self._leaf_results and key not in self.values
            operands.append(x if is_separate else self.read(x, layout))
        return operands

    def _add_for_rows(self, choice: Choice) -> None:
        """Add a node for each leaf if its bits can depend on the number of rows."""
        node, units = choice.node, _units_of_results(choice)
        leaves = self._local_leaves(units) if units else []
        if not leaves or not self._needs_leaves(choice):
            for x, layout in zip(node.inputs, choice.inputs, strict=True):
                self.read(x, layout)
            super()._add_for_rows(choice)
            return
        inputs = self._inputs(choice)
        results: list[dict[int, Value]] = [{} for _ in node.outputs]
        for self._leaf in leaves:
            operands = self._leaf_operands(choice, inputs, units, self._leaf)
            pairs = zip(node.outputs, choice.outputs, strict=True)
            outputs = [self.new(self._spec_of_leaf(y, layout)) for y, layout in pairs]
            self._append(choice, operands, outputs, self._leaf)
            for by_leaf, y in zip(results, outputs, strict=True):
                by_leaf[self._leaf] = y
        self._leaf = None
        for key, by_leaf in zip(
            zip(node.outputs, choice.outputs, strict=True), results, strict=True
        ):
            if isinstance(key[1], Split):
                self._leaf_results[key] = by_leaf
            else:  # it is equal for all leaves
                self.values[key] = by_leaf[leaves[0]]

    def _needs_leaves(self, choice: Choice) -> bool:
        """Return whether a node reads separate leaves, or its bits can depend on rows.

        The updates of slots that are sharded over ranks stay single nodes. So does a
        collective along another axis: the ranks of this axis can have different numbers
        of leaves, but all ranks call the same collectives.
        """
        op = choice.node.op
        if op.kind is Kind.COLLECTIVE:
            return False
        if op.kind not in _FREE_KINDS and op is not combine_leaves_p:
            return True
        pairs = zip(choice.node.inputs, choice.inputs, strict=True)
        return any(pair in self._leaf_results for pair in pairs)

    def _spec_of_leaf(self, value: Value, layout: Layout) -> Spec:
        if not isinstance(layout, Split):
            return value.spec
        rows = self._axis_of_leaf().rows(layout.units(value.spec))
        return layout.local(value.spec, len(rows))

    def _leaf_operands(
        self, choice: Choice, inputs: Sequence[Value], units: int, leaf: int
    ) -> list[Value]:
        """Return the operands of a node for one leaf."""
        operands = []
        pairs = zip(choice.node.inputs, choice.inputs, strict=True)
        for (x, layout), local in zip(pairs, inputs, strict=True):
            if (x, layout) in self._leaf_results:
                operands.append(self._leaf_results[x, layout][leaf])
                continue
            if not isinstance(layout, Split):
                operands.append(local)
                continue
            key = x, layout, leaf
            if key not in self._leaf_slices:
                self._leaf_slices[key] = self.leaf(local, layout, units, leaf)
            operands.append(self._leaf_slices[key])
        return operands

    def _combine_terms(
        self, tree: Subtree, terms: Terms, op: str, spec: Spec
    ) -> Value | None:
        if not dtypes.is_float(spec.dtype):  # its results are exact
            return super()._combine_terms(tree, terms, op, spec)
        operands: list[Value] = []

        def number(tree: Subtree) -> Tree | None:
            first, size = tree
            if size > 1 or first not in terms:
                return None
            operands.append(terms[first])
            return len(operands) - 1

        combined = combine_subtree(tree, number, _make_pair)
        if len(operands) < 2:
            return operands[0] if operands else None
        result, attrs = self.new(spec), {"op": op, "tree": combined}
        self.nodes.append(Node(combine_leaves_p, operands, attrs, (result,)))
        return result

    def _changed(self, value: Value, layout: Layout) -> Value:
        leaves = self._leaf_results.get((value, layout))
        if leaves is None:
            return super()._changed(value, layout)
        assert isinstance(layout, Split)
        return self._join(value, layout, list(leaves.values()))

    def _join(self, value: Value, split: Split, leaves: Sequence[Value]) -> Value:
        """Concatenate the leaves of a value along the units."""
        if len(leaves) == 1:
            return leaves[0]
        axis, spec = split.axis, self.spec(value.spec, split)
        if split.major == 1:
            return self.emit("concatenate", leaves, spec, axis=axis)

        def widen(x: Spec) -> Spec:
            shape = list(x.shape)
            shape[axis : axis + 1] = [split.major, shape[axis] // split.major]
            return x.with_shape(tuple(shape))

        specs = [widen(x.spec) for x in leaves]
        wide = [
            self.emit("reshape", [x], wide_spec, shape=wide_spec.shape)
            for x, wide_spec in zip(leaves, specs, strict=True)
        ]
        joined = self.emit("concatenate", wide, widen(spec), axis=axis + 1)
        return self.emit("reshape", [joined], spec, shape=spec.shape)

    def _body(self, body: ShardedGraph) -> Graph:
        """Return a sub-graph for the rows of the current leaf."""
        if self._leaf is None:
            return super()._body(body)
        layouts = [body.layouts.get(x) for x in body.graph.inputs]
        return partition(body, self._axis_of_leaf(), layouts)

    def _axis_of_leaf(self) -> MeshAxis:
        assert self._leaf is not None
        return _LeafAxis(self.axis, self._leaf)


def _make_pair(left: Tree, right: Tree) -> Tree:
    return left, right


def _units_of_results(choice: Choice) -> int:
    """Return the units of the split results of a node; 0: no result is split."""
    pairs = zip(choice.node.outputs, choice.outputs, strict=True)
    return next((s.units(y.spec) for y, s in pairs if isinstance(s, Split)), 0)


class _LeafAxis(MeshAxis):
    """Mesh axis on which each rank has the units of one leaf."""

    leaf: int

    def __init__(self, axis: MeshAxis, leaf: int) -> None:
        super().__init__(axis.name, axis.group, axis.leaves, axis.even)
        object.__setattr__(self, "leaf", leaf)

    def rows(self, units: int, rank: int | None = None) -> range:
        return range(self.bound(self.leaf, units), self.bound(self.leaf + 1, units))
