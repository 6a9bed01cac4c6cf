"""Gradients of sub-graphs: the forward loop stores residuals for the backward loop.

`linearize` differentiates a scan's body once and splits the joint graph. Values of the
forward part that the backward part needs become stacked outputs of the forward scan. If
the gradient of a weight is a matrix product in each step, one large product after the
loop computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from toolkit import ops
from toolkit.autodiff.residuals import cheapest_residuals
from toolkit.autodiff.tape import GradientTape
from toolkit.backends.target import Target
from toolkit.compiler.fusion.recompute import STORED, is_expensive
from toolkit.compiler.passes.rewriting import prune
from toolkit.compiler.passes.simplify import share, simplify
from toolkit.core.tensor import Tensor, backend
from toolkit.core.trace import Trace, inline
from toolkit.definitions.records import record
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Value
from toolkit.ir.extents import hashable_extents

Result = TypeVar("Result")


def _once_per_graph(function: Callable[..., Result]) -> Callable[..., Result]:
    """Cache the results as long as their first argument, a graph, is alive."""
    results: WeakKeyDictionary[Graph, dict[Any, Result]] = WeakKeyDictionary()

    @wraps(function)
    def wrapper(graph: Graph, *args: Any, **kwargs: Any) -> Result:
        cache = results.setdefault(graph, {})
        key = args, tuple(kwargs.items())
        with hashable_extents():
            is_cached = key in cache
        if not is_cached:
            result = function(graph, *args, **kwargs)
            with hashable_extents():
                return cache.setdefault(key, result)
        with hashable_extents():
            return cache[key]

    return wrapper


@_once_per_graph
def joint_graph(graph: Graph, needs_gradient: tuple[bool, ...]) -> Graph:
    """(inputs, output gradients) -> (outputs, gradients of the wanted inputs)."""
    with Trace("gradient") as trace:
        inputs = [trace.placeholder(v.spec) for v in graph.inputs]
        gs = [trace.placeholder(v.spec) for v in graph.outputs]
        sources = [x for x, want in zip(inputs, needs_gradient, strict=True) if want]
        with GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            outputs = [trace.localize(y) for y in inline(graph, inputs)]
        gradients = tape.gradient(outputs, sources, gs, unconnected_gradients="zero")
    return trace.finish([*outputs, *gradients])


def gradient_graph(graph: Graph, needs_gradient: tuple[bool, ...]) -> Graph:
    """(inputs, output gradients) -> gradients of the wanted inputs."""
    joint = joint_graph(graph, needs_gradient)
    return joint.replace(outputs=joint.outputs[len(graph.outputs) :])


@record(eq=False)
class Backward:
    """Recipe of a backward scan.

    body: (gradients of the carry, sums for `summed` | gradients of the ys, residuals |
        constants) -> (the same carry | gradients of the xs, factors of products).
    """

    body: Graph
    carry: int
    xs: int
    length: int
    reverse: bool
    needs_gradient: tuple[bool, ...]
    outputs: int  # of the forward body, without residuals
    inputs: tuple[int, ...]  # forward xs that the backward body reads
    consts: tuple[int, ...]  # forward constants that it reads
    summed: tuple[int, ...]  # constants whose gradients are summed step by step
    products: tuple[int, ...]  # constants whose gradients are one product

    def apply(
        self,
        gs: Sequence[Any],
        ys: Sequence[Tensor],
        inputs: Sequence[Tensor],
        bind_scan: Callable[..., tuple[Tensor, ...]],
    ) -> list[Any]:
        """Return the gradients of the scan's inputs."""
        n, m = self.carry, self.xs
        consts = inputs[n + m :]
        floats = [i for i in range(n) if self.needs_gradient[i]]
        carry = [gs[i] for i in floats]
        sums = [ops.zeros_like(consts[i]) for i in self.summed]
        xs = [
            *gs[n : self.outputs],
            *(inputs[n + i] for i in self.inputs),
            *ys[self.outputs :],
        ]
        fixed = [consts[i] for i in self.consts]
        count = len(carry) + len(sums)
        results = bind_scan(
            self.body,
            [*carry, *sums, *xs, *fixed],
            count,
            len(xs),
            self.length,
            not self.reverse,
        )
        result: list[Any] = [None] * len(inputs)
        for i, g in zip(floats, results, strict=False):
            result[i] = g
        for i, g in zip(self.summed, results[len(carry) : count], strict=True):
            result[n + m + i] = g
        remaining = iter(results[count:])
        for i in range(m):
            if self.needs_gradient[n + i]:
                result[n + i] = next(remaining)
        for i in self.products:
            result[n + m + i] = _product_over_steps(next(remaining), next(remaining))
        return result


