"""The choice of the generator of a node: the table `GENERATORS`.

A generator is `generate(node, inputs, outputs, aligned)`. It returns the launches that
compute the node, in order, or None if no generated kernel applies. Its module is
imported for the first node that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.backends.cupy.cuda.launch import Launch
from toolkit.definitions.namespaces import import_location
from toolkit.dtypes import is_complex
from toolkit.ir import Primitive
from toolkit.plans.loops.iteration_space import REDUCTIONS
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

Generator = Callable[
    [Any, Sequence[Operand], Sequence[Operand], bool], Sequence[Launch] | None
]

# Generator of primitives that have a scalar rule.
_SCALAR_RULE = "fused:generate_single"
# The generator of each primitive, or its location as a module of this package. "fused"
# is the generator of whole bodies. Elementwise primitives need no entry.
GENERATORS: dict[str, str | Generator] = {
    "fused": "fused:generate_fused",
    **dict.fromkeys(REDUCTIONS, "fused:generate_reduction"),
    **dict.fromkeys(("reshape", "transpose", "broadcast_to"), "move:generate_copy"),
    **dict.fromkeys(("bitcast", "stop_gradient"), "move:generate_copy"),
    **dict.fromkeys(("matmul", "matmul_integer"), "products:generate_matmul"),
    "gather": "index:generate_gather",
    "take_along_axis": "index:generate_take_along_axis",
    "scatter": "index:generate_scatter",
    "put_along_axis": "index:generate_put_along_axis",
    **dict.fromkeys(("cumsum", "cumprod"), "scan:generate_cumulative"),
    "random_uniform": "random:generate_random_uniform",
    "max_pool": "pool:generate_max_pool",
    "max_pool_gather": "pool:generate_max_pool_gather",
    "max_pool_scatter": "pool:generate_max_pool_scatter",
    "sum_pool": "pool:generate_sum_pool",
    "sum_pool_grad": "pool:generate_sum_pool_grad",
    "argsort": "sort:generate_argsort",
    "searchsorted": "sort:generate_searchsorted",
    "slice": "move:generate_slice",
    "concatenate": "move:generate_concatenate",
    "pad": "move:generate_pad",
    "dynamic_slice": "move:generate_dynamic_slice",
    "dynamic_update_slice": "move:generate_dynamic_update_slice",
}


def find_generator(op: Primitive) -> Generator | None:
    """Return the generator of a primitive, or None."""
    generator = GENERATORS.get(op.name, _SCALAR_RULE if op.scalar else None)
    if isinstance(generator, str):
        imported: Generator = import_location(generator, __package__)
        return imported
    return generator


def generate(
    node: Node,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    aligned: bool = True,
) -> tuple[Launch, ...] | None:
    """Return the launches that compute a node, or None if no generated kernel applies.

    Args:
        node: of a fused or of any other primitive.
        inputs, outputs: the operands in the order of the node; outputs are whole arrays
            in row-major order.
        aligned: whether the addresses of all operands are multiples of 16.
    """
    if any(is_complex(x.spec.dtype) for x in (*inputs, *outputs)):
        return None
    make = find_generator(node.op)
    launches = make and make(node, inputs, outputs, aligned)
    return None if launches is None else tuple(launches)
