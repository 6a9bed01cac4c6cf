"""Cumulative sums and products along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Mask, Number, Value
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
# Vectors of columns per iteration.
_VECTORS = 4
_COMBINED = {"cumsum": ("sum", "add"), "cumprod": ("prod", "multiply")}


class _Scan(Kernel):
    """Emits out[row, n, c] = x[row, 0, c] combined up to x[row, n, c].

    The table holds x, the result, the extent of the axis, and the elements after it.

    Args:
        op: the name of the primitive.
        dtype: of the elements.
        reverse: whether to combine from the last element down.
    """

    def __init__(self, op: str, dtype: str, reverse: bool) -> None:
        super().__init__(max(1, current().lanes * 4 // dtypes.itemsize(dtype)))
        self.dtype, self.reverse = dtype, reverse
        self.x, self.out = self.address(0, dtype), self.address(1, dtype)
        self.length, self.columns = self.entry(2), self.entry(3)
        self.neutral, rule = _COMBINED[op]
        self.combine = getattr(LLVMScalars(self), rule)

    def initial(self) -> Value:
        """Return the neutral element in every lane."""
        return self.filled(identity(self.neutral, self.dtype), self.dtype)

    def position(self, index: Number, extent: Number) -> Number:
        """Return the position of an iteration along an axis."""
        return extent - 1 - index if self.reverse else index

    def write_columns(self) -> None:
        """Emit the loops for an axis with others after it: vectors along these."""
        with self.loop(self.low, self.high) as row:
            width = _VECTORS * self.lanes
            end = self.whole_vectors(0, self.columns, width)
            with self.loop(0, end, width) as column:
                starts = [column + k * self.lanes for k in range(_VECTORS)]
                self.scan_columns(row, [(start, None) for start in starts])
            for column, mask in self.run(end, self.columns):
                self.scan_columns(row, [(column, mask)])

    def scan_columns(self, row: Index, vectors: Sequence[tuple[Number, Mask]]) -> None:
        """Scan several vectors of columns: their chains hide the latency."""
        first = [self.initial()] * len(vectors)
        with self.accumulate(0, self.length, 1, first) as iteration:
            n = self.position(iteration.index, self.length)
            start = (row * self.length + n) * self.columns
            totals = []
            for total, (column, mask) in zip(iteration.values, vectors, strict=True):
                element = self.load(self.x, start + column, self.dtype, mask)
                totals.append(self.combine(total, element))
                self.store(totals[-1], self.out, start + column, mask)
            iteration.next(totals)

    def write_lines(self) -> None:
        """Emit the loops for the last axis: one row in each lane."""
        end = self.whole_vectors(self.low, self.high, self.lanes)
        with self.loop(self.low, end, self.lanes) as row:
            self.scan_lines(row)
        with self.of_lanes(1), self.loop(end, self.high) as row:
            self.scan_columns(row, [(0, None)])

    def scan_lines(self, row: Index) -> None:
        """Scan as many rows as lanes, in square blocks and then by column."""
        start, blocks = row * self.length, self.length // self.lanes
        rows = [start + self.length * k for k in range(self.lanes)]
        # The remainder comes last in the order of the scan.
        skipped = self.length - blocks * self.lanes if self.reverse else 0
        with self.accumulate(0, blocks, 1, [self.initial()]) as iteration:
            total = iteration.values[0]
            at = self.position(iteration.index, blocks) * self.lanes + skipped
            block = self.transposed(
                [self.load(self.x, line + at, self.dtype, None) for line in rows]
            )
            order = range(self.lanes)
            for k in reversed(order) if self.reverse else order:
                total = block[k] = self.combine(total, block[k])
            for line, values in zip(rows, self.transposed(block), strict=True):
                self.store(values, self.out, line + at, None)
            iteration.next([total])
        low, high = blocks * self.lanes, self.length
        with self.accumulate(low, high, 1, iteration.values) as iteration:
            n = self.position(iteration.index, self.length)
            stride = self.length * dtypes.itemsize(self.dtype)
            column = self.gather(self.x + (start + n), stride, 0, self.dtype, None)
            total = self.combine(iteration.values[0], column)
            for k, line in enumerate(rows):
                text = f"extractelement {total.type} {total}, i64 {k}"
                self.put_scalar(self.let(text, self.dtype), self.out + (line + n))
            iteration.next([total])


def emit_cumulative(op: str, dtype: str, reverse: bool, is_last: bool) -> Kernel:
    """Emit a cumulative reduction, along the last axis or another one."""
    b = _Scan(op, dtype, reverse)
    if is_last:
        b.write_lines()
    else:
        b.write_columns()
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
    is_last = columns == 1
    call = Call(
        Code(emit_cumulative, node.op.name, spec.dtype, node.attrs["reverse"], is_last),
        operands,
        (spec.shape[axis], columns),
        rows if spec.size else 0,
        partition(rows),
        frozenset(operands),
        flops=spec.size,
        nbytes=2 * spec.nbytes,
    )
    return Lowered((call,))
