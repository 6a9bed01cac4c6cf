"""Cumulative sums and products along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from toolkit.backends.cupy.cuda.body import kernel_text
from toolkit.backends.cupy.cuda.launch import Buffer, Launch, make_kernel
from toolkit.backends.cupy.cuda.prelude import COMPUTED, STORED
from toolkit.backends.cupy.cuda.reduction import Reducer, power_of_two
from toolkit.backends.cupy.cuda.scalars import SourceWriter, Value, split
from toolkit.backends.cupy.cuda.threads import Threads, offset_text
from toolkit.plans.operands import Operand

if TYPE_CHECKING:
    from toolkit.ir import Node

# Contiguous lines of at least this length get one block each.
SHORTEST = 64
# Elements that a thread of such a block scans sequentially.
ITEMS = 4


def generate_cumulative(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand], aligned: bool
) -> Sequence[Launch] | None:
    """Return the launch of a cumulative sum or product."""
    (x,), (y,), axis = inputs, outputs, node.attrs["axis"]
    if not y.spec.size:
        return []
    shape = y.spec.shape
    if shape[axis] >= SHORTEST and prod(shape[axis + 1 :]) == 1:
        return [_by_blocks(node, x, y)]
    k = Threads(node.op.name, (*shape[:axis], *shape[axis + 1 :]), x, y)
    k.source("x", x.spec.dtype, Buffer(0))
    k.target("y", y.spec.dtype, Buffer(1))
    reducer = Reducer(node.op.name[3:], x.spec.dtype, k)
    (total,) = reducer.declare()
    names = [*k.indices[:axis], "at", *k.indices[axis:]]
    with k.block(f"for (int n = 0; n < {shape[axis]}; ++n)"):
        k(f"const int at = {_order(node, shape[axis])};")
        element = k.let(x.spec.dtype, f"widen(x[{offset_text(x, names)}])")
        reducer.add([total], [element])
        k(
            f"y[{offset_text(y, names)}] = "
            f"Narrow<{STORED[y.spec.dtype]}>::of({total.text});"
        )
    return [k.launch()]


def _order(node: Node, count: int) -> str:
    return f"{count - 1} - n" if node.attrs["reverse"] else "n"


def _by_blocks(node: Node, x: Operand, y: Operand) -> Launch:
    """Return the launch with one block per line: a thread scan, then a block scan."""
    w, axis, shape = SourceWriter(), node.attrs["axis"], y.spec.shape
    count, dtype = shape[axis], x.spec.dtype
    threads = max(32, min(256, power_of_two(count) // ITEMS))
    reducer = Reducer(node.op.name[3:], dtype, w)
    ctype, first = COMPUTED[dtype], reducer.identity[0].text
    w("const int thread = threadIdx.x;")
    names = split(w, "(i64)blockIdx.x", shape[:axis], "i", "i64")
    names += ["at", *["0"] * (len(shape) - axis - 1)]
    w(f"__shared__ {ctype} before[2][{threads}];")
    w(f"{ctype} carry = {first};")
    with w.block(f"for (i64 start = 0; start < {count}; start += {threads * ITEMS})"):
        w(f"const i64 own = start + thread * {ITEMS};")
        w(f"{ctype} held[{ITEMS}], total = {first};")
        with w.block("#pragma unroll", f"for (int k = 0; k < {ITEMS}; ++k)"):
            w("const i64 n = own + k;")
            w(f"const i64 at = {_order(node, count)};")
            text = f"n < {count} ? widen(x[{offset_text(x, names)}]) : {first}"
            reducer.add([Value("total", dtype)], [w.let(dtype, text)])
            w("held[k] = total;")
        w("int side = 0;", "before[0][thread] = total;", "__syncthreads();")
        with w.block(f"for (int d = 1; d < {threads}; d *= 2, side = 1 - side)"):
            thread_total = Value("before[side][thread]", dtype)
            other = Value(f"thread < d ? {first} : before[side][thread - d]", dtype)
            merged = reducer.merge([w.let(dtype, other.text)], [thread_total])[0]
            w(f"before[1 - side][thread] = {merged.text};", "__syncthreads();")
        text = f"thread ? before[side][thread - 1] : {first}"
        prefix = reducer.merge([Value("carry", dtype)], [w.let(dtype, text)])[0]
        with w.block("#pragma unroll", f"for (int k = 0; k < {ITEMS}; ++k)"):
            w("const i64 n = own + k;")
            w(f"const i64 at = {_order(node, count)};")
            scanned = reducer.merge([prefix], [Value("held[k]", dtype)])[0]
            text = f"Narrow<{STORED[y.spec.dtype]}>::of({scanned.text})"
            w(f"if (n < {count}) y[{offset_text(y, names)}] = {text};")
        last = Value(f"before[side][{threads - 1}]", dtype)
        reducer.add([Value("carry", dtype)], [last])
        w("__syncthreads();")
    source, target = f"const {STORED[dtype]}*", f"{STORED[y.spec.dtype]}*"
    parameters = [(source, "x", Buffer(0)), (target, "y", Buffer(1))]
    text = kernel_text(parameters, threads, w.text)
    kernel = make_kernel(node.op.name, text, [source, target])
    grid = (y.spec.size // count, 1, 1)
    return Launch(kernel, grid, (threads, 1, 1), (Buffer(0), Buffer(1)))
