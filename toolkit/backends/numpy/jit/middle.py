"""Reductions over axes in the middle, such as the pixels of images channels last."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from toolkit.backends.numpy.jit.builder import Builder, Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.engine import host
from toolkit.backends.numpy.jit.lowering import (
    Call,
    Lowered,
    Operand,
    Reference,
    partition,
)
from toolkit.backends.numpy.jit.memory import Memory
from toolkit.backends.numpy.jit.reducers import reducer

DTYPES = ("float32", "float64", "int32", "int64", "bool")


def emit_middle(op: str, dtype: str) -> Builder:
    """out[row, c] = the reduction of x[row, m, c] over m, vectors along c."""
    b = Builder(host().lanes)
    memory = Memory(b)
    entries = [memory.offset("%table", str(k), "i64") for k in range(4)]
    x, out = (b.let(f"load ptr, ptr {e}", "int64").text for e in entries[:2])
    middle, columns = (b.let(f"load i64, ptr {e}", "int64").text for e in entries[2:])
    rest = b.integer("and", columns, b.lanes - 1)
    whole = b.integer("sub", columns, rest)
    combine = reducer(op, dtype, b)

    def reduce(row: str, column: str, mask: str | None) -> None:
        first = b.integer("mul", row, middle)
        with b.accumulate("0", middle, 1, combine.initial()) as turn:
            line = b.integer("mul", b.integer("add", first, turn.index), columns)
            element = b.integer("add", line, column)
            value = memory.load(x, element, dtype, mask)
            turn.next(combine.add(turn.values, value, None, turn.index))
        target = b.integer("add", b.integer("mul", row, columns), column)
        memory.store(turn.values[0], out, target, mask)

    with b.loop("%lo", "%hi") as row:
        with b.loop("0", whole, b.lanes) as column:
            reduce(row, column, None)
        with b.loop(whole, columns, b.lanes) as column:
            left = b.splat(b.convert("trunc", Value(rest, "int64"), "int32"))
            numbers = ", ".join(f"i32 {k}" for k in range(b.lanes))
            lanes = Value(f"<{numbers}>", "int32", b.lanes)
            reduce(row, column, b.binary("icmp slt", lanes, left, "bool").text)
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
