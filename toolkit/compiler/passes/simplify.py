"""Passes that remove work: constant folding, common subexpressions, no-ops.

Passes read a node's kind and attributes; only `simplify` uses the names of primitives.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from toolkit.backends.target import Target
from toolkit.compiler.passes.rewriting import Substitution, expand
from toolkit.core.tensor import run_on_host
from toolkit.errors import OutOfRangeError
from toolkit.ir import PRIMITIVES, Constant, Graph, Kind, Node, Value
from toolkit.ir.extents import are_always, describe, has_extent, is_always

# Largest folded constant in bytes, unless its operands are at least as large.
FOLD_BYTES = 64 * 1024
# Constants up to this size are compared by value.
SHARE_BYTES = 256


def fold(graph: Graph, target: Target) -> Graph:
    """Compute the nodes whose inputs are all constants."""
    substitute = Substitution()
    nodes = []
    for node in map(substitute.node, graph.nodes):
        if not _is_foldable(node):
            nodes.append(node)
            continue
        try:
            outputs = run_on_host(node.op, node.inputs, node.attrs)
        except OutOfRangeError:  # the node may be in a branch that is never taken
            nodes.append(node)
            continue
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        for old, new in zip(node.outputs, results, strict=True):
            if any(x.is_open for x in node.inputs):
                new._is_open = True
            substitute.replace(old, new)
    return graph.replace(nodes, map(substitute, graph.outputs))


_NEVER = (Kind.CONTROL, Kind.COLLECTIVE)


def _is_foldable(node: Node) -> bool:
    if (
        node.op.kind in _NEVER
        or node.subgraphs
        or any(x.constant is None or x.extent is not None for x in node.inputs)
        or any(has_extent(y.spec.shape) for y in node.outputs)
        or any(map(has_extent, node.attrs.values()))
    ):
        return False
    if node.op.kind is Kind.VIEW:
        return True
    input_nbytes: int = sum(x.spec.nbytes for x in node.inputs)
    result: int = sum(y.spec.nbytes for y in node.outputs)
    return result <= max(FOLD_BYTES, input_nbytes)


def share(graph: Graph, target: Target) -> Graph:
    """Merge common subexpressions, and equal small constants."""
    substitute = Substitution()
    constants: dict[Any, Any] = {}
    unique: dict[Any, Node] = {}
    nodes = []

    def unify(value: Any) -> Any:
        value = substitute(value)
        array = value.constant
        if array is None or array.nbytes > SHARE_BYTES:
            return value
        if value.extent is not None:
            key = array.dtype, array.shape, value.extent.key, True
            return constants.setdefault(key, value)
        content = np.asarray(array).tobytes()
        key = (array.dtype, array.shape, content, value.is_open)
        return constants.setdefault(key, value)

    for node in graph.nodes:
        node = node.with_inputs([unify(x) for x in node.inputs])
        # A value that is rounded when it is stored differs from one that is not.
        is_narrow = tuple(y.is_narrow for y in node.outputs)
        key = (node.op, node.inputs, _key(node.attrs), is_narrow)
        twin = unique.setdefault(key, node)
        if twin is node:
            nodes.append(node)
            continue
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            substitute.replace(old, new)
    return graph.replace(nodes, map(substitute, graph.outputs))


def _key(attrs: Any) -> Any:
    """Return a key of attributes; 1, 1.0 and True differ, and 0.0 and -0.0."""
    return tuple(
        (name, describe(v), v if isinstance(v, Graph) else None)
        for name, v in attrs.items()
    )


def simplify(graph: Graph, target: Target) -> Graph:
    """Remove exact no-ops (x * 1, a reshape to the same shape)."""
    substitute = Substitution()
    producers: dict[Value, Node] = {}
    nodes = []
    for node in map(substitute.node, graph.nodes):
        rule = _RULES.get(node.op.name)
        producers.update(_splat_source(x) for x in node.inputs if _is_splat(x))
        node = _read_through_broadcasts(node, producers)
        replacement = rule(node, producers) if rule else None
        if isinstance(replacement, Node):
            node = replacement
        elif replacement is not None:
            substitute.replace(node.outputs[0], replacement)
            continue
        nodes.append(node)
        producers.update((value, node) for value in node.outputs)
    return graph.replace(nodes, map(substitute, graph.outputs))


def expand_unfused(graph: Graph, target: Target) -> Graph:
    """Expand the composites that the backend could fuse but did not."""
    expandable = target.backend.generator.passes.product_parts
    if not any(node.op.name in expandable for node in graph.nodes):
        return graph
    graph = expand(graph, lambda node: node.op.name in expandable)
    return share(fold(simplify(graph, target), target), target).pruned()


def _is_splat(value: Any) -> bool:
    """Return whether a value is one repeated number that is not a kernel literal."""
    if not value.is_open or value.spec.size < 2:
        return False
    array = value.constant
    return bool((array == array[(0,) * array.ndim]).all())


def _splat_source(value: Any) -> tuple[Value, Node]:
    """Return the repeated number as a scalar value, and the node that broadcasts it."""
    first = np.asarray(value.constant[(0,) * value.spec.ndim])
    number = Constant(first, is_open=True)
    attrs = {"shape": value.spec.shape}
    return value, Node(PRIMITIVES["broadcast_to"], (number,), attrs, (value,))


def _read_through_broadcasts(node: Node, producers: dict[Value, Node]) -> Node:
    """Make elementwise nodes, which broadcast, read the source of a broadcast."""
    if node.op.kind is not Kind.ELEMENTWISE or len(node.inputs) < 2:
        return node
    inputs = list(node.inputs)
    for i, value in enumerate(node.inputs):
        source = producers.get(value)
        if source is None or source.op.name != "broadcast_to":
            continue
        trial = [*inputs[:i], source.inputs[0], *inputs[i + 1 :]]
        if _broadcast_to(trial, node.outputs[0].spec.shape):
            inputs = trial
    return node.with_inputs(inputs)


def _broadcast_to(operands: list[Value], shape: tuple[int, ...]) -> bool:
    """Return whether operands that broadcast have this common shape."""
    shapes = [x.spec.shape for x in operands]
    return max(map(len, shapes)) == len(shape) and all(
        any(len(s) >= axis and is_always(s[-axis], shape[-axis]) for s in shapes)
        for axis in range(1, len(shape) + 1)
    )


def _is_scalar(value: Any, number: float) -> bool:
    array = value.constant
    if array is None or value.extent is not None:  # it has another value later
        return False
    return array.size == 1 and bool((array == number).all())


def _neutral_right(number: float) -> Callable[..., Any]:
    """Return a rule: x op number is x.

    For x - 0 and x / 1 (not x + 0: -0.0 + 0.0 is 0.0).
    """

    def rule(node: Node, producers: Any) -> Any:
        x, other = node.inputs
        same = x.spec == node.outputs[0].spec and _is_scalar(other, number)
        return x if same and not np.signbit(other.constant).any() else None

    return rule


def _multiply_rule(node: Node, producers: Any) -> Any:
    for x, other in (node.inputs, node.inputs[::-1]):
        if x.spec == node.outputs[0].spec and _is_scalar(other, 1):
            return x
    return None


def _same_spec(node: Node, producers: Any) -> Any:
    x = node.inputs[0]
    return x if x.spec == node.outputs[0].spec else None


def _reshape_rule(node: Node, producers: dict[Value, Node]) -> Any:
    x = node.inputs[0]
    source = producers.get(x)
    if source is not None and source.op.name == "reshape":
        x = source.inputs[0]
    return x if x.spec == node.outputs[0].spec else node.with_inputs([x])


def _transpose_rule(node: Node, producers: dict[Value, Node]) -> Any:
    x, axes = node.inputs[0], node.attrs["axes"]
    source = producers.get(x)
    if source is not None and source.op.name == "transpose":
        inner = source.attrs["axes"]
        x, axes = source.inputs[0], tuple(inner[a] for a in axes)
    if axes == tuple(range(len(axes))):
        return x
    return Node(node.op, [x], {"axes": axes}, node.outputs, node.device)


def _negative_rule(node: Node, producers: dict[Value, Node]) -> Any:
    source = producers.get(node.inputs[0])
    if source is not None and source.op.name == "negative":
        return source.inputs[0]
    return None


def _slice_rule(node: Node, producers: dict[Value, Node]) -> Any:
    same = are_always(node.inputs[0].spec.shape, node.outputs[0].spec.shape)
    forward = all(step > 0 for step in node.attrs["step"])
    return node.inputs[0] if same and forward else None


def _pad_rule(node: Node, producers: dict[Value, Node]) -> Any:
    widths = chain.from_iterable(node.attrs["widths"])
    return node.inputs[0] if all(is_always(n, 0) for n in widths) else None


def _sum_pool_rule(node: Node, producers: dict[Value, Node]) -> Any:
    """Replace a pool with windows of one pixel by a strided slice."""
    x, attrs = node.inputs[0].spec, node.attrs
    if {*attrs["window"]} != {1} or any(map(any, attrs["padding"])):
        return None
    step = (1, *attrs["strides"], 1)
    bounds = {"start": (0,) * x.ndim, "stop": x.shape, "step": step}
    return Node(PRIMITIVES["slice"], node.inputs, bounds, node.outputs, node.device)


def _where_rule(node: Node, producers: dict[Value, Node]) -> Any:
    condition, a, b = node.inputs
    for number, x in ((1, a), (0, b)):
        if _is_scalar(condition, number) and x.spec == node.outputs[0].spec:
            return x
    return None


_RULES: dict[str, Callable[..., Any]] = {
    "multiply": _multiply_rule,
    "divide": _neutral_right(1),
    "subtract": _neutral_right(0),
    "reshape": _reshape_rule,
    "transpose": _transpose_rule,
    "broadcast_to": _same_spec,
    "cast": _same_spec,
    "pad": _pad_rule,
    "stop_gradient": _same_spec,
    "slice": _slice_rule,
    "negative": _negative_rule,
    "sum_pool": _sum_pool_rule,
    "where": _where_rule,
}
