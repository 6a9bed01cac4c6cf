"""Reductions over axes in the middle, such as the pixels of images channels last."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.reducers import reducer
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.lowering import (
    Call,
    Lowered,
    Operand,
    Reference,
    partition,
)
from toolkit.backends.numpy.jit.processor import current

DTYPES = ("float32", "float64", "int32", "int64", "bool")


def emit_middle(op: str, dtype: str) -> Kernel:
    """out[row, c] = the reduction of x[row, m, c] over m, vectors along c."""
    b = Kernel(current().lanes)
    x, out = b.address(0), b.address(1)
    middle, columns = b.entry(2), b.entry(3)
    combine = reducer(op, dtype, b)
    with b.loop(b.low, b.high) as row:
        for column, mask in b.run(0, columns):
            with b.accumulate(0, middle, 1, combine.initial()) as iteration:
                element = (row * middle + iteration.index) * columns + column
                value = b.load(x, element, dtype, mask)
                iteration.next(
                    combine.add(iteration.values, value, None, iteration.index)
                )
            b.store(iteration.values[0], out, row * columns + column, mask)
    return b


def lower_middle(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """One reduction over adjacent axes, other axes before and behind them."""
    spec, axes = inputs[0].spec, node.attrs["axis"]
    adjacent = axes and list(axes) == list(range(axes[0], axes[-1] + 1))
    if not adjacent or not inputs[0].is_contiguous or spec.dtype not in DTYPES:
        return None
    rows = prod(spec.shape[: axes[0]])
    columns = prod(spec.shape[axes[-1] + 1 :])
    middle = prod(spec.shape[axes[0] : axes[-1] + 1])
    if not outputs[0].spec.size:
        return Lowered()
    operands: tuple[Reference, ...] = (("in", 0), ("out", 0))
    call = Call(
        Code(emit_middle, node.op.name, spec.dtype),
        operands,
        (middle, columns),
        rows,
        partition(rows),
        frozenset(operands),
        flops=spec.size,
        nbytes=spec.nbytes + outputs[0].spec.nbytes,
    )
    return Lowered((call,))
