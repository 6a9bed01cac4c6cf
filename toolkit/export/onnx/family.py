"""Family: the traces of a model at several sizes, as one symbolic graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toolkit.core.tensor import Tensor
from toolkit.definitions.records import record
from toolkit.errors import UnsupportedError
from toolkit.export.onnx.sizes import Length, Sizes, fit, fit_all
from toolkit.ir import Graph, Node, Value

Array = Any
_NO_FIT = object()  # represents an unknown dependence on sizes


@record
class SizeDependent:
    """Constant that depends on free sizes.

    The value at index i of `axis` is `start + step * i`, repeated to `shape`. Each
    number in `start` is a constant plus multiples of sizes.

    Attributes:
        start: the start, with extent 1 along all axes that depend on sizes.
        slopes: for each size name, the coefficients to add to start.
        step: the step, with the shape of start.
        axis: the axis of the steps; None if step is 0.
        shape: the full shape.
    """

    start: Array
    slopes: Mapping[str, Array]
    step: Array
    axis: int | None
    shape: tuple[Length, ...]


class TraceMismatchError(Exception):
    """Error for traces that differ in more than extents."""


class Family:
    """Graphs of equal structure, traced at different sizes; the first represents all.

    Args:
        graphs: one for each sample.
        samples: the sizes of the traces.
        label: the model's label in messages.

    Raises:
        TraceMismatchError: their structure differs.
    """

    def __init__(
        self, graphs: Sequence[Graph], samples: Sequence[Sizes], label: str
    ) -> None:
        self.graphs: Sequence[Graph] = graphs
        self.graph: Graph = graphs[0]
        self.label = label
        self._samples = samples
        self._values: dict[Value, tuple[Any, ...]] = {}
        self._nodes: dict[Node, tuple[Node, ...]] = {}
        self._constants: dict[Value, Any] = {}
        self._match_graphs(graphs)

    # --- structure --------------------------------------------------------------------

    def _match_graphs(self, graphs: Sequence[Graph]) -> None:
        self._match_values([graph.inputs for graph in graphs])
        if len({len(graph.nodes) for graph in graphs}) > 1:
            raise TraceMismatchError(describe_node(_first_difference(graphs)))
        for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
            first = nodes[0]
            if any(n.op is not first.op or [*n.attrs] != [*first.attrs] for n in nodes):
                raise TraceMismatchError(describe_node(first))
            self._match_values([node.inputs for node in nodes], first)
            subgraphs = [node.subgraphs for node in nodes]
            if len({len(graphs_of_node) for graphs_of_node in subgraphs}) > 1:
                raise TraceMismatchError(describe_node(first))
            for bodies in zip(*subgraphs, strict=True):
                self._match_graphs(bodies)
            self._match_values([node.outputs for node in nodes], first)
            self._nodes[first] = nodes
        self._match_values([graph.outputs for graph in graphs])

    def _match_values(
        self, columns: Sequence[Sequence[Any]], node: Node | None = None
    ) -> None:
        if len({len(column) for column in columns}) > 1:
            raise TraceMismatchError(describe_node(node))
        for values in zip(*columns, strict=True):
            previous = self._values.setdefault(values[0], values)
            if previous is values:
                ranks = {v.spec.ndim for v in values}
                kinds = {v.constant is None for v in values}
                if len(ranks) > 1 or len(kinds) > 1:
                    raise TraceMismatchError(describe_node(node))
            elif not all(map(_is_same_value, previous, values)):
                raise TraceMismatchError(describe_node(node))

    def counterparts(self, value: Value) -> tuple[Any, ...]:
        """Return the corresponding value in each of the graphs."""
        return self._values[value]

    # --- what depends on sizes --------------------------------------------------------

    def shape(self, value: Value) -> tuple[Length | None, ...]:
        """Return the extents; None for an unknown dependence on sizes."""
        shapes = [counterpart.spec.shape for counterpart in self._values[value]]
        shape: tuple[Length | None, ...] = fit_all(shapes, self._samples)
        return shape

    def attrs(self, node: Node, unchecked: str = "") -> dict[str, Any]:
        """Return the attributes, with an `Extent` for each size-dependent integer.

        Args:
            node: a node of the first graph.
            unchecked: the name of an attribute without restrictions.

        Raises:
            UnsupportedError: an attribute has an unknown dependence on sizes.
        """
        nodes = self._nodes[node]
        attrs = {}
        for name in node.attrs:
            values = [n.attrs[name] for n in nodes]
            attrs[name] = self._fit_attribute(values)
            if name != unchecked and _has_failed_fit(attrs[name]):
                raise self.unsupported_dependence(
                    node, f"{name}={values[0]}, {values[1]}, ..."
                )
        return attrs

    def _fit_attribute(self, values: Sequence[Any]) -> Any:
        first = values[0]
        if isinstance(first, Graph) or all(value == first for value in values):
            return first
        if isinstance(first, tuple) and len({len(value) for value in values}) == 1:
            columns = zip(*values, strict=True)
            return tuple(self._fit_attribute(column) for column in columns)
        extent = fit(values, self._samples) if type(first) is int else None
        return _NO_FIT if extent is None else extent

    def common_value(
        self, node: Node, function: Callable[[Node], Any], name: str
    ) -> Any:
        """Return a function's value for the node, which must be equal in each graph."""
        values = self.value_per_graph(node, function)
        if any(value != values[0] for value in values):
            raise self.unsupported_dependence(
                node, f"{name} of {values[0]}, {values[1]}, ..."
            )
        return values[0]

    def value_per_graph(self, node: Node, function: Callable[[Node], Any]) -> list[Any]:
        """Return a function's value for the node in each graph."""
        return [function(counterpart) for counterpart in self._nodes[node]]

    def unsupported_dependence(
        self, node: Node | None, description: str
    ) -> UnsupportedError:
        """Return the error for a dependence on sizes that cannot be written."""
        return UnsupportedError(
            f"{self.label}: {describe_node(node)} depends on the free sizes "
            f"{[*self._samples[0]]} in a way that is not a sum of their multiples: "
            f"{description}; pass an input_signature with fixed extents"
        )

    # --- constants --------------------------------------------------------------------

    def constant(self, value: Value) -> Array | SizeDependent:
        """Return the data of a constant, or its dependence on sizes."""
        data = self.constant_or_none(value)
        if data is None:
            raise self.unknown_dependence(value)
        return data

    def constant_or_none(self, value: Value) -> Array | SizeDependent | None:
        """Return the same, or None for an unknown dependence on sizes."""
        if value not in self._constants:
            arrays = self.arrays(value)
            data = _common_array(arrays)
            self._constants[value] = self.fit_arrays(arrays) if data is None else data
        return self._constants[value]

    def arrays(self, value: Value) -> list[Array]:
        """Return the data of a constant in each of the graphs."""
        counterparts = self._values.get(value, (value,))
        return [np.asarray(counterpart.constant) for counterpart in counterparts]

    def unknown_dependence(self, value: Value) -> UnsupportedError:
        """Return the error for an unknown dependence."""
        observed = [counterpart.spec.shape for counterpart in self._values[value]]
        shapes = ", ".join(map(str, observed))
        return self.unsupported_dependence(
            self._find_reader(value), f"a constant of shapes {shapes}"
        )

    def _find_reader(self, value: Value) -> Any:
        nodes = (n for n in self.graph.walk() if value in set(n.inputs))
        return next(nodes, None)

    def fit_arrays(self, arrays: Sequence[Array]) -> SizeDependent | None:
        """Return the dependence of arrays on their sizes, or None if unknown."""
        shape = fit_all([x.shape for x in arrays], self._samples)
        if None in shape:
            return None
        axes = [i for i, n in enumerate(shape) if not isinstance(n, int)]
        corner = tuple(
            slice(0, 1) if i in axes else slice(None) for i in range(len(shape))
        )
        starts = [x[corner] for x in arrays]
        base_and_slopes = self._slopes(starts)
        if base_and_slopes is None:
            return None
        step, axis = np.zeros_like(starts[0]), None
        if len(axes) == 1 and starts[0].dtype.kind in "iuf":
            second = tuple(
                slice(1, 2) if i in axes else s for i, s in enumerate(corner)
            )
            step = arrays[0][second] - starts[0]
            axis = axes[0] if step.any() else None
        for start, array in zip(starts, arrays, strict=True):
            if not np.array_equal(_expand_steps(start, step, axis, array.shape), array):
                return None
        return SizeDependent(base_and_slopes[0], base_and_slopes[1], step, axis, shape)

    def _slopes(self, arrays: Sequence[Array]) -> tuple[Array, dict[str, Array]] | None:
        """Return a constant, and the coefficients of each size."""
        first = arrays[0]
        if all(np.array_equal(x, first) for x in arrays[1:]):
            return first, {}
        if first.dtype.kind not in "iuf":
            return None
        base, slopes = self._samples[0], {}
        exact = [x.astype(np.float64) for x in arrays]
        for i, name in enumerate(base, start=1):
            slope = (exact[i] - exact[0]) / (self._samples[i][name] - base[name])
            if slope.any():
                slopes[name] = slope
        constant = exact[0] - sum(slope * base[name] for name, slope in slopes.items())
        for sizes, array in zip(self._samples, exact, strict=True):
            predicted = constant + sum(k * sizes[name] for name, k in slopes.items())
            if not np.array_equal(predicted, array):
                return None
        dtype = first.dtype
        return constant.astype(dtype), {n: k.astype(dtype) for n, k in slopes.items()}


