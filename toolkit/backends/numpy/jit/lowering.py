"""The choice of the lowering of a node: the table `LOWERINGS`.

The module of a lowering is imported for the first node that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.backends.numpy.jit.calls import Lowered, Lowering
from toolkit.backends.numpy.jit.fused.elementwise import (
    lower_copy,
    lower_fused,
    lower_with_copies,
)
from toolkit.backends.numpy.jit.math.narrow import WIDE, is_narrow
from toolkit.backends.numpy.jit.products import PRODUCTS
from toolkit.definitions.namespaces import import_location
from toolkit.dtypes import is_complex
from toolkit.ir import Graph, Value
from toolkit.ir.extents import value_of
from toolkit.plans.operands import Operand, contiguous
from toolkit.plans.rules import rules

if TYPE_CHECKING:
    from toolkit.ir import Node

# The lowering of each primitive, or its module and name in this package. The lowerings
# of ANCHORS receive a Graph: their node, then elementwise nodes on its result.
LOWERINGS: dict[str, str | Lowering] = {
    "fused": lower_fused,
    "conv": "kernels.conv:lower_conv",
    "conv_input_grad": "kernels.conv:lower_conv_input_grad",
    "conv_kernel_grad": "kernels.conv:lower_conv_kernel_grad",
    "conv_integer": "kernels.integer:lower_conv_integer",
    "matmul": "kernels.matmul:lower_matmul",
    "matmul_int4": "kernels.matmul:lower_matmul_int4",
    "matmul_integer": "kernels.integer:lower_matmul_integer",
    "max_pool": "kernels.pool:lower_max_pool",
    "max_pool_scatter": "kernels.pool:lower_max_pool_scatter",
    "max_pool_gather": "kernels.pool:lower_max_pool_gather",
    "sum_pool": "kernels.pool:lower_sum_pool",
    "sum_pool_grad": "kernels.pool:lower_sum_pool_grad",
    "dft": "kernels.fourier:lower_dft",
    "rdft": "kernels.fourier:lower_rdft",
    "irdft": "kernels.fourier:lower_irdft",
    "gather": "kernels.index:lower_gather",
    "scatter": "kernels.index:lower_scatter",
    "take_along_axis": "kernels.index:lower_take_along_axis",
    "put_along_axis": "kernels.index:lower_put_along_axis",
    "dynamic_slice": "kernels.move:lower_dynamic_slice",
    "dynamic_update_slice": "kernels.move:lower_dynamic_update_slice",
    "reshape": lower_copy,
    "stop_gradient": lower_copy,
    "transfer": lower_copy,
    "concatenate": "kernels.move:lower_concatenate",
    "pad": "kernels.move:lower_pad",
    **dict.fromkeys(
        ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"),
        "kernels.middle_axis:lower_middle",
    ),
    "cumsum": "kernels.scan:lower_cumulative",
    "cumprod": "kernels.scan:lower_cumulative",
    "argsort": "kernels.sort:lower_argsort",
    "sort": "kernels.sort:lower_sort",
    "searchsorted": "kernels.sort:lower_searchsorted",
    "random_uniform": "kernels.random:lower_random_uniform",
    "solve": "kernels.linalg:lower_solve",
    "solve_triangular": "kernels.linalg:lower_solve_triangular",
    "lu": "kernels.linalg:lower_lu",
    "qr": "kernels.linalg:lower_qr",
    "slogdet": "kernels.linalg:lower_slogdet",
    "cholesky": "kernels.linalg:lower_cholesky",
    "attention": "kernels.attention:lower_attention",
    "attention_grad": "kernels.attention:lower_attention_grad",
}
# Composites that are lowered whole, if they compute in floating point.
COMPOSITES = frozenset({"attention", "attention_grad", "matmul_int4"})
# The number of queries from which attention fills the vectors of its kernel. For fewer
# queries two products and a softmax are faster. A single query has a separate kernel.
MIN_ATTENTION_QUERIES = 25
ANCHORS = frozenset(
    {
        *("conv", "conv_input_grad", "conv_integer"),
        *("matmul", "matmul_int4", "matmul_integer"),
    }
)
# Reductions whose separate kernel is faster than a loop nest of the reduction alone.
INDEX_REDUCTIONS = ("argmax", "argmin")
# The ANCHORS that are lowered with copies of factors that are not contiguous.
CONTIGUOUS_ONLY = frozenset({"matmul_int4", "conv_integer"})


def takes_whole(node: Node) -> bool:
    """Return whether a composite is lowered without decomposition."""
    if node.op.name == "sort":
        can_sort = import_location("kernels.sort:can_sort", __package__)
        return bool(can_sort(node.inputs[0].spec, node.attrs["axis"]))
    if node.op.scalar is not None:
        is_fusable = import_location("fused.elementwise:is_fusable", __package__)
        return bool(is_fusable(node))
    if node.op.name not in COMPOSITES:
        return False
    # bfloat16 values become float32 before lowering.
    input_dtypes = {x.spec.dtype for x in node.inputs}
    if node.op.name == "matmul_int4":
        return input_dtypes <= {"float32", "bfloat16", "int8", "uint8"}
    if node.op.name == "attention" and 1 < _query_count(node) < MIN_ATTENTION_QUERIES:
        return False
    return input_dtypes <= {"float32", "float64", "bfloat16", "bool"}


def _query_count(attention: Any) -> int:
    """Return the number of queries of each head."""
    count: int = value_of(attention.inputs[0].spec.shape[1])
    return count


def lowering(name: str) -> Lowering | None:
    """Return the lowering of a primitive; None if it has none."""
    entry = LOWERINGS.get(name)
    return import_location(entry, __package__) if isinstance(entry, str) else entry


def lower(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Return the calls that compute a node, or None if NumPy must compute it.

    Args:
        node: a node of the primitive "fused" or of another primitive.
        inputs, outputs: the operands, in the order of the node's.
    """
    if any(is_complex(x.spec.dtype) for x in (*inputs, *outputs)):
        return None
    name, argument = node.op.name, node
    if name == "fused":
        body = node.attrs["body"]
        first = body.nodes[0].op.name
        is_copy = first == "stop_gradient" and len(body.nodes) == len(inputs) == 1
        name, argument = (first if first in ANCHORS or is_copy else name), body
        if _is_lone_reduction(body, inputs):
            name, argument = first, body.nodes[0]
    elif name in ANCHORS:
        argument = Graph(node.inputs, (node,), node.outputs)
    lower_node = lowering(name)
    if lower_node is None:
        return None
    lowered = lower_node(argument, inputs, outputs)
    if lowered is None and name in PRODUCTS:
        lowered = _lower_with_casts(lower_node, argument, inputs, outputs)
    if lowered is None and (argument is node or name in CONTIGUOUS_ONLY):
        return _lower_contiguous(lower_node, argument, inputs, outputs)
    return lowered