def _product_over_steps(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum over t of transpose(a[t]) @ b[t], as one product."""
    rows = ops.reshape(a, (-1, a.shape[-1]))
    return ops.matmul(ops.transpose(rows), ops.reshape(b, (-1, b.shape[-1])))


class _JointGraph:
    """Joint graph of a scan's body, split into a forward and a backward part."""

    def __init__(
        self,
        joint: Graph,
        inputs: Sequence[Any],
        ys: Sequence[Any],
        carry: int,
        xs: int,
    ) -> None:
        self.joint = joint
        self.producers = joint.producers()
        self.carry = set(inputs[:carry])
        self.graph_inputs = set(inputs)
        # Values of which each step reads or writes one slice of an array in memory.
        self.stacked = {*inputs[carry : carry + xs], *ys}
        # Values of the forward pass, and loop-invariant values.
        self.forward_values = set(self.graph_inputs)
        self.invariant = set(inputs[carry + xs :])
        for node in joint.nodes:
            for group in (self.forward_values, self.invariant):
                if all(x in group or x.constant is not None for x in node.inputs):
                    group.update(node.outputs)

    def forward_nodes(self) -> list[Node]:
        """Return the nodes that can run in the forward pass."""
        return [n for n in self.joint.nodes if n.outputs[0] in self.forward_values]

    def factors(self, value: Any) -> tuple[Any, Any] | None:
        """Return (a, b) if the value is transpose(a) @ b for matrices."""
        node = self.producers.get(value)
        if node is None or node.op.name != "matmul" or value.spec.ndim != 2:
            return None
        transposed = self.producers.get(node.inputs[0])
        if (
            transposed is None
            or transposed.op.name != "transpose"
            or node.inputs[1].spec.ndim != 2
        ):
            return None
        return transposed.inputs[0], node.inputs[1]

    def backward(
        self, values: Sequence[Any]
    ) -> tuple[list[Node], list[Any], set[Value]]:
        """Return the computation of `values`: nodes, residuals, and the inputs read."""
        nodes, needed = self._required_nodes(values, self._is_available)
        stored = cheapest_residuals(
            needed, self._recompute_operands, self._storage_cost
        )
        residuals = [
            value for value in stored if value not in self.graph_inputs - self.carry
        ]
        available = self.graph_inputs.union(residuals)
        recomputed, ends = self._required_nodes(
            needed, lambda value: value in available
        )
        read = ends.keys() & self.graph_inputs - self.carry
        nodes |= recomputed
        ordered = [node for node in self.joint.nodes if node in nodes]
        return ordered, residuals, read

    def _required_nodes(
        self, values: Iterable[Any], is_end: Callable[[Any], bool]
    ) -> tuple[set[Node], dict[Value, None]]:
        """Return the nodes that lead to values, and their sources, in order."""
        nodes: set[Node] = set()
        ends: dict[Value, None] = {}
        stack = list(values)
        while stack:
            value = stack.pop()
            node = self.producers.get(value)
            if is_end(value):
                ends[value] = None
            elif node is not None and node not in nodes:
                nodes.add(node)
                stack += node.inputs
        return nodes, ends

    def _is_available(self, value: Any) -> bool:
        return value in self.forward_values

    def _recompute_operands(self, value: Any) -> Sequence[Any] | None:
        """Return the operands from which a value is recomputed cheaply, or None.

        Loop-invariant values are available, or are recomputed.
        """
        node = self.producers.get(value)
        if value in self.invariant:
            return ()
        if node is None or is_expensive(node):
            return None
        if node.op.kind not in (Kind.ELEMENTWISE, Kind.VIEW):
            return None
        return [x for x in node.inputs if x.constant is None]

    def _storage_cost(self, value: Any) -> int:
        """Return the bytes to read, and to write unless it is in memory anyway."""
        is_stacked = value in self.stacked
        return int(value.spec.nbytes * (1 if is_stacked else 1 + STORED))


@_once_per_graph
def linearize(
    body: Graph,
    needs_gradient: tuple[bool, ...],
    carry: int,
    xs: int,
    length: int,
    reverse: bool,
) -> tuple[Graph, Backward]:
    """Split a scan's body and its gradient into a forward and a backward body.

    Returns:
        The forward body, with residuals after its own outputs, and the recipe of the
        backward scan.
    """
    joint = joint_graph(body, needs_gradient)
    target = Target(backend())
    for step in (prune, simplify, share, prune):
        joint = step(joint, target)
    first, count, n_in = carry + xs, len(body.outputs), len(body.inputs)
    inputs, gs = joint.inputs[:n_in], joint.inputs[n_in:]
    sources = [i for i, want in enumerate(needs_gradient) if want]
    gradients = dict(zip(sources, joint.outputs[count:], strict=True))
    cut = _JointGraph(joint, inputs, joint.outputs[carry:count], carry, xs)
    weights = [i for i in sources if i >= first]
    factors = {i: pair for i in weights if (pair := cut.factors(gradients[i]))}
    summed = [i for i in weights if i not in factors]
    pairs = [value for pair in factors.values() for value in pair]
    stepwise = [gradients[i] for i in sources if i < first]
    totals = [gradients[i] for i in summed]
    nodes, residuals, read = cut.backward([*stepwise, *totals, *pairs])
    sums = [Value(value.spec) for value in totals]
    adds = [_add(a, b) for a, b in zip(sums, totals, strict=True)]
    used_xs = [i for i in range(xs) if inputs[carry + i] in read]
    used_consts = [i for i in range(n_in - first) if inputs[first + i] in read]
    backward_body = Graph(
        (
            *(gs[i] for i in sources if i < carry),
            *sums,
            *gs[carry:],
            *(inputs[carry + i] for i in used_xs),
            *residuals,
            *(inputs[first + i] for i in used_consts),
        ),
        (*nodes, *adds),
        (
            *(gradients[i] for i in sources if i < carry),
            *(node.outputs[0] for node in adds),
            *(gradients[i] for i in sources if carry <= i < first),
            *pairs,
        ),
    )
    outputs = (*joint.outputs[:count], *residuals)
    forward = prune(Graph(inputs, tuple(cut.forward_nodes()), outputs), target)
    return forward, Backward(
        body=backward_body,
        carry=carry,
        xs=xs,
        length=length,
        reverse=reverse,
        needs_gradient=needs_gradient,
        outputs=count,
        inputs=tuple(used_xs),
        consts=tuple(used_consts),
        summed=tuple(i - first for i in summed),
        products=tuple(i - first for i in factors),
    )


def _add(a: Any, b: Any) -> Node:
    return Node(PRIMITIVES["add"], [a, b], {}, [Value(a.spec)])