def _expand_steps(start: Array, step: Array, axis: int | None, shape: Any) -> Array:
    if axis is not None:
        positions = np.arange(shape[axis]).reshape([-1, *[1] * (len(shape) - axis - 1)])
        start = start + step * positions.astype(start.dtype)
    return np.broadcast_to(start, shape)


def _common_array(arrays: Sequence[Any]) -> Array | None:
    """Return the array that equals all of these, or None."""
    first = arrays[0]
    if all(x is first for x in arrays):
        return np.asarray(first)
    first = np.asarray(first)
    same = (
        x.shape == first.shape and x.tobytes() == first.tobytes()
        for x in map(np.asarray, arrays[1:])
    )
    return first if all(same) else None


def _is_same_value(a: Tensor, b: Tensor) -> bool:
    """Return whether two values are identical, or constants with equal data."""
    if a is b:
        return True
    if a.constant is None or b.constant is None or a.spec != b.spec:
        return False
    return np.asarray(a.constant).tobytes() == np.asarray(b.constant).tobytes()


def _has_failed_fit(value: object) -> bool:
    """Return whether a result includes a failed fit."""
    if isinstance(value, tuple):
        return any(map(_has_failed_fit, value))
    return value is _NO_FIT


def describe_node(node: Node | None) -> str:
    """Return a node for messages: its layer and its operation."""
    if node is None:
        return "the model"
    layer = node.origin
    return f"layer {layer!r} ({node.op.name})" if layer else f"operation {node.op.name}"


def _first_difference(graphs: Sequence[Graph]) -> Node | None:
    for nodes in zip(*(graph.nodes for graph in graphs), strict=False):
        if any(node.op is not nodes[0].op for node in nodes):
            return nodes[0]
    return None
