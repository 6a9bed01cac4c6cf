"""Comparison of traces for several batch sizes: test for equal computation per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from toolkit.ir import Graph, Node, Value

# Attributes with extents, which may be proportional to the number of rows.
_EXTENTS = ("shape", "stop")


def graphs_equal_up_to_batch(graphs: Mapping[int, Graph]) -> bool:
    """Return whether all graphs compute a row in the same way.

    A graph is traced for one number of rows: Python code may divide by it, or branch on
    it. So all graphs must have the same nodes and the same constants, and differ in
    extents only.

    Args:
        graphs: graphs by number of rows, 1 or more.
    """
    largest = max(graphs)
    return all(
        _Comparison(rows, largest).are_equal(graph, graphs[largest])
        for rows, graph in graphs.items()
        if rows != largest
    )


class _Comparison:
    """Comparison of two graphs; the first has fewer rows."""

    def __init__(self, first_rows: int, second_rows: int) -> None:
        self.rows = first_rows, second_rows
        # The value of the second graph that is equivalent to each value of the first.
        self.same: dict[Value, Value] = {}
        # The operands of broadcasts of one row that are no-ops if there is only one
        # row.
        self.broadcast_operands: dict[Value, Value] = {}

    def are_equal(self, first: Graph, second: Graph) -> bool:
        """Return whether the graphs differ only in extents proportional to the rows."""
        for x, y in zip_longest(first.inputs, second.inputs):
            if x is None or y is None or not self._have_same_spec(x, y):
                return False
            # otherwise it may be another weight
            if first.names.get(x) != second.names.get(y):
                return False
            self.same[x] = y
        nodes = zip_longest(self._nodes(first), self._nodes(second))
        return all(self._is_same_node(a, b) for a, b in nodes) and (
            len(first.outputs) == len(second.outputs)
            and all(map(self._is_same, first.outputs, second.outputs))
        )

    def _nodes(self, graph: Graph) -> Iterator[Node]:
        for node in graph.nodes:
            if self.rows[0] == 1 and self._broadcasts_one_row(node):
                self.broadcast_operands[node.outputs[0]] = node.inputs[0]
            else:
                yield node

    def _broadcasts_one_row(self, node: Node) -> bool:
        """Return whether a node is a no-op if there is only one row."""
        if node.op.name != "broadcast_to":
            return False
        shape, target_shape = node.inputs[0].spec.shape, node.outputs[0].spec.shape
        return len(shape) == len(target_shape) and all(
            n == m or (n, m) == self.rows
            for n, m in zip(shape, target_shape, strict=True)
        )

    def _is_same_node(self, a: Node | None, b: Node | None) -> bool:
        if a is None or b is None or a.op.name != b.op.name:
            return False
        if len(a.inputs) != len(b.inputs) or len(a.outputs) != len(b.outputs):
            return False
        if not all(map(self._is_same, a.inputs, b.inputs)):
            return False
        if a.attrs.keys() != b.attrs.keys() or not all(
            self._is_same_attribute(value, b.attrs[name], name in _EXTENTS)
            for name, value in a.attrs.items()
        ):
            return False
        self.same.update(zip(a.outputs, b.outputs, strict=True))
        return all(map(self._have_same_spec, a.outputs, b.outputs))

    def _is_same(self, x: Value, y: Value) -> bool:
        x, y = self.broadcast_operands.get(x, x), self.broadcast_operands.get(y, y)
        if x.constant is None or y.constant is None:
            return self.same.get(x) is y
        return self._is_same_constant(np.asarray(x.constant), np.asarray(y.constant))

    def _is_same_constant(self, x: Any, y: Any) -> bool:
        if x.dtype != y.dtype or not self._is_same_shape(x.shape, y.shape):
            return False
        if x.shape != y.shape:  # the same row, repeated
            if x.shape[1:] != y.shape[1:]:
                return False
            row = x[:1]
            return bool(_are_equal(x, row).all() and _are_equal(y, row).all())
        return bool(np.all(_are_equal(x, y)))

    def _have_same_spec(self, x: Value, y: Value) -> bool:
        return x.spec.dtype == y.spec.dtype and self._is_same_shape(
            x.spec.shape, y.spec.shape
        )

    def _is_same_shape(self, x: tuple[int, ...], y: tuple[int, ...]) -> bool:
        return len(x) == len(y) and all(map(self._is_same_extent, x, y))

    def _is_same_extent(self, n: int, m: int) -> bool:
        """Return whether extents are equal, or proportional to the rows."""
        first_rows, second_rows = self.rows
        return n == m or n * second_rows == m * first_rows

    def _is_same_attribute(self, x: Any, y: Any, is_extent: bool) -> bool:
        if x is y:
            return True
        if type(x) is not type(y):
            return False
        if isinstance(x, Graph):
            return self.are_equal(x, y)
        if isinstance(x, list | tuple):
            return len(x) == len(y) and all(
                self._is_same_attribute(a, b, is_extent)
                for a, b in zip(x, y, strict=True)
            )
        if isinstance(x, np.ndarray):
            return self._is_same_constant(x, y)
        if is_extent and isinstance(x, int):
            return self._is_same_extent(x, y)
        return bool(x == y) or (x != x and y != y)


def _are_equal(x: Any, y: Any) -> Any:
    return (x == y) | ((x != x) & (y != y))
