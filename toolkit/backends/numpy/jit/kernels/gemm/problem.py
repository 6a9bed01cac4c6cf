"""The operands of a product: the inputs that it reads, and their contiguous axis."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.numpy.jit.processor import current
from toolkit.ir import Graph
from toolkit.ir.extents import value_of
from toolkit.plans.operands import Operand

# The contiguous axis of an operand: its lines, its terms, or neither. Lines are rows of
# the left operand and columns of the right one.
LINES, TERMS, STRIDED = "lines", "terms", "apart"
# Right operands of up to this many times the bytes of the core's cache are packed once.
_MAX_PACKED_CACHES = 2


def is_small_packing(nbytes: int) -> bool:
    """Return whether a packed right operand of these bytes is always cached."""
    return value_of(nbytes) <= _MAX_PACKED_CACHES * current().cache_bytes


def packing_of(line: int, term: int, itemsize: int) -> str:
    """Return the axis of an operand with stride 1: its lines, its terms, or neither."""
    if line == itemsize:
        return LINES
    return TERMS if term == itemsize else STRIDED


def factor_indices(body: Graph, inputs: Sequence[Operand]) -> tuple[int, ...] | None:
    """Return the inputs that a body's first node reads, or None if unsupported.

    The inputs of the other nodes must have the memory layout of the result.
    """
    indices = {value: i for i, value in enumerate(body.inputs)}
    factors, *others = (node.inputs for node in body.nodes)
    epilogue_inputs = {indices[x] for read in others for x in read if x in indices}
    if not all(inputs[i].is_contiguous for i in epilogue_inputs):
        return None
    if not indices.keys() >= set(factors):
        return None
    return tuple(indices[x] for x in factors)


def contiguous_factors(
    body: Graph, inputs: Sequence[Operand]
) -> tuple[int, ...] | None:
    """Return the same as `factor_indices` if all inputs are contiguous, else None."""
    if not all(x.is_contiguous for x in inputs):
        return None
    return factor_indices(body, inputs)
