"""Matrix products of a column and a row, as elementwise products.

The gradient of a dot product and the gradient of a matrix times a vector contain such
products. An elementwise product fuses with the operations before and after it.
"""

from __future__ import annotations

from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Node


def multiply_outer_products(graph: Graph, target: Target) -> Graph:
    """Multiply columns by rows, instead of sums of one term each."""
    return graph.replace(
        [_as_multiplication(x) if _is_outer(x) else x for x in graph.nodes]
    )


def _is_outer(node: Node) -> bool:
    return bool(node.op.name == "matmul" and node.inputs[0].spec.shape[-1] == 1)


def _as_multiplication(product: Node) -> Node:
    multiply = PRIMITIVES["multiply"]
    return Node(multiply, product.inputs, {}, product.outputs, product.device)
