"""Cumulative sums and products along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.plans.loops.plan import identity
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

DTYPES = ("float32", "float64", "int32", "int64")
_COMBINED = {"cumsum": ("sum", "add"), "cumprod": ("prod", "multiply")}


def emit_cumulative(op: str, dtype: str, reverse: bool, lanes: int) -> Kernel:
    """Emit out[row, n, c] = x[row, 0, c] combined up to x[row, n, c].

    Vectors are along c.
    """
    b = Kernel(lanes)
    x, out = b.address(0), b.address(1)
    length, columns = b.entry(2), b.entry(3)
    neutral, rule = _COMBINED[op]
    combine = getattr(LLVMScalars(b), rule)
    first = b.filled(identity(neutral, dtype), dtype)
    with b.loop(b.low, b.high) as row:
        for column, mask in b.run(0, columns):
            with b.accumulate(0, length, 1, [first]) as iteration:
                n = length - 1 - iteration.index if reverse else iteration.index
                element = (row * length + n) * columns + column
                total = combine(iteration.values[0], b.load(x, element, dtype, mask))
                b.store(total, out, element, mask)
                iteration.next([total])
    return b


def lower_cumulative(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a cumulative sum or product, forward or reverse."""
    spec, axis = inputs[0].spec, node.attrs["axis"]
    if not inputs[0].is_contiguous or spec.dtype not in DTYPES:
        return None
    rows, columns = prod(spec.shape[:axis]), prod(spec.shape[axis + 1 :])
    operands: tuple[Reference, ...] = (("in", 0), ("out", 0))
    # Along the last axis the additions form one dependency chain: lanes do not help.
    lanes = current().lanes if columns > 1 else 1
    call = Call(
        Code(emit_cumulative, node.op.name, spec.dtype, node.attrs["reverse"], lanes),
        operands,
        (spec.shape[axis], columns),
        rows if spec.size else 0,
        partition(rows),
        frozenset(operands),
        flops=spec.size,
        nbytes=2 * spec.nbytes,
    )
    return Lowered((call,))
