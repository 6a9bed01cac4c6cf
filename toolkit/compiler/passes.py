"""Graph passes: each takes a Graph and returns a new one that computes the same.

`optimize` runs them in the order of `PASSES`. A pass looks at a node's kind and
attributes; only `simplify` knows primitives by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from toolkit.backends.base import Backend
from toolkit.compiler.attention import give_outputs
from toolkit.compiler.branches import select_branches
from toolkit.compiler.norms import keep_norms
from toolkit.compiler.pads import join_pads
from toolkit.compiler.precision import widen
from toolkit.compiler.scans import hoist, tidy_scans
from toolkit.core.tensor import run_on_host
from toolkit.core.trace import Trace, body_graph, inline
from toolkit.errors import OutOfRangeError
from toolkit.ir import PRIMITIVES, Constant, Graph, Kind, Node, Value

# A folded constant may be this large, or as large as what it is computed from.
FOLD_BYTES = 64 * 1024
# Constants up to this size are compared by value.
SHARE_BYTES = 256


class _Substitution:
    """Values that stand for others; a value may be replaced more than once."""

    def __init__(self) -> None:
        self._instead: dict[Value, Value] = {}

    def __call__(self, value: Value) -> Value:
        while value in self._instead:
            value = self._instead[value]
        return value

    def replace(self, old: Value, new: Value) -> None:
        self._instead[old] = new

    def node(self, node: Node) -> Node:
        return node.with_inputs([self(x) for x in node.inputs])


def decompose(graph: Graph, backend: Backend) -> Graph:
    """Expand the composites that the backend has no kernel for."""
    return expand(graph, lambda node: not backend.computes(node))


def expand(graph: Graph, is_wanted: Callable[[Node], bool]) -> Graph:
    """Put the bodies of composites in their places."""

    def needs(node: Node) -> bool:
        return node.op.kind is Kind.COMPOSITE and is_wanted(node)

    if not any(map(needs, graph.nodes)):
        return graph
    substitute = _Substitution()
    nodes: list[Node] = []
    for node in map(substitute.node, graph.nodes):
        if not needs(node):
            nodes.append(node)
            continue
        body = body_graph(node.op, (x.spec for x in node.inputs), node.attrs)
        with Trace(node.op.name) as trace:
            stand_ins = [trace.placeholder(x.spec) for x in node.inputs]
            outputs = inline(body, stand_ins)
        expanded = expand(trace.finish(outputs), is_wanted)
        for old, new in zip(expanded.inputs, node.inputs, strict=True):
            substitute.replace(old, new)
        nodes += [substitute.node(inner) for inner in expanded.nodes]
        for old, new in zip(node.outputs, expanded.outputs, strict=True):
            substitute.replace(old, substitute(new))
    return graph.replace(nodes, map(substitute, graph.outputs))


def prune(graph: Graph, backend: Backend) -> Graph:
    """Drop the nodes that no output depends on."""
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(value in needed for value in node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return graph.replace(reversed(kept))


def fold(graph: Graph, backend: Backend) -> Graph:
    """Compute the nodes whose inputs are all constants."""
    substitute = _Substitution()
    nodes = []
    for node in map(substitute.node, graph.nodes):
        if not _is_foldable(node):
            nodes.append(node)
            continue
        try:
            outputs = run_on_host(node.op, node.inputs, node.attrs)
        except OutOfRangeError:  # it may stand in a branch that is never taken
            nodes.append(node)
            continue
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        for old, new in zip(node.outputs, several, strict=True):
            if any(x.is_open for x in node.inputs):
                new._is_open = True
            substitute.replace(old, new)
    return graph.replace(nodes, map(substitute, graph.outputs))


def _is_foldable(node: Node) -> bool:
    if node.op.kind is Kind.CONTROL or any(x.constant is None for x in node.inputs):
        return False
    if node.op.kind is Kind.VIEW:
        return True
    given: int = sum(x.spec.nbytes for x in node.inputs)
    result: int = sum(y.spec.nbytes for y in node.outputs)
    return result <= max(FOLD_BYTES, given)


def share(graph: Graph, backend: Backend) -> Graph:
    """Compute equal expressions once; equal small constants become one."""
    substitute = _Substitution()
    constants: dict[Any, Any] = {}
    seen: dict[Any, Node] = {}
    nodes = []

    def unify(value: Any) -> Any:
        value = substitute(value)
        array = value.constant
        if array is None or array.nbytes > SHARE_BYTES:
            return value
        content = np.asarray(array).tobytes()
        key = (array.dtype, array.shape, content, value.is_open)
        return constants.setdefault(key, value)

    for node in graph.nodes:
        node = node.with_inputs([unify(x) for x in node.inputs])
        key = (node.op, node.inputs, _key(node.attrs))
        twin = seen.setdefault(key, node)
        if twin is node:
            nodes.append(node)
            continue
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            substitute.replace(old, new)
    return graph.replace(nodes, map(substitute, graph.outputs))


def _key(attrs: Any) -> Any:
    """Attributes as a key that tells 1 from 1.0 and from True, and 0.0 from -0.0."""
    return tuple(
        (name, repr(v), v if isinstance(v, Graph) else None)
        for name, v in attrs.items()
    )


def simplify(graph: Graph, backend: Backend) -> Graph:
    """Drop what changes nothing (x * 1, a reshape to the same shape), exactly."""
    substitute = _Substitution()
    producers: dict[Value, Node] = {}
    nodes = []
    for node in map(substitute.node, graph.nodes):
        rule = _RULES.get(node.op.name)
        producers.update(_repeated(x) for x in node.inputs if _is_repeated(x))
        node = _read_through_broadcasts(node, producers)
        found = rule(node, producers) if rule else None
        if isinstance(found, Node):
            node = found
        elif found is not None:
            substitute.replace(node.outputs[0], found)
            continue
        nodes.append(node)
        producers.update((value, node) for value in node.outputs)
    return graph.replace(nodes, map(substitute, graph.outputs))


def _is_repeated(value: Any) -> bool:
    """Whether a value is one number many times, which no kernel has written into it."""
    if not value.is_open or value.spec.size < 2:
        return False
    array = value.constant
    return bool((array == array[(0,) * array.ndim]).all())


def _repeated(value: Any) -> tuple[Value, Node]:
    """The number that a value is as an operand that a node repeats."""
    first = np.asarray(value.constant[(0,) * value.spec.ndim])
    number = Constant(first, is_open=True)
    attrs = {"shape": value.spec.shape}
    return value, Node(PRIMITIVES["broadcast_to"], (number,), attrs, (value,))


def _read_through_broadcasts(node: Node, producers: dict[Value, Node]) -> Node:
    """Elementwise kernels broadcast by themselves: let them read the narrow source."""
    if node.op.kind is not Kind.ELEMENTWISE or len(node.inputs) < 2:
        return node
    inputs = list(node.inputs)
    for i, value in enumerate(node.inputs):
        source = producers.get(value)
        if source is None or source.op.name != "broadcast_to":
            continue
        trial = [*inputs[:i], source.inputs[0], *inputs[i + 1 :]]
        shapes = np.broadcast_shapes(*(x.spec.shape for x in trial))
        if shapes == node.outputs[0].spec.shape:
            inputs = trial
    return node.with_inputs(inputs)


def _is_scalar(value: Any, number: float) -> bool:
    array = value.constant
    return array is not None and array.size == 1 and bool((array == number).all())


def _neutral_right(number: float) -> Callable[..., Any]:
    """x op number is x: for x - 0, x / 1 (not for x + 0: -0.0 + 0.0 is 0.0)."""

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
    same = node.inputs[0].spec == node.outputs[0].spec
    forward = all(step > 0 for step in node.attrs["step"])
    return node.inputs[0] if same and forward else None


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
    "stop_gradient": _same_spec,
    "slice": _slice_rule,
    "negative": _negative_rule,
    "where": _where_rule,
}

PASSES: tuple[Callable[[Graph, Backend], Graph], ...] = (
    select_branches,
    give_outputs,
    keep_norms,
    decompose,
    widen,
    prune,
    simplify,
    fold,
    share,
    tidy_scans,
    join_pads,
    simplify,
    prune,
    hoist,  # last: it makes copies that `simplify` sees no use in
)


def stages(graph: Graph, backend: Backend) -> Iterator[tuple[str, Graph]]:
    """The graph as traced, then after each pass."""
    yield "trace", graph
    for step in PASSES:
        graph = step(graph, backend)
        yield step.__name__, graph


def optimize(graph: Graph, backend: Backend) -> Graph:
    """Run all passes, on sub-graphs first."""
    graph = graph.replace(
        _with_optimized_subgraphs(node, backend) for node in graph.nodes
    )
    *_, (_, result) = stages(graph, backend)
    return result


def _with_optimized_subgraphs(node: Node, backend: Backend) -> Node:
    if not node.subgraphs:
        return node
    attrs = {
        name: optimize(value, backend) if isinstance(value, Graph) else value
        for name, value in node.attrs.items()
    }
    return Node(node.op, node.inputs, attrs, node.outputs, node.device)


def own(graph: Graph) -> Graph:
    """Copy the outputs that no node writes to a buffer of their own.

    Inputs, constants, views, and values that are returned twice.
    """
    producers = graph.producers()
    nodes, outputs, seen = list(graph.nodes), [], set()
    for value in graph.outputs:
        producer = producers.get(value)
        shared = producer is None or producer.op.kind is Kind.VIEW
        if shared or value in seen:
            copy = Value(value.spec)
            nodes.append(Node(PRIMITIVES["stop_gradient"], (value,), {}, (copy,)))
            value = copy
        seen.add(value)
        outputs.append(value)
    return graph.replace(nodes, outputs)
