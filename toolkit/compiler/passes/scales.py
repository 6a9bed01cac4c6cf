"""Scales behind convolutions: one factor and one term for each channel.

What follows a convolution of integers multiplies its sums by scales, adds a bias,
normalizes, clips, and rounds the result for the next one. What follows one of floats
adds a bias, and normalizes by moments that are known. Up to there all of it is
`sums * a + b`, and numbers for channels are few. Results differ from those of the
separate steps as sums in another order do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from toolkit.backends.target import Target
from toolkit.compiler.once import LITTLE, made_once
from toolkit.definitions.records import record
from toolkit.ir import PRIMITIVES, Constant, Graph, Node, Spec, Value

_AFFINE = ("multiply", "divide", "add", "subtract")
_LIMITS = ("maximum", "minimum")
# A transposed convolution is the second.
_CONVOLUTIONS = ("conv", "conv_input_grad")


@record
class _Scaled:
    """What a value is: sums times `factor` plus `term`, and then clipped.

    Attributes:
        sums: the result of a convolution, as floats.
        is_integer: whether it is one of integers.
        factor, term: numbers for channels, or one for all; None: 1, and 0.
        steps: how many nodes that took.
        limits: names and bounds of the nodes that clip, in their order.
    """

    sums: Value
    is_integer: bool
    factor: Any = None
    term: Any = None
    steps: int = 0
    limits: tuple[tuple[str, Any], ...] = ()


def fold_scales(graph: Graph, target: Target) -> Graph:
    """Scale and shift the results of convolutions but once.

    Those of floats where factor and term follow from frozen inputs alone, or from
    constants.
    """
    names = {node.op.name for node in graph.nodes}
    settled = set() if names.isdisjoint(_CONVOLUTIONS) else made_once(graph, target)
    if not settled and "conv_integer" not in names:
        return graph
    return _Folding(graph, settled).folded()


class _Folding:
    """Collects the nodes of the new graph.

    Args:
        graph: the old one.
        settled: what is the same in each run.
    """

    def __init__(self, graph: Graph, settled: set[Value]) -> None:
        self.graph = graph
        self.settled = settled
        self.nodes: list[Node] = []
        self.producers = graph.producers()
        self.known: dict[Value, _Scaled] = {}
        self.device: Any = None  # of the node that is looked at
        self.readers = Counter(x for node in graph.nodes for x in node.inputs)
        self.readers.update(graph.outputs)

    def folded(self) -> Graph:
        """The graph, with steps that nothing reads any more."""
        for node in self.graph.nodes:
            self.device = node.device
            found = self._found(node)
            if node.op.name == "quantize":
                self.nodes.append(self._rounded(node))
            elif found is None:
                self.nodes.append(node)
            else:
                self.known[node.outputs[0]] = found
                self._write(node, found)
        return self.graph.replace(self.nodes)

    def _found(self, node: Node) -> _Scaled | None:
        """What a node makes of the sums, None if it is something else."""
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
            before = self.known.get(x)
            if before is None or not self._is_beside(other, x):
                continue
            if before.is_integer or self._normalizes(name, x, other):
                return self._next(name, before, other)
        return None

    def _normalizes(self, name: str, x: Value, other: Any) -> bool:
        """Whether a step behind sums of floats is one that normalization may have.

        Numbers that are written in a program may be there to round, as a large one
        that is added and subtracted, and divisors may have no reciprocal.
        """
        if _is_number(other) or name == "divide":
            return False
        # Others, such as what gradients need, read steps that then stay as well.
        return self.readers[x] == 1 and self._is_settled(other)

    def _is_settled(self, x: Value) -> bool:
        return x.constant is not None or x in self.settled

    def _is_beside(self, other: Any, x: Value) -> bool:
        """Whether a value is a number for each channel, or one."""
        spec, whole = other.spec, x.spec
        if spec.dtype != whole.dtype or spec.ndim > whole.ndim:
            return False
        return bool(spec.size == 1 or spec.size == spec.shape[-1] == whole.shape[-1])

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
                factor = self._combined(name, factor, other)
            else:
                factor = self._combined(name, one, other)
            term = None if term is None else self._combined(name, term, other)
        elif term is not None or name == "add":
            term = self._combined(name, term, other)
        else:
            term = self._combined(name, _number(0, other), other)
        steps = before.steps + 1
        return replace(before, factor=factor, term=term, steps=steps)

    def _write(self, node: Node, found: _Scaled) -> None:
        """The node itself, or what makes the same of the sums in fewer steps."""
        scales_weights = self._scales_weights(found)
        has_factor = found.factor is not None and not scales_weights
        needed = (found.term is not None) + has_factor
        if found.limits or found.steps <= (2 if found.is_integer else needed):
            self.nodes.append(node)
            return
        self._affine(self._with_scaled_weights(found) if scales_weights else found)
        last = self.nodes.pop()
        made = Node(last.op, last.inputs, last.attrs, node.outputs, node.device)
        self.nodes.append(made)

    # --- nodes ------------------------------------------------------------------------

    def _combined(self, name: str, a: Any, b: Any) -> Any:
        """A node on two values, or the second where the first is None."""
        if a is None:
            return b
        shape = np.broadcast_shapes(a.spec.shape, b.spec.shape)
        y = Value(Spec(shape, a.spec.dtype))
        self.nodes.append(Node(PRIMITIVES[name], (a, b), {}, (y,), self.device))
        return y

    def _scales_weights(self, found: _Scaled) -> bool:
        """Whether weights that are few can be scaled instead of the sums, once."""
        if found.is_integer or found.factor is None:
            return False
        conv = self.producers[found.sums]
        weights = conv.inputs[1]
        is_few = weights.spec.nbytes <= LITTLE and self._is_settled(weights)
        is_alike = weights.spec.dtype == found.factor.spec.dtype
        # Those of the other end in the channels that are read. Rounded factors are
        # rounded once, as they are.
        is_exact = conv.op.name == "conv" and not conv.attrs.get("factors")
        return is_few and is_alike and is_exact

    def _with_scaled_weights(self, found: _Scaled) -> _Scaled:
        """The sums of weights that the factor is a part of, and no factor."""
        conv = self.producers[found.sums]
        images, weights = conv.inputs
        scaled = self._combined("multiply", weights, found.factor)
        y = Value(found.sums.spec)
        made = Node(conv.op, (images, scaled), conv.attrs, (y,), conv.device)
        self.nodes.append(made)
        return replace(found, sums=y, factor=None)

    def _affine(self, found: _Scaled) -> Any:
        y: Any = found.sums
        if found.factor is not None:
            y = self._combined("multiply", y, found.factor)
        return y if found.term is None else self._combined("add", y, found.term)

    def _rounded(self, node: Node) -> Node:
        """`quantize`, whose scale becomes a part of what is before it."""
        (x, scale), attrs = node.inputs, node.attrs
        found = self.known.get(x)
        if found is None or not found.is_integer:
            return node
        if scale.spec.size != 1 or not self._is_alone(x, found):
            return node
        shift = _number(attrs["offset"], x) if attrs["offset"] else None
        factor = self._combined("multiply", found.factor, scale)
        term = found.term
        if term is not None:
            term = self._combined("multiply", term, scale)
        term = self._shifted(term, shift)
        y = self._affine(replace(found, factor=factor, term=term))
        for name, bound in found.limits:
            if name == "maximum" and shift is None and not bound.constant.any():
                continue  # rounding does the same
            bound = self._combined("multiply", bound, scale)
            y = self._combined(name, y, self._shifted(bound, shift))
        one = _number(1, x)
        inputs, attrs = (y, one), {**attrs, "offset": 0}
        return Node(node.op, inputs, attrs, node.outputs, node.device)

    def _shifted(self, x: Any, shift: Any) -> Any:
        return x if shift is None else self._combined("add", x, shift)

    def _is_alone(self, x: Value, found: _Scaled) -> bool:
        """Whether nothing else reads a value, or those that it is clipped from."""
        for _ in range(len(found.limits) + 1):
            if self.readers[x] != 1:
                return False
            node = self.producers[x]
            x = next((v for v in node.inputs if v in self.known), x)
        return True


def _is_number(value: Any) -> bool:
    return bool(value.constant is not None and value.spec.size == 1)


def _number(number: float, like: Any) -> Constant:
    return Constant(np.array(number, like.spec.dtype))
