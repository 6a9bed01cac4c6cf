"""Scales after convolutions: one factor and one term for each channel.

After an integer convolution, a graph multiplies the sums by scales, adds a bias,
normalizes, clips, and rounds the result for the next convolution. After a float
convolution it adds a bias, and normalizes by fixed moments. All steps before the
rounding are `sums * a + b`, with few numbers per channel. Results differ from those of
separate steps only by rounding.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from toolkit.backends.target import Target
from toolkit.compiler.frozen_values import (
    SMALL_NBYTES,
    constant_subexpressions,
    is_fixed,
)
from toolkit.definitions.records import record
from toolkit.ir import PRIMITIVES, Constant, Graph, Node, Spec, Value

_AFFINE = ("multiply", "divide", "add", "subtract")
_LIMITS = ("maximum", "minimum")
# The second is a transposed convolution.
_CONVOLUTIONS = ("conv", "conv_input_grad")


@record
class _Scaled:
    """A value in the form: sums times `factor` plus `term`, then clipped.

    Attributes:
        sums: the result of a convolution, as floats.
        is_integer: whether it is an integer convolution.
        factor, term: values per channel, or one for all channels; None: 1, and 0.
        steps: the number of nodes in this form.
        limits: names and bounds of the nodes that clip, in order.
    """

    sums: Value
    is_integer: bool
    factor: Any = None
    term: Any = None
    steps: int = 0
    limits: tuple[tuple[str, Any], ...] = ()


def fold_scales(graph: Graph, target: Target) -> Graph:
    """Scale and shift the results of convolutions only once.

    For float convolutions, factor and term must depend on frozen inputs or constants
    only.
    """
    names = {node.op.name for node in graph.nodes}
    settled = (
        set()
        if names.isdisjoint(_CONVOLUTIONS)
        else constant_subexpressions(graph, target)
    )
    if not settled and "conv_integer" not in names:
        return graph
    return _Folding(graph, settled).fold()


class _Folding:
    """Builder of the new graph.

    Args:
        graph: the original graph.
        settled: values that are the same in each run.
    """

    def __init__(self, graph: Graph, settled: set[Value]) -> None:
        self.graph = graph
        self.settled = settled
        self.nodes: list[Node] = []
        self.producers = graph.producers()
        self.scaled: dict[Value, _Scaled] = {}
        self.device: Any = None  # device of the current node
        self.readers = Counter(x for node in graph.nodes for x in node.inputs)
        self.readers.update(graph.outputs)

    def fold(self) -> Graph:
        """Return the graph, including steps that nothing reads any more."""
        for node in self.graph.nodes:
            self.device = node.device
            scaled = self._scaled_form(node)
            if node.op.name == "quantize":
                self.nodes.append(self._fold_quantize(node))
            elif scaled is None:
                self.nodes.append(node)
            else:
                self.scaled[node.outputs[0]] = scaled
                self._write(node, scaled)
        return self.graph.replace(self.nodes)

    def _scaled_form(self, node: Node) -> _Scaled | None:
        """Return the scaled form of a node's result, or None if it has none."""
        name, inputs = node.op.name, node.inputs
        if name == "cast":
            source = self.producers.get(inputs[0])
            is_sum = source is not None and source.op.name == "conv_integer"
            is_plain = is_sum and node.outputs[0].spec.dtype == "float32"
            return _Scaled(node.outputs[0], is_integer=True) if is_plain else None
        if name in _CONVOLUTIONS:
            is_plain = node.outputs[0].spec.dtype in ("float32", "float64")
            return _Scaled(node.outputs[0], is_integer=False) if is_plain else None
        if name not in _AFFINE and name not in _LIMITS:
            return None
        pairs = [inputs] if name in ("divide", "subtract") else [inputs, inputs[::-1]]
        for x, other in pairs:
            before = self.scaled.get(x)
            if before is None or not self._is_per_channel(other, x):
                continue
            if before.is_integer or self._normalizes(name, x, other):
                return self._next(name, before, other)
        return None

    def _normalizes(self, name: str, x: Value, other: Any) -> bool:
        """Return whether a step after float sums may be part of a normalization.

        A literal in a program may have the purpose to round: for example, a large
        number that is added and then subtracted. A divisor may have no exact
        reciprocal.
        """
        if _is_number(other) or name == "divide":
            return False
        # Other readers, such as gradients, need the steps, which then stay.
        return self.readers[x] == 1 and self._is_settled(other)

    def _is_settled(self, x: Value) -> bool:
        return is_fixed(x) or x in self.settled

    def _is_per_channel(self, other: Any, x: Value) -> bool:
        """Return whether a value has one number per channel, or one number."""
        spec, full_spec = other.spec, x.spec
        if spec.dtype != full_spec.dtype or spec.ndim > full_spec.ndim:
            return False
        return bool(
            spec.size == 1 or spec.size == spec.shape[-1] == full_spec.shape[-1]
        )

    def _next(self, name: str, before: _Scaled, other: Any) -> _Scaled | None:
        if name in _LIMITS:
            limits = (*before.limits, (name, other))
            return replace(before, limits=limits) if _is_number(other) else None
        if before.limits:
            return None
        factor, term = before.factor, before.term
        if name in ("multiply", "divide"):
            one = _number(1, other)
            if factor is not None or name == "multiply":
                factor = self._combine(name, factor, other)
            else:
                factor = self._combine(name, one, other)
            term = None if term is None else self._combine(name, term, other)
        elif term is not None or name == "add":
            term = self._combine(name, term, other)
        else:
            term = self._combine(name, _number(0, other), other)
        steps = before.steps + 1
        return replace(before, factor=factor, term=term, steps=steps)

    def _write(self, node: Node, scaled: _Scaled) -> None:
        """Write the node itself, or fewer steps with the same result."""
        scales_weights = self._scales_weights(scaled)
        has_factor = scaled.factor is not None and not scales_weights
        needed = (scaled.term is not None) + has_factor
        if scaled.limits or scaled.steps <= (2 if scaled.is_integer else needed):
            self.nodes.append(node)
            return
        self._affine(self._with_scaled_weights(scaled) if scales_weights else scaled)
        last = self.nodes.pop()
        replacement = Node(last.op, last.inputs, last.attrs, node.outputs, node.device)
        self.nodes.append(replacement)

    # --- nodes ------------------------------------------------------------------------

    def _combine(self, name: str, a: Any, b: Any) -> Any:
        """Return a node on two values, or the second value if the first is None."""
        if a is None:
            return b
        shape = np.broadcast_shapes(a.spec.shape, b.spec.shape)
        y = Value(Spec(shape, a.spec.dtype))
        self.nodes.append(Node(PRIMITIVES[name], (a, b), {}, (y,), self.device))
        return y

    def _scales_weights(self, scaled: _Scaled) -> bool:
        """Return whether to scale the weights once, if they are fewer than the sums."""
        if scaled.is_integer or scaled.factor is None:
            return False
        conv = self.producers[scaled.sums]
        weights = conv.inputs[1]
        is_few = weights.spec.nbytes <= SMALL_NBYTES and self._is_settled(weights)
        is_alike = weights.spec.dtype == scaled.factor.spec.dtype
        # The weights of the transposed convolution have the input channels last.
        # Rounded factors stay as they are: a second rounding is not exact.
        is_exact = conv.op.name == "conv" and not conv.attrs.get("factors")
        return is_few and is_alike and is_exact

    def _with_scaled_weights(self, original: _Scaled) -> _Scaled:
        """Return the sums with the factor merged into the weights, and no factor."""
        conv = self.producers[original.sums]
        images, weights = conv.inputs
        scaled = self._combine("multiply", weights, original.factor)
        y = Value(original.sums.spec)
        replacement = Node(conv.op, (images, scaled), conv.attrs, (y,), conv.device)
        self.nodes.append(replacement)
        return replace(original, sums=y, factor=None)

    def _affine(self, scaled: _Scaled) -> Any:
        y: Any = scaled.sums
        if scaled.factor is not None:
            y = self._combine("multiply", y, scaled.factor)
        return y if scaled.term is None else self._combine("add", y, scaled.term)

    def _fold_quantize(self, node: Node) -> Node:
        """Return a `quantize` node with its scale merged into the steps before it."""
        (x, scale), attrs = node.inputs, node.attrs
        scaled = self.scaled.get(x)
        if scaled is None or not scaled.is_integer:
            return node
        if scale.spec.size != 1 or not self._has_no_other_reader(x, scaled):
            return node
        shift = _number(attrs["offset"], x) if attrs["offset"] else None
        factor = self._combine("multiply", scaled.factor, scale)
        term = scaled.term
        if term is not None:
            term = self._combine("multiply", term, scale)
        term = self._shift(term, shift)
        y = self._affine(replace(scaled, factor=factor, term=term))
        for name, bound in scaled.limits:
            if name == "maximum" and shift is None and not bound.constant.any():
                continue  # rounding clips to the same limits
            bound = self._combine("multiply", bound, scale)
            y = self._combine(name, y, self._shift(bound, shift))
        one = _number(1, x)
        inputs, attrs = (y, one), {**attrs, "offset": 0}
        return Node(node.op, inputs, attrs, node.outputs, node.device)

    def _shift(self, x: Any, shift: Any) -> Any:
        return x if shift is None else self._combine("add", x, shift)

    def _has_no_other_reader(self, x: Value, scaled: _Scaled) -> bool:
        """Return whether nothing else reads a value or its unclipped form."""
        for _ in range(len(scaled.limits) + 1):
            if self.readers[x] != 1:
                return False
            node = self.producers[x]
            x = next((v for v in node.inputs if v in self.scaled), x)
        return True


def _is_number(value: Any) -> bool:
    return is_fixed(value) and bool(value.spec.size == 1)


def _number(number: float, like: Any) -> Constant:
    return Constant(np.array(number, like.spec.dtype))
