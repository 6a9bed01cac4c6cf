"""Running sums and products along an axis."""

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
from toolkit.backends.numpy.jit.reducers import identity
from toolkit.backends.numpy.jit.scalars import LLVMScalars

DTYPES = ("float32", "float64", "int32", "int64")
_COMBINED = {"cumsum": ("sum", "add"), "cumprod": ("prod", "multiply")}


def emit_cumulative(op: str, dtype: str, reverse: bool, lanes: int) -> Builder:
    """out[row, n, c] = x[row, 0, c] combined up to x[row, n, c], vectors along c."""
    b = Builder(lanes)
    memory = Memory(b)
    entries = [memory.offset("%table", str(k), "i64") for k in range(4)]
    x, out = (b.let(f"load ptr, ptr {e}", "int64").text for e in entries[:2])
    length, columns = (b.let(f"load i64, ptr {e}", "int64").text for e in entries[2:])
    rest = b.integer("and", columns, lanes - 1)
    whole = b.integer("sub", columns, rest)
    neutral, rule = _COMBINED[op]
    combine = getattr(LLVMScalars(b), rule)
    first = b.constant(identity(neutral, dtype), Value("", dtype, lanes))

    def run(row: str, column: str, mask: str | None) -> None:
        start = b.integer("mul", row, length)
        with b.accumulate("0", length, 1, [first]) as turn:
            n = turn.index
            if reverse:
                n = b.integer("sub", b.integer("sub", length, 1), n)
            line = b.integer("mul", b.integer("add", start, n), columns)
            element = b.integer("add", line, column)
            value = memory.load(x, element, dtype, mask)
            total = combine(turn.values[0], value)
            memory.store(total, out, element, mask)
            turn.next([total])

    with b.loop("%lo", "%hi") as row:
        with b.loop("0", whole, lanes) as column:
            run(row, column, None)
        with b.loop(whole, columns, lanes) as column:
            left = b.splat(b.convert("trunc", Value(rest, "int64"), "int32"))
            numbers = ", ".join(f"i32 {k}" for k in range(lanes))
            present = Value(f"<{numbers}>", "int32", lanes)
            run(row, column, b.binary("icmp slt", present, left, "bool").text)
    return b


def lower_cumulative(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Running sums or products, from either end."""
    spec, axis = inputs[0].spec, node.attrs["axis"]
    if not inputs[0].is_contiguous or spec.dtype not in DTYPES:
        return None
    rows, columns = prod(spec.shape[:axis]), prod(spec.shape[axis + 1 :])
    operands: tuple[Reference, ...] = (("in", 0), ("out", 0))
    # Along the last axis one sum waits for the other: a short vector wastes least.
    lanes = host().lanes if columns > 1 else 1
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
