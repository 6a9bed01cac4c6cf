"""Products whose factors some processors round to bfloat16."""

from __future__ import annotations

from math import prod

from toolkit.backends.numpy.jit.math.bfloat16 import NARROW
from toolkit.ir import Node

# Primitives that some processors compute several times faster for bfloat16 factors.
PRODUCTS = frozenset({"conv", "conv_input_grad", "conv_kernel_grad", "matmul"})


def can_round_factors(product: Node) -> bool:
    """Return whether a product, of one matrix or group, can round its factors."""
    if product.attrs.get("factors") != NARROW:
        return False
    if product.op.name == "matmul":
        return bool(prod(product.inputs[1].spec.shape[:-2]) == 1)
    return bool(product.attrs["groups"] == 1)
