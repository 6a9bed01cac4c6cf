"""Test whether a graph computes each row of a batch independently."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from toolkit.compiler.sharding.layouts import Layout, MeshAxis, Split
from toolkit.compiler.sharding.propagate import propagate
from toolkit.definitions.records import record
from toolkit.ir import Graph, Kind, Node, Value


@record
class _RowGroup:
    """A group with one rank for each row; the ranks exchange nothing."""

    size: int
    rank: int = 0


def rows_are_independent(graph: Graph, rows: int, inputs: Collection[int]) -> bool:
    """Return whether no row of any output depends on other rows of the inputs.

    This is true if one rank for each row can compute the graph without collectives.

    Args:
        graph: graph without unused nodes.
        rows: the first extent of the batch inputs and of all outputs, 2 or more.
        inputs: indices of the batch inputs.

    Returns:
        True if independence is proven. False may only mean that an operation has no
        axis rule.
    """
    group: Any = _RowGroup(rows)
    layouts: list[Layout] = [
        Split(0) if i in inputs else None for i in range(len(graph.inputs))
    ]
    sharded = propagate(graph, MeshAxis("rows", group, rows), layouts)

    def of(value: Value) -> Layout:
        return None if value.constant is not None else sharded.layouts.get(value)

    equal_rows = _EqualRows()
    for choice in sharded.choices:
        equal_rows.visit(choice.node)
        for x, input_layout in zip(choice.node.inputs, choice.inputs, strict=True):
            may_differ = of(x) is not None or not equal_rows.has(x)
            if of(x) != input_layout and may_differ:
                return False
    return all(of(y) == Split(0) for y in sharded.graph.outputs)


class _EqualRows:
    """Values whose rows are all equal: for example, zeros."""

    def __init__(self) -> None:
        self._values: set[Value] = set()

    def has(self, value: Value) -> bool:
        """Return whether all entries along the first axis are equal."""
        if value.constant is None:
            return value in self._values
        array = np.asarray(value.constant)
        return array.ndim > 0 and bool((array == array[:1]).all())

    def visit(self, node: Node) -> None:
        """Record the results of a node if all their rows are equal."""
        if node.op.name == "broadcast_to":
            shape, target_shape = node.inputs[0].spec.shape, node.outputs[0].spec.shape
            has_equal_rows = len(shape) < len(target_shape) or shape[:1] == (1,)
        else:
            has_equal_rows = node.op.kind is Kind.ELEMENTWISE and all(
                map(self.has, node.inputs)
            )
        if has_equal_rows:
            self._values.update(node.outputs)
