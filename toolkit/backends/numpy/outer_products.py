"""Matrix products as elementwise products: of columns and rows, and of small matrices.

The gradient of a dot product and the gradient of a matrix times a vector contain
products of a column and a row. An elementwise product fuses with the operations before
and after it.

Each of many small matrices times a column is one elementwise product and a sum over the
last axis. Its kernel computes several rows at once. The kernel of a matrix product
would compute a few numbers in each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Node
from toolkit.ir.extents import value_of
from toolkit.ir.nodes import node_of
from toolkit.plans.layout import Layouts

# The most rows and columns of a small matrix, and the fewest matrices. On AVX2 a
# multiplication and a sum take 0.2 to 0.6 times as long as the products of matrices up
# to 12 x 12, 0.8 times for 16 x 16, and 1.3 times for 32 x 32.
_MAX_EXTENT, _MIN_MATRICES = 16, 32
_DTYPES = ("float32", "float64")


def multiply_outer_products(graph: Graph, target: Target) -> Graph:
    """Multiply by elements, where the kernel of a matrix product has little to do."""
    layouts = Layouts(graph, target.inputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        if _is_outer(node):
            nodes.append(_as_multiplication(node))
        elif not target.rows_independent and _has_small_matrices(node, layouts):
            nodes += _multiply_and_add(node)
        else:
            nodes.append(node)
    return graph.replace(nodes)


def _is_outer(node: Node) -> bool:
    return bool(node.op.name == "matmul" and node.inputs[0].spec.shape[-1] == 1)


def _as_multiplication(product: Node) -> Node:
    multiply = PRIMITIVES["multiply"]
    return Node(multiply, product.inputs, {}, product.outputs, product.device)


def _has_small_matrices(node: Node, layouts: Layouts) -> bool:
    """Return whether a node multiplies each of many small matrices by a column."""
    if node.op.name != "matmul" or node.outputs[0].spec.dtype not in _DTYPES:
        return False
    a, b = (x.spec.shape for x in node.inputs)
    is_small = 1 < a[-1] <= _MAX_EXTENT and a[-2] <= _MAX_EXTENT and b[-1] == 1
    if not is_small or a[:-2] != b[:-2] or value_of(prod(a[:-2])) < _MIN_MATRICES:
        return False
    # The sum of transposed matrices does not read contiguous rows.
    return layouts.operand(node.inputs[0]).is_contiguous


def _multiply_and_add(product: Node) -> Iterator[Node]:
    """Yield the nodes that multiply rows by a column and add the products."""
    matrices, columns = product.inputs
    shape = (*columns.spec.shape[:-2], 1, columns.spec.shape[-2])
    rows = node_of("reshape", [columns], {"shape": shape}, product.device)
    yield rows
    products = node_of("multiply", [matrices, *rows.outputs], {}, product.device)
    yield products
    attrs = {"axis": (len(shape) - 1,), "keepdims": True}
    device = product.device
    yield Node(PRIMITIVES["sum"], products.outputs, attrs, product.outputs, device)
