"""Computation in float32 for values that have 16 bits outside a program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from toolkit.backends.numpy.jit.math.bfloat16 import NARROW
from toolkit.backends.numpy.jit.math.narrow import WIDE, is_narrow
from toolkit.backends.numpy.jit.products import PRODUCTS
from toolkit.backends.numpy.narrow_factors import reads_stored
from toolkit.backends.target import Target
from toolkit.ir import Constant, Graph, Kind, Narrow, Node, Spec, Value, cast_node

# These depend on the representation of a number.
_BIT_OPERATIONS = ("bitcast", "reinterpret")
# Operations whose outputs are unchanged elements of their operands.
_MOVING_KINDS = (Kind.VIEW, Kind.MOVE)
_MOVING_OPERATIONS = {
    *("gather", "take_along_axis", "put_along_axis", "where", "stop_gradient"),
    *("dynamic_slice", "dynamic_update_slice"),
}
# Moving operations that read a few elements of a stored operand, or replace a few.
_SELECTIONS = {"gather", "take_along_axis", "dynamic_slice", "dynamic_update_slice"}
# Attributes that count the inputs of loops and branches before the invariant ones.
_VARYING_INPUTS = {"while_loop": ("carry",), "scan": ("carry", "xs"), "cond": ()}
# Invariant values of up to this size are converted in each iteration.
_FEW_BYTES = 1 << 14


def widen(graph: Graph, target: Target) -> Graph:
    """Compute in float32 the values that are bfloat16 or float16 inside a graph.

    A processor without arithmetic of 16 bits converts every operand. Computing in
    float32 is faster and more precise. Inputs and outputs of the graph keep their
    dtype, and a value with casts in both directions is rounded. `narrow_storage`
    chooses further values to round.
    """
    return _Widening(graph, False).widen() if _has_narrow(graph) else graph


def _has_narrow(graph: Graph) -> bool:
    values = (v for n in graph.walk() for v in (*n.inputs, *n.outputs))
    return any(is_narrow(v.spec.dtype) for v in (*values, *graph.inputs))


def _wide_value(old: Value, spec: Spec) -> Value:
    """Return a replacement of a value. Only bfloat16 may be its storage."""
    return Narrow(spec) if old.spec.dtype == NARROW else Value(spec)


class _Widening:
    """Replacement of the values of a graph by values in float32.

    Args:
        graph: the graph to rewrite.
        is_inner: whether it is the graph of a loop or a branch, whose inputs and
            outputs become float32.
        stored_inputs: inputs of an inner graph that have 16 bits.
    """

    def __init__(
        self, graph: Graph, is_inner: bool, stored_inputs: Collection[Value] = ()
    ) -> None:
        self.graph, self.is_inner = graph, is_inner
        self.stored_inputs = stored_inputs
        self.nodes: list[Node] = []
        self.wide: dict[Value, Value] = {}
        # Stored values of 16 bits that are equal to the values of the graph.
        self.stored: dict[Value, Value] = {}
        self.rounded = _find_rounded_values(graph)
        self.rounding_casts = _find_rounding_casts(graph, is_inner)
        self.computed = _find_computed_values(graph)

    def widen(self) -> Graph:
        """Return the graph in float32."""
        inputs = [self._declare_input(x) for x in self.graph.inputs]
        for node in self.graph.nodes:
            self._add(node)
        outputs = [
            self._read(y) if self.is_inner else self._read_stored(y)
            for y in self.graph.outputs
        ]
        names = self.graph.names
        return Graph(tuple(inputs), tuple(self.nodes), tuple(outputs), names)

    def _declare_input(self, x: Any) -> Any:
        if not is_narrow(x.spec.dtype):
            return x
        if self.is_inner and x not in self.stored_inputs:
            self.wide[x] = _wide_value(x, x.spec.with_dtype(WIDE))
            return self.wide[x]
        self.stored[x] = x
        return x

    def _read(self, x: Any) -> Any:
        """Return the value to compute with."""
        if x in self.wide or not is_narrow(x.spec.dtype):
            return self.wide.get(x, x)
        if x.constant is not None and x.extent is None:
            wide: Value = Constant(x.constant.astype(np.float32))
        else:
            wide = Value(x.spec.with_dtype(WIDE))
            self.nodes.append(cast_node(self.stored.get(x, x), wide))
        self.wide[x] = wide
        return wide

    def _read_stored(self, x: Any) -> Any:
        """Return a value in the dtype of the graph."""
        if not is_narrow(x.spec.dtype):
            return self.wide.get(x, x)
        if x not in self.stored:
            if x.constant is not None:
                return x
            self.stored[x] = Value(x.spec)
            self.nodes.append(cast_node(self.wide[x], self.stored[x]))
        return self.stored[x]

    def _add(self, node: Node) -> None:
        is_stored = self._selects_stored(node) or self._moves_stored(node)
        if node.op.name in _BIT_OPERATIONS or is_stored:
            self._add_stored(node)
            return
        if node.op.name in _VARYING_INPUTS:
            self._add_control(node)
        else:
            self._add_wide(node)
        for y in self.rounding_casts.intersection(node.outputs):
            stored = self.stored[y] = Value(y.spec)
            wide = _wide_value(y, y.spec.with_dtype(WIDE))
            self.nodes += [cast_node(self.wide[y], stored), cast_node(stored, wide)]
            self.wide[y] = wide

    def _selects_stored(self, node: Node) -> bool:
        """Return whether a node needs only a part of a stored operand."""
        return node.op.name in _SELECTIONS and node.inputs[0] in self.stored

    def _moves_stored(self, node: Node) -> bool:
        """Return whether a node moves stored elements that nothing computes with."""
        return (
            _is_move(node)
            and any(is_narrow(y.spec.dtype) for y in node.outputs)
            and self.computed.isdisjoint(node.outputs)
            and all(x in self.stored or x.constant is not None for x in node.inputs)
        )

    def _add_stored(self, node: Node) -> None:
        """Add a node that keeps its dtypes."""
        inputs = [self._read_stored(x) for x in node.inputs]
        self.nodes.append(node.with_inputs(inputs))
        self.stored |= {y: y for y in node.outputs if is_narrow(y.spec.dtype)}

    def _add_control(self, node: Node) -> None:
        """Add a loop or branches, which read invariant values of 16 bits as stored."""
        inner_values: set[Value] = set()
        inputs = []
        for i, x in enumerate(node.inputs):
            values = _invariant_values(node, i) if x in self.stored else {}
            is_stored = values and all(_reads_stored(g, v) for v, g in values.items())
            inputs.append(self.stored[x] if is_stored else self._read(x))
            inner_values.update(values if is_stored else ())
        attrs = {
            name: _Widening(value, True, inner_values).widen()
            if isinstance(value, Graph)
            else _wide_attribute(value)
            for name, value in node.attrs.items()
        }
        self._append(node, inputs, attrs)

    def _add_wide(self, node: Node) -> None:
        """Add a node in float32."""
        inputs = [self._read(x) for x in node.inputs]
        attrs = {name: _wide_attribute(value) for name, value in node.attrs.items()}
        if node.op.name in PRODUCTS and all(
            x.spec.dtype == NARROW for x in node.inputs
        ):
            attrs["factors"] = NARROW
        self._append(node, inputs, attrs)

    def _append(
        self, node: Node, inputs: Sequence[Value], attrs: Mapping[str, object]
    ) -> None:
        """Append a node with other operands, and note its results in float32."""
        result = node.op.spec(*(x.spec for x in inputs), **attrs)
        specs = result if isinstance(result, tuple) else (result,)
        outputs = []
        for old, spec in zip(node.outputs, specs, strict=True):
            new: Value = old
            if old in self.rounded:
                new = self.wide[old] = Narrow(spec)
            elif old.spec != spec:
                new = self.wide[old] = _wide_value(old, spec)
            outputs.append(new)
        self.nodes.append(Node(node.op, inputs, attrs, outputs))


def _wide_attribute(value: Any) -> Any:
    if isinstance(value, Graph):
        return _Widening(value, True).widen()
    if isinstance(value, Spec):  # of the result of a collective
        return value.with_dtype(WIDE) if is_narrow(value.dtype) else value
    if isinstance(value, tuple) and any(isinstance(item, Spec) for item in value):
        return tuple(map(_wide_attribute, value))
    return WIDE if isinstance(value, str) and is_narrow(value) else value


def _reads_stored(graph: Graph, x: Value) -> bool:
    """Return whether each reader of an input of 16 bits converts it at little cost.

    Products and elementwise operations convert elements while they read them. A
    selection converts few elements. Others would convert it in each iteration.
    """
    if not is_narrow(x.spec.dtype):
        return False
    if x.spec.nbytes <= _FEW_BYTES:
        return True
    same = {x}  # its elements, perhaps in float32 and in another layout
    for node in graph.nodes:
        for i, read in enumerate(node.inputs):
            if read not in same:
                continue
            if node.op.kind is Kind.VIEW or node.op.name == "cast":
                same.update(node.outputs)
            elif not _converts(node, i):
                return False
    return same.isdisjoint(graph.outputs)


def _converts(node: Node, number: int) -> bool:
    """Return whether a node converts an operand of 16 bits at little cost."""
    values = _invariant_values(node, number)
    return (
        node.op.kind is Kind.ELEMENTWISE
        or reads_stored(node, number)
        or (node.op.name in _SELECTIONS and number == 0)
        or (bool(values) and all(_reads_stored(g, x) for x, g in values.items()))
    )


def _invariant_values(node: Node, number: int) -> dict[Value, Graph]:
    """Return the values in the graphs of a loop or branches that are an operand.

    The result is empty if the operand is the first of values that change, or if the
    node has no graphs.
    """
    counts = _VARYING_INPUTS.get(node.op.name)
    first = int(node.op.name == "cond")  # the predicate
    if counts is None or number < first + sum(node.attrs[name] for name in counts):
        return {}
    return {graph.inputs[number - first]: graph for graph in node.subgraphs}


def _is_move(node: Node) -> bool:
    return node.op.kind in _MOVING_KINDS or node.op.name == "stop_gradient"


def _find_computed_values(graph: Graph) -> set[Value]:
    """Return the values that an operation computes with, directly or after moves."""
    computed: set[Value] = set()
    for node in reversed(graph.nodes):
        if not _is_move(node) or not computed.isdisjoint(node.outputs):
            computed.update(node.inputs)
    return computed


def _find_rounded_values(graph: Graph) -> set[Value]:
    """Return the float32 values that only casts to bfloat16 read."""
    rounded: set[Any] = set()
    uses: set[Any] = set(graph.outputs)
    for node in graph.nodes:
        is_cast = node.op.name == "cast" and node.attrs["dtype"] == NARROW
        (rounded if is_cast else uses).update(node.inputs)
    return {x for x in rounded - uses if x.spec.dtype == WIDE}


def _find_rounding_casts(graph: Graph, is_inner: bool) -> set[Value]:
    """Return the results of casts to 16 bits that another cast reads.

    The author of such a pair of casts wants the rounded value, or the rounding error.
    Operations that move elements can be between the two casts. Control flow can contain
    the second cast, so its operands and results count as read.

    Args:
        graph: the graph to search.
        is_inner: whether it is the graph of a loop or a branch.
    """
    none: frozenset[Value] = frozenset()
    casts_of: dict[Any, frozenset[Value]] = {}  # the cast results that a value contains
    read: set[Value] = set()
    for node in graph.nodes:
        casts = none.union(*(casts_of.get(x, none) for x in node.inputs))
        if node.op.name == "cast":
            (y,) = node.outputs
            if is_narrow(y.spec.dtype):
                casts_of[y] = frozenset([y])
            else:
                read |= casts
        elif node.op.kind is Kind.CONTROL:
            read |= casts
        elif casts and (
            node.op.kind in _MOVING_KINDS or node.op.name in _MOVING_OPERATIONS
        ):
            casts_of |= dict.fromkeys(node.outputs, casts)
    if is_inner:
        read = read.union(*(casts_of.get(y, none) for y in graph.outputs))
    return read
