"""Sharding rules of sums that keep the terms of the leaves of a batch apart.

Gradient accumulation adds the gradients of several steps, and needs their total once.
`leaf_terms` has the terms of the leaves of each rank, without an exchange. `sum_leaves`
combines them along the tree, and exchanges data only in a step that needs the total.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes
from toolkit.compiler.sharding.choices import Choice
from toolkit.compiler.sharding.layouts import Layout, MeshAxis, Partial, Split
from toolkit.ir import Constant, Graph, Node, Spec, Value

if TYPE_CHECKING:
    from toolkit.compiler.sharding.partition import Local

# Operations of two values of one shape that commute with the selection of a leaf.
_SUMS = ("add", "subtract")


def separate_terms(graph: Graph, batch: int) -> Graph:
    """Move `leaf_terms` before the operations that are linear in the sum.

    A sum of a gradient and the gradient of a regularizer, or a gradient in another
    dtype, is no sum over the batch itself, but its operands are.

    Args:
        graph: the graph of a step.
        batch: the number of inputs that are parts of a batch.
    """
    if not any(node.op.name == "leaf_terms" for node in graph.nodes):
        return graph
    return _Separation(graph, batch).apply()


class _Separation:
    """New nodes of a graph, in which `leaf_terms` reads sums over the batch."""

    def __init__(self, graph: Graph, batch: int) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.of_batch = set(graph.inputs[:batch])
        for node in graph.nodes:
            if any(x in self.of_batch for x in node.inputs):
                self.of_batch.update(node.outputs)
        self.nodes: list[Node] = []

    def apply(self) -> Graph:
        """Return the graph without the nodes that nobody reads any more."""
        for node in self.graph.nodes:
            if node.op.name != "leaf_terms":
                self.nodes.append(node)
                continue
            self._separate(node.inputs[0], node, node.outputs[0])
        return self.graph.replace(self.nodes).pruned()

    def _separate(self, x: Value, like: Node, result: Value | None = None) -> Value:
        """Append the nodes that compute the terms of x; return the terms.

        Args:
            x: a sum.
            like: the node `leaf_terms`.
            result: the value of the terms; None for a new one.
        """
        spec = x.spec.with_shape((like.attrs["leaves"], *x.spec.shape))
        result = Value(spec) if result is None else result
        producer = self.producers.get(x)
        operands = None if producer is None else self._linear_operands(producer)
        if producer is None or operands is None:
            self.nodes.append(Node(like.op, [x], like.attrs, (result,), like.device))
        else:
            inputs = [
                self._separate(operand, like) if is_sum else operand
                for operand, is_sum in operands
            ]
            op, attrs = producer.op, producer.attrs
            self.nodes.append(Node(op, inputs, attrs, (result,), producer.device))
        return result

    def _linear_operands(self, node: Node) -> list[tuple[Value, bool]] | None:
        """Return the operands of a linear operation, and whether each is a sum.

        None: the operation is not linear, or no operand depends on the batch.
        """
        if node.outputs[0] not in self.of_batch:
            return None
        name, spec = node.op.name, node.outputs[0].spec
        if name in _SUMS and all(x.spec == spec for x in node.inputs):
            return [(x, True) for x in node.inputs]
        if name == "negative" or (name == "cast" and _is_wider(node)):
            return [(node.inputs[0], True)]
        if name in ("multiply", "divide"):
            x, factor = node.inputs
            if x.spec == spec and factor.spec.ndim == 0 and self._is_same(factor):
                return [(x, True), (factor, False)]
        return None

    def _is_same(self, x: Value) -> bool:
        """Return whether a value is the same for all leaves."""
        return x not in self.of_batch


def _is_wider(node: Node) -> bool:
    """Return whether a cast between floating dtypes loses nothing."""
    before, after = node.inputs[0].spec.dtype, node.outputs[0].spec.dtype
    are_floats = dtypes.is_float(before) and dtypes.is_float(after)
    return are_floats and dtypes.result_type(before, after) == after


# --- propagation ----------------------------------------------------------------------


def choose_leaf_sums(
    node: Node, inputs: Sequence[Layout], axis: MeshAxis
) -> Choice | None:
    """Return the choice for `leaf_terms` or `sum_leaves`; None for other operations."""
    if node.op.name == "leaf_terms":
        return _choose_terms(node, inputs[0], axis)
    return _choose_sum(node, inputs[0], axis) if node.op.name == "sum_leaves" else None


def _is_over_leaves(axis: MeshAxis) -> bool:
    """Return whether an axis is the one of batches, the only one with uneven rows."""
    return not axis.even


def _choose_terms(node: Node, layout: Layout, axis: MeshAxis) -> Choice:
    if isinstance(layout, Split):
        return Choice(node, [layout], [layout._replace(axis=layout.axis + 1)])
    is_sum = isinstance(layout, Partial) and layout.op == "sum"
    if _is_over_leaves(axis) and node.attrs["leaves"] == axis.leaves:
        return Choice(node, [layout if is_sum else None], [Split(0)])
    return Choice(node, [None], [None])


def _choose_sum(node: Node, layout: Layout, axis: MeshAxis) -> Choice:
    if not isinstance(layout, Split):
        return Choice(node, [None, None], [None])
    if layout.axis:
        return Choice(node, [layout, None], [layout._replace(axis=layout.axis - 1)])
    return Choice(node, [layout, None], [Partial("sum", axis.leaves)])


# --- partition ------------------------------------------------------------------------


def add_leaf_sums(local: Local, choice: Choice) -> bool:
    """Add the nodes of a choice of `choose_leaf_sums`; return whether it is one."""
    if choice.node.op.name == "leaf_terms" and choice.outputs[0] == Split(0):
        _add_terms(local, choice)
        return True
    if choice.node.op.name == "sum_leaves" and isinstance(choice.outputs[0], Partial):
        _add_sum(local, choice)
        return True
    return False


def _local_leaves(axis: MeshAxis) -> range:
    return axis.present(axis.leaves).range_of_rank(axis.group.rank, axis.group.size)


def _add_terms(local: Local, choice: Choice) -> None:
    """Stack the terms of the leaves of this rank; a leaf without rows has zeros."""
    (x,), (y,) = choice.node.inputs, choice.node.outputs
    leaves = _local_leaves(local.axis)
    if choice.inputs[0] is None:
        value = local.read(x, None)
        terms, sources = ({0: value} if 0 in leaves else {}), [value]
    else:
        terms, sources = local.terms[x], local.sources[x]
    row = y.spec.with_shape((1, *x.spec.shape))
    zero: Value = Constant(np.zeros((), dtypes.numpy_dtype(x.spec.dtype)))
    if not terms and sources:
        zero = _zero_after(local, sources, x.spec.dtype)
    rows = [
        local.emit("reshape", [terms[leaf]], row, shape=row.shape)
        if leaf in terms
        else local.emit("broadcast_to", [zero], row, shape=row.shape)
        for leaf in leaves
    ]
    spec = local.spec(y.spec, Split(0))
    local.values[y, Split(0)] = (
        rows[0] if len(rows) == 1 else local.emit("concatenate", rows, spec, axis=0)
    )


def _zero_after(local: Local, sources: Sequence[Value], dtype: str) -> Value:
    """Return a zero that depends on values, as the terms of other ranks do.

    Dependencies between collectives must be the same on all ranks.
    """
    flags = []
    for x in map(partial(_first_element, local), sources):
        flag = local.emit("cast", [x], x.spec.with_dtype("bool"), dtype="bool")
        axes = tuple(range(x.spec.ndim))
        spec = Spec((), "bool")
        flags.append(local.emit("all", [flag], spec, axis=axes, keepdims=False))
    flag = flags[0]
    for other in flags[1:]:
        flag = local.emit("logical_and", [flag, other], flag.spec)
    number = local.emit("cast", [flag], Spec((), dtype), dtype=dtype)
    zero: Any = Constant(np.zeros((), dtypes.numpy_dtype(dtype)))
    return local.emit("multiply", [number, zero], number.spec)


def _first_element(local: Local, x: Value) -> Value:
    """Return one element of a value, or a value without elements."""
    count = min(1, x.spec.size)
    start, stop = (0,) * x.spec.ndim, (count,) * x.spec.ndim
    spec, step = x.spec.with_shape(stop), (1,) * x.spec.ndim
    if spec == x.spec:
        return x
    return local.emit("slice", [x], spec, start=start, stop=stop, step=step)


def _add_sum(local: Local, choice: Choice) -> None:
    """Take the terms of the leaves of this rank apart, for a sum along the tree."""
    (stack, is_needed), (y,) = choice.node.inputs, choice.node.outputs
    layout, axis = choice.inputs[0], local.axis
    rows = local.read(stack, layout)
    local.terms[y] = {
        leaf: local.emit(
            "reshape",
            [local.leaf(rows, layout, axis.leaves, leaf)],
            y.spec,
            shape=y.spec.shape,
        )
        for leaf in _local_leaves(axis)
    }
    local.sources[y] = []
    local.conditions[y] = local.read(is_needed, None)