def _is_lone_reduction(body: Graph, inputs: Sequence[Operand]) -> bool:
    """Return whether a body is one reduction with a faster kernel of its own."""
    name, *others = (node.op.name for node in body.nodes)
    if others or name in INDEX_REDUCTIONS:
        return not others
    # A fused sum adds in another order.
    if rules.rows_independent or LOWERINGS.get(name) != LOWERINGS["sum"]:
        return False
    is_few = import_location("kernels.middle_axis:is_few_columns", __package__)
    dtypes = {x.spec.dtype for x in (*body.inputs, *body.outputs)}
    return len(dtypes) == 1 and bool(is_few(inputs[0], body.nodes[0].attrs["axis"]))


def _lower_with_casts(
    lower_node: Lowering,
    argument: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """Lower a product after casts of the 16-bit factors that its lowering rejects.

    Return None if no factor is a 16-bit float. Usually the first factor is the smaller
    one, so its cast alone is tried first.
    """
    product = argument.nodes[0] if isinstance(argument, Graph) else argument
    narrow = [x for x in dict.fromkeys(product.inputs) if is_narrow(x.spec.dtype)]
    for factors in ([x] for x in narrow) if len(narrow) > 1 else ():
        lowered = _lower_after_casts(factors, lower_node, argument, inputs, outputs)
        if lowered is not None:
            return lowered
    if not narrow:
        return None
    return _lower_after_casts(narrow, lower_node, argument, inputs, outputs)


def _lower_after_casts(
    factors: Sequence[Value],
    lower_node: Lowering,
    argument: Graph | Node,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """Lower a product after casts of some factors to float32."""
    wide = {x: Value(x.spec.with_dtype(WIDE)) for x in factors}
    casts = {
        i: contiguous(wide[x].spec) for i, x in enumerate(argument.inputs) if x in wide
    }
    argument = _replace_inputs(argument, wide)
    return lower_with_copies(casts, lower_node, argument, inputs, outputs)


def _replace_inputs(argument: Any, replacements: Mapping[Any, Any]) -> Any:
    """Replace the inputs of a node, or of all nodes of a body."""
    inputs = [replacements.get(x, x) for x in argument.inputs]
    if not isinstance(argument, Graph):
        return argument.with_inputs(inputs)
    nodes = [_replace_inputs(node, replacements) for node in argument.nodes]
    return Graph(tuple(inputs), tuple(nodes), argument.outputs)


def _lower_contiguous(
    lower_node: Lowering,
    argument: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """Lower a node that requires contiguous inputs, after copies of the other inputs.

    Return None if all inputs are contiguous.
    """
    views = [i for i, x in enumerate(inputs) if not x.is_contiguous]
    if not views:
        return None
    copies = {i: contiguous(inputs[i].spec) for i in views}
    return lower_with_copies(copies, lower_node, argument, inputs, outputs)
