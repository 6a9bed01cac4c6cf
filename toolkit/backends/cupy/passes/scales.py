"""Pass that moves scale factors from the operands of products to their results.

(x * number) @ y is (x @ y) * number, which a library computes in the call for x @ y.
For example, the queries of attention are not rewritten for the scores.
"""

from __future__ import annotations

from collections import defaultdict
from math import isfinite
from typing import Any

import numpy as np

from toolkit.ir import Constant, Graph, Kind, Node, Value
from toolkit.plans.loops.iteration_space import uniform_value


def scale_products(graph: Graph) -> Graph:
    """Move a scale factor of an operand to the result of the product."""
    readers: defaultdict[Value, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in set(node.inputs):
            readers[value].append(node)
    outputs = set(graph.outputs)

    def is_for_products(value: Any) -> bool:
        """Return whether only products, or views for them, read a value."""
        consumers = readers[value]
        if value in outputs or not consumers:
            return False
        return all(
            reader.op.name == "matmul"
            or (reader.op.kind is Kind.VIEW and is_for_products(reader.outputs[0]))
            for reader in consumers
        )

    for node in graph.nodes:
        if node.op.name == "multiply" and is_for_products(node.outputs[0]):
            graph = _move_scale(graph, node)
    return graph


def _move_scale(graph: Graph, node: Node) -> Graph:
    """Return the graph with a multiplication moved after the products that read it."""
    x, factor = (
        node.inputs if uniform_value(node.inputs[0]) is None else node.inputs[::-1]
    )
    number = uniform_value(factor)
    if number is None or x.spec != node.outputs[0].spec:
        return graph
    if not isfinite(float(number)) or number == 0:
        return graph
    # it can be an array with the same number in every element
    factor = Constant(np.asarray(number))
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
        else:  # both factors are the same, and the scale would apply twice
            return graph
    return graph.replace(nodes)
