"""Numbers that factors of products are multiplied with: the products are instead.

(x * number) @ y is (x @ y) * number, which a library computes by the call that computes
x @ y: the scores of attention, say, whose queries need not be written again.
"""

from __future__ import annotations

from collections import defaultdict
from math import isfinite
from typing import Any

import numpy as np

from toolkit.backends.loops.iteration_space import number_of
from toolkit.ir import Constant, Graph, Kind, Node, Value


def scale_products(graph: Graph) -> Graph:
    """Multiply products by what one of their factors is multiplied with."""
    readers: defaultdict[Value, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in set(node.inputs):
            readers[value].append(node)
    outputs = set(graph.outputs)

    def is_for_products(value: Any) -> bool:
        """Whether products, or views for them, are all that reads a value."""
        found = readers[value]
        if value in outputs or not found:
            return False
        return all(
            reader.op.name == "matmul"
            or (reader.op.kind is Kind.VIEW and is_for_products(reader.outputs[0]))
            for reader in found
        )

    for node in graph.nodes:
        if node.op.name == "multiply" and is_for_products(node.outputs[0]):
            graph = _moved(graph, node)
    return graph


def _moved(graph: Graph, node: Node) -> Graph:
    """The graph with a multiplication behind the products that read its result."""
    x, factor = node.inputs if number_of(node.inputs[0]) is None else node.inputs[::-1]
    number = number_of(factor)
    if number is None or x.spec != node.outputs[0].spec:
        return graph
    if not isfinite(float(number)) or number == 0:
        return graph
    factor = Constant(np.asarray(number))  # which may have been an array of its like
    values = {node.outputs[0]: x}
    nodes: list[Node] = []
    for other in graph.nodes:
        read = sum(v in values for v in other.inputs)
        if not read or other is node:
            nodes += [other] if other is not node else []
            continue
        inputs = [values.get(v, v) for v in other.inputs]
        result = Value(other.outputs[0].spec)
        nodes.append(Node(other.op, inputs, other.attrs, [result]))
        if other.op.kind is Kind.VIEW:
            values[other.outputs[0]] = result
        elif read == 1:
            nodes.append(Node(node.op, [result, factor], {}, other.outputs))
        else:  # both factors are the same, and would be multiplied twice
            return graph
    return graph.replace(nodes)
