"""Graphs for values of their free extents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import numpy as np

from toolkit import dtypes
from toolkit.ir.extents import Domain, Extent, has_extent
from toolkit.ir.graph import Graph, Node
from toolkit.ir.value import Constant, Value

T = TypeVar("T")


def with_extents(graph: Graph, domain: Domain, extents: tuple[int, ...]) -> Graph:
    """Return a graph with integers in place of the free extents.

    Args:
        graph: a traced graph.
        domain: its free extents.
        extents: a value for each of them.
    """
    return _Substitution(domain, extents).graph(graph)


class _Substitution:
    """Replacement of extents by integers, with each new value."""

    def __init__(self, domain: Domain, extents: tuple[int, ...]) -> None:
        self._domain = domain
        self._extents = extents
        self._numbers: dict[str, int | float] = {}
        self._values: dict[Value, Value] = {}

    def graph(self, graph: Graph) -> Graph:
        """Return a graph with integers."""
        inputs = tuple(map(self._value, graph.inputs))
        nodes = tuple(map(self._node, graph.nodes))
        names = {self._values.get(x, x): name for x, name in graph.names.items()}
        return Graph(inputs, nodes, tuple(map(self._value, graph.outputs)), names)

    def _node(self, node: Node) -> Node:
        return Node(
            node.op,
            [self._value(x) for x in node.inputs],
            {name: self._attribute(x) for name, x in node.attrs.items()},
            [self._value(y) for y in node.outputs],
            node.device,
        )

    def _value(self, value: Value) -> Value:
        if value not in self._values:
            self._values[value] = self._new_value(value)
        return self._values[value]

    def _new_value(self, value: Value) -> Value:
        if value.extent is not None:
            number = self._number(value.extent)
            dtype = dtypes.numpy_dtype(value.spec.dtype)
            return Constant(np.asarray(number, dtype), is_open=True)
        if not has_extent(value.spec.shape):
            return value
        new = Value(value.spec.with_shape(map(self._attribute, value.spec.shape)))
        if value.origin:
            new._origin = value.origin
        return new

    def _attribute(self, x: T) -> T:
        if isinstance(x, Extent):
            return cast(T, self._number(x))
        if type(x) in (tuple, list):
            items: Any = x
            return cast(T, type(items)(map(self._attribute, items)))
        if isinstance(x, Graph):
            return cast(T, self.graph(x))
        if isinstance(x, Mapping):
            return cast(T, {n: self._attribute(value) for n, value in x.items()})
        return x

    def _number(self, extent: Extent) -> int | float:
        if extent.text not in self._numbers:
            (number,) = self._domain.evaluator([extent])(*self._extents)
            self._numbers[extent.text] = number
        return self._numbers[extent.text]
