"""Pass that keeps batch normalization as one library call with its epilogue."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from toolkit.backends.generator import CodeGenerator
from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Value


def keep_batch_norms(graph: Graph, target: Target) -> Graph:
    """Keep a batch normalization as one node if that saves memory traffic.

    Forward, the call includes a residual addition and a maximum with 0. It applies if
    the result is in memory anyway; otherwise generated kernels fuse it with its
    readers. Backward, it applies if the gradient is in memory anyway.
    """
    norms = _Norms(graph, target.backend.generator)
    for node in graph.nodes:
        if node.op.name == "batch_norm":
            norms.keep(node)
        elif node.op.name == "batch_norm_grad":
            norms.keep_grad(node)
    return graph.replace(norms.nodes)


class _Norms:
    """Graph in which normalizations are replaced."""

    def __init__(self, graph: Graph, generator: CodeGenerator) -> None:
        self.generator = generator
        self.nodes = list(graph.nodes)
        self.producers = graph.producers()
        self.outputs = set(graph.outputs)
        self.readers: defaultdict[Value, list[Node]] = defaultdict(list)
        for node in graph.pruned().nodes:
            for value in set(node.inputs):
                self.readers[value].append(node)

    def keep(self, norm: Node) -> None:
        """Replace a normalization and its epilogue."""
        chain, residual = self._chain(norm)
        y = chain[-1].outputs[0]
        inputs = (*norm.inputs, *residual)
        attrs = {**norm.attrs, "relu": chain[-1].op.name == "limit"}
        outputs = (y, *norm.outputs[1:])
        fused = Node(PRIMITIVES["batch_norm_of"], inputs, attrs, outputs, norm.device)
        if self._is_stored(y) and self.generator.can_lower_composite(fused):
            self._replace(chain, fused)

    def _is_stored(self, y: Any) -> bool:
        """Return whether a reader of a value is not fused with its producer."""
        return y in self.outputs or not all(map(_is_light, self.readers[y]))

    def _chain(self, norm: Node) -> tuple[list[Node], tuple[Any, ...]]:
        """Return a normalization, its addition and maximum with 0, and the addend."""
        y = norm.outputs[0]
        for node in self._only_reader(y):
            if _is_relu(node):
                return [norm, node], ()
            for relu in self._only_reader(node.outputs[0]):
                addends = [x for x in node.inputs if x is not y]
                is_sum = node.op.name == "add" and len(addends) == 1
                if is_sum and _is_relu(relu) and addends[0].spec == y.spec:
                    return [norm, node, relu], tuple(addends)
        return [norm], ()

    def _only_reader(self, value: Any) -> list[Node]:
        readers = self.readers[value]
        return readers if len(readers) == 1 and value not in self.outputs else []

    def _replace(self, chain: list[Node], fused: Node) -> None:
        """Insert a node at the end of a chain, before its readers."""
        first, last = self._position(chain[0]), self._position(chain[-1])
        late = set(fused.outputs)
        before: list[Node] = []
        later: list[Node] = []
        for node in self.nodes[first : last + 1]:
            if any(node is member for member in chain):
                continue
            is_late = any(x in late for x in node.inputs)
            late.update(y for y in node.outputs if is_late)
            (later if is_late else before).append(node)
        if not any(x in late for x in fused.inputs):
            self.nodes[first : last + 1] = [*before, fused, *later]
            for x in fused.inputs:  # of two branches, only one includes the addition
                remaining = [n for n in self.readers[x] if n not in chain]
                self.readers[x] = [*remaining, fused]

    def _position(self, node: Node) -> int:
        return next(i for i, other in enumerate(self.nodes) if other is node)

    def keep_grad(self, grad: Node) -> None:
        """Replace the gradient of a normalization unless a fused node feeds it."""
        g = grad.inputs[0]
        maker = self.producers.get(g)
        if maker is not None and _is_light(maker) and len(self.readers[g]) == 1:
            return
        whole_p = PRIMITIVES["batch_norm_grad_of"]
        fused = Node(whole_p, grad.inputs, grad.attrs, grad.outputs, grad.device)
        if self.generator.can_lower_composite(fused):
            self.nodes[self._position(grad)] = fused


def _is_relu(node: Node) -> bool:
    return node.op.name == "limit" and node.attrs == {"low": 0, "high": None}


def _is_light(node: Node) -> bool:
    return node.op.kind is Kind.ELEMENTWISE or node.op.name == "limit"
