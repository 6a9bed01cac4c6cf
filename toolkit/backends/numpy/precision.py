"""Computation in float32 for values that are bfloat16 outside a program."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from toolkit.backends.numpy.jit.math.bfloat16 import NARROW, WIDE
from toolkit.backends.numpy.jit.products import PRODUCTS
from toolkit.backends.target import Target
from toolkit.ir import Constant, Graph, Kind, Narrow, Node, Value, cast_node

_BIT_OPERATIONS = ("bitcast",)  # depends on the representation of a number
# Operations whose outputs are unchanged elements of their operands.
_MOVING_KINDS = (Kind.VIEW, Kind.MOVE)
_MOVING_OPERATIONS = {
    *("gather", "take_along_axis", "put_along_axis", "where", "stop_gradient"),
    *("dynamic_slice", "dynamic_update_slice"),
}


def widen(graph: Graph, target: Target) -> Graph:
    """Compute in float32 the values that are bfloat16 inside a graph.

    A processor without bfloat16 arithmetic converts every operand. Computing in float32
    is faster and more precise. Inputs and outputs of the graph stay bfloat16, and a
    value with casts in both directions is rounded. `narrow_storage` chooses further
    values to round.
    """
    return _widen_graph(graph, _declare_cast) if _has_narrow(graph) else graph


# Declares an input, given its float32 replacement: returns the input and nodes.
InputDeclaration = Callable[[Any, Any], tuple[Any, list[Node]]]


def _declare_cast(narrow: Any, wide: Any) -> tuple[Any, list[Node]]:
    return narrow, [cast_node(narrow, wide)]


def _declare_replacement(narrow: Any, wide: Any) -> tuple[Any, list[Node]]:
    return wide, []


def _has_narrow(graph: Graph) -> bool:
    values = (v for n in graph.walk() for v in (*n.inputs, *n.outputs))
    return any(v.spec.dtype == NARROW for v in (*values, *graph.inputs))


def _widen_graph(graph: Graph, declare_input: InputDeclaration) -> Graph:
    """Return the graph in float32; inputs and outputs are cast, or float32 too."""
    replacements: dict[Value, Value] = {}
    inputs, nodes = [], []
    for x in graph.inputs:
        if x.spec.dtype == NARROW:
            wide = replacements[x] = Value(x.spec.with_dtype(WIDE))
            x, casts = declare_input(x, wide)
            nodes += casts
        inputs.append(x)

    def value(x: Any) -> Any:
        if x not in replacements and x.constant is not None:
            if x.spec.dtype != NARROW:
                return x
            replacements[x] = Constant(x.constant.astype(np.float32))
        return replacements.get(x, x)

    rounded, rounding_casts = (
        _find_rounded_values(graph),
        _find_rounding_casts(graph, declare_input is _declare_replacement),
    )
    for node in graph.nodes:
        node_inputs = [value(x) for x in node.inputs]
        if node.op.name in _BIT_OPERATIONS:
            nodes += _narrow_nodes(node, node_inputs, replacements)
            continue
        nodes.append(_wide_node(node, node_inputs, replacements, rounded))
        for y in rounding_casts.intersection(node.outputs):
            narrow, wide = Value(y.spec), Narrow(y.spec.with_dtype(WIDE))
            nodes += [cast_node(replacements[y], narrow), cast_node(narrow, wide)]
            replacements[y] = wide
    outputs = [value(y) for y in graph.outputs]
    if declare_input is _declare_cast:
        for i, y in enumerate(graph.outputs):
            if y.spec.dtype == NARROW:
                narrow = Value(y.spec)
                nodes.append(cast_node(outputs[i], narrow))
                outputs[i] = narrow
    return Graph(tuple(inputs), tuple(nodes), tuple(outputs), graph.names)


def _find_rounded_values(graph: Graph) -> set[Value]:
    """Return the float32 values that only casts to bfloat16 read."""
    rounded: set[Any] = set()
    uses: set[Any] = set(graph.outputs)
    for node in graph.nodes:
        is_cast = node.op.name == "cast" and node.attrs["dtype"] == NARROW
        (rounded if is_cast else uses).update(node.inputs)
    return {x for x in rounded - uses if x.spec.dtype == WIDE}


def _find_rounding_casts(graph: Graph, is_inner: bool) -> set[Value]:
    """Return the results of casts to bfloat16 that another cast reads.

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
            if y.spec.dtype == NARROW:
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


def _wide_node(
    node: Node,
    inputs: list[Any],
    replacements: dict[Value, Value],
    rounded: Collection[Value],
) -> Node:
    """Return a node in float32.

    Args:
        node: the original node.
        inputs: the values to compute it from.
        replacements: the replacements of values; receives the outputs of the node.
        rounded: values that only casts to bfloat16 read.
    """
    attrs = {name: _wide_attribute(value) for name, value in node.attrs.items()}
    if node.op.name in PRODUCTS and all(x.spec.dtype == NARROW for x in node.inputs):
        attrs["factors"] = NARROW
    result = node.op.spec(*(x.spec for x in inputs), **attrs)
    specs = result if isinstance(result, tuple) else (result,)
    outputs = []
    for old, spec in zip(node.outputs, specs, strict=True):
        new = old
        if old.spec != spec or old in rounded:
            new = replacements[old] = Narrow(spec)
        outputs.append(new)
    return Node(node.op, inputs, attrs, outputs)


def _narrow_nodes(
    node: Node, inputs: list[Any], replacements: dict[Value, Value]
) -> list[Node]:
    """Return a node that keeps its narrow dtypes, between casts."""
    nodes, operands = [], []
    for old, x in zip(node.inputs, inputs, strict=True):
        if x.spec.dtype != old.spec.dtype:
            wide, x = x, Value(old.spec)
            nodes.append(cast_node(wide, x))
        operands.append(x)
    nodes.append(Node(node.op, operands, node.attrs, node.outputs))
    for y in node.outputs:
        if y.spec.dtype == NARROW:
            replacements[y] = Narrow(y.spec.with_dtype(WIDE))
            nodes.append(cast_node(y, replacements[y]))
    return nodes


def _wide_attribute(value: Any) -> Any:
    if isinstance(value, Graph):
        return _widen_graph(value, _declare_replacement)
    return WIDE if isinstance(value, str) and value == NARROW else value
