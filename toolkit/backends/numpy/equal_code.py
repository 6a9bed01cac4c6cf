"""The operations whose generated code has the same bits as the kernels of NumPy."""

from __future__ import annotations

from toolkit.backends.kernels import Kernel, Reads
from toolkit.backends.numpy.eager import EagerPrograms, GeneratedCall
from toolkit.ir import Kind, Node

# Generated code computes narrow floats in float32, and rounds at the end of a loop.
_DTYPES = (
    *("float32", "float64", "bool", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)
# Elementwise operations that are exact, or correctly rounded. Others, such as `exp`,
# differ in the last bits.
_ELEMENTWISE = frozenset(
    {
        *("abs", "add", "cast", "ceil", "divide", "floor", "multiply", "negative"),
        *("round", "rsqrt", "sqrt", "subtract", "trunc", "maximum", "minimum", "where"),
        *("equal", "not_equal", "less", "less_equal", "isnan", "isinf", "isfinite"),
        *("logical_and", "logical_not", "logical_or", "logical_xor"),
        *("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "reinterpret"),
    }
)
_INDEX = ("gather", "scatter", "take_along_axis", "put_along_axis")
_MOVES = ("concatenate", "pad")
# Reductions with one result in any order.
_UNORDERED = ("any", "all", "argmax", "argmin")
_REDUCTIONS = (*_UNORDERED, "sum", "prod", "max", "min")
# The most numbers whose order does not matter, and the most numbers that NumPy and
# generated code combine in order. NumPy has eight accumulators for more numbers.
_MAX_COMMUTATIVE, _MAX_SEQUENTIAL = 2, 7


def has_equal_code(kernel: Kernel, node: Node, reads: Reads) -> bool:
    """Return whether code of a program has the same bits as a kernel.

    Args:
        kernel: the kernel of a call outside of programs.
        node: the node that it computes, on operands with row-major axes.
        reads: the arrays that a loop reads to compute the operands.
    """
    op, values = node.op, (*node.inputs, *node.outputs)
    if not all(x.spec.dtype in _DTYPES and x.spec.size for x in values):
        return False
    if op.kind is Kind.VIEW or op.name in _MOVES or op.name in _INDEX:
        return True
    if op.kind in (Kind.SORT, Kind.RANDOM):
        return isinstance(kernel, (GeneratedCall, EagerPrograms))
    if op.kind is Kind.ELEMENTWISE:
        return op.name in _ELEMENTWISE or type(kernel) is EagerPrograms
    if op.kind is Kind.COMPOSITE:
        return type(kernel) is EagerPrograms and _is_elementwise(node)
    if op.kind is not Kind.REDUCE or op.name not in _REDUCTIONS:
        return False
    is_program = type(kernel) is EagerPrograms
    return (is_program and _keeps_order(node, reads)) or _reduces_equally(node)


def _keeps_order(node: Node, reads: Reads) -> bool:
    """Return whether a loop adds in the order of a loop of the reduction alone.

    A loop over contiguous arrays can join adjacent axes, but not if it also reads
    arrays that broadcast. The order along the first or last axis is the same for both.
    """
    if reads is not Reads.BROADCAST:
        return reads is Reads.EVEN
    axes, ndim = node.attrs["axis"], node.inputs[0].spec.ndim
    return len(axes) == 1 < ndim and axes[0] in (0, ndim - 1)


def _is_elementwise(node: Node) -> bool:
    """Return whether a composite consists of elementwise operations."""
    trace = node.op.graph
    assert trace is not None
    body = trace([x.spec for x in node.inputs], node.attrs).pruned()
    return all(inner.op.kind is Kind.ELEMENTWISE for inner in body.nodes)


def _reduces_equally(node: Node) -> bool:
    """Return whether the result of a reduction does not depend on its code."""
    if node.op.name in _UNORDERED:
        return True
    (x,) = node.inputs
    axes = [i for i in node.attrs["axis"] if x.spec.shape[i] > 1]
    if len(axes) != 1:  # the sum of -0.0 alone is 0.0 in NumPy
        return False
    # The vectors of a loop contain neighbors along the last axis.
    has_columns = x.spec.shape[axes[0] + 1 :].count(1) < x.spec.ndim - axes[0] - 1
    limit = _MAX_SEQUENTIAL if has_columns else _MAX_COMMUTATIVE
    extent: int = x.spec.shape[axes[0]]
    return extent <= limit
