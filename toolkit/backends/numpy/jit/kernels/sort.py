"""Sorting: the stable order of rows, and binary search in a sorted sequence.

NaN sorts after all numbers. The order is stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Mask, Number, Value
from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.elementwise import DTYPES
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.radix_sort import (
    RadixPlan,
    emit_radix_sort,
    has_ordered_key,
    ordered_key,
)
from toolkit.backends.numpy.jit.kernels.sort_rows import (
    adjacent_rows,
    can_sort_rows,
    emit_sort_rows,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.plans.operands import Operand, align_up

if TYPE_CHECKING:
    from toolkit.ir import Node, Spec

# The largest row that is sorted by rank: every pair of keys is compared.
_MAX_RANKED_ROW = 128
# Values of one task. Each value needs a search of the whole sequence.
_VALUES_PER_TASK = 8192


def _precedes(s: LLVMScalars, a: Value, b: Value) -> Value:
    """Return whether a sorts before b: it is less, or only b is NaN."""
    is_less: Value = s.less(a, b)
    if not dtypes.is_float(a.dtype):
        return is_less
    last: Value = s.logical_and(s.isnan(b), s.logical_not(s.isnan(a)))
    precedes: Value = s.logical_or(is_less, last)
    return precedes


def emit_searchsorted(dtype: str, side: str) -> Kernel:
    """Emit out[i] = the number of edges that precede x[i], or do not follow it.

    The table holds edges, x, the result, the number of edges (at least one), and the
    number of halvings until one edge is left. All values take the same steps, so a
    vector of values searches at once.
    """
    b = Kernel(current().lanes)
    s = LLVMScalars(b)
    edges, x, out = (b.address(k) for k in range(3))
    extent, halvings = b.entry(3), b.entry(4)

    def count_passed(index: Value, value: Value) -> Value:
        """Return 1 where the result is after an edge."""
        edge = b.gather_at(edges, index, _llvm_type(dtype), dtype, None)
        if side == "left":
            is_after = _precedes(s, edge, value)
        else:
            is_after = s.logical_not(_precedes(s, value, edge))
        return b.convert("zext", is_after, "int32")

    for index, mask in b.run(b.low, b.high):
        value = b.load(x, index, dtype, mask)
        first: list[Value] = [b.filled(0, "int32"), extent]
        with b.accumulate(0, halvings, 1, first) as iteration:
            start, remaining = iteration.values[0], iteration.index_of(1)
            half = remaining // 2
            step = b.int32(b.int64(half))
            one = b.filled(1, "int32")
            probe = b.binary("sub", b.binary("add", start, step), one)
            advance = b.binary("mul", count_passed(probe, value), step)
            iteration.next([b.binary("add", start, advance), remaining - half])
        start = iteration.values[0]
        b.store(b.binary("add", start, count_passed(start, value)), out, index, mask)
    return b


def _llvm_type(dtype: str) -> str:
    return Value("", dtype).type


class _RankSort(Kernel):
    """Emits out[row, :, c] = the stable order of x[row, :, c] for short rows.

    A row of the call is a pair (row, c). Each key is compared with a vector of keys at
    a time. The table holds x, the result, and the work memory, with the keys of a row
    for each task. The numbers are the extent, the columns, and the bytes of a task's
    memory.
    """

    def __init__(self, dtype: str) -> None:
        super().__init__(current().lanes)
        self.dtype, self.kind = dtype, f"int{8 * dtypes.itemsize(dtype)}"
        self.x, self.out = self.address(0, self.kind), self.address(1, "int32")
        self.extent, self.columns, task = map(self.entry, range(3, 6))
        self.keys = self.address(2) + self.slot * task

    def write(self) -> None:
        """Emit the loop over rows."""
        with self.loop(self.low, self.high) as row:
            outer, column = self.split(row, self.columns)
            first = outer * self.extent * self.columns + column
            with self.loop(0, self.extent) as i:
                bits = self.scalar(self.x + (first + i * self.columns), self.kind)
                key = ordered_key(self, bits, self.dtype)
                self.put_scalar(key, self.at(self.keys, i, self.kind))
            self.sort(first)

    def sort(self, first: Number) -> None:
        """Write each index at the rank of its key."""
        zero: Value = self.index("add i64 0, 0")
        full = self.whole_vectors(0, self.extent, self.lanes)
        with self.loop(0, self.extent) as i:
            key = self.splat(self.scalar(self.at(self.keys, i, self.kind), self.kind))
            rank = [zero]
            for low, high in ((0, full), (full, self.extent)):
                with self.accumulate(low, high, self.lanes, rank) as iteration:
                    at = iteration.index
                    mask = self.first_lanes(high - at) if low is full else None
                    preceding = self.count_before(at, mask, key, i)
                    iteration.next([iteration.index_of(0) + preceding])
                rank = iteration.values
            position = iteration.index_of(0) * self.columns + first
            self.put_scalar(self.convert("trunc", i, "int32"), self.out + position)

    def count_before(self, at: Index, mask: Mask, key: Value, i: Index) -> Index:
        """Count the keys of a vector that sort before the i-th key."""
        candidates = self.load(self.keys, at, self.kind, mask)
        is_less = self.binary("icmp ult", candidates, key, "bool")
        is_equal = self.binary("icmp eq", candidates, key, "bool")
        is_earlier = self.first_lanes(i - at)
        is_before = self.binary("or", is_less, self.binary("and", is_equal, is_earlier))
        if mask is not None:
            is_before = self.binary("and", is_before, mask)
        bits = f"i{self.lanes}"
        self.declarations.add(f"declare {bits} @llvm.ctpop.{bits}({bits})")
        packed = self.index(f"bitcast {is_before.type} {is_before} to {bits}")
        count = self.index(f"call {bits} @llvm.ctpop.{bits}({bits} {packed})")
        return self.index(f"zext {bits} {count} to i64")


def emit_rank_sort(dtype: str) -> Kernel:
    """Emit the stable order of short rows."""
    b = _RankSort(dtype)
    b.write()
    return b


# --- lowering -------------------------------------------------------------------------


def lower_searchsorted(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a binary search of values in a sorted sequence."""
    edges, x = inputs
    count, dtype = edges.spec.size, x.spec.dtype
    is_known = dtype in DTYPES and dtype != "bool"
    if not is_known or not count or not all(e.is_contiguous for e in inputs):
        return None
    by_rows: tuple[Reference, ...] = (("in", 1), ("out", 0))
    halvings = (count - 1).bit_length()
    call = Call(
        Code(emit_searchsorted, dtype, node.attrs["side"]),
        (("in", 0), *by_rows),
        (count, halvings),
        x.spec.size,
        _VALUES_PER_TASK,
        frozenset(by_rows),
        flops=x.spec.size * (halvings + 1),
        nbytes=x.spec.nbytes + outputs[0].spec.nbytes,
    )
    return Lowered((call,))


def lower_argsort(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower the stable order along an axis."""
    x, axis = inputs[0].spec, node.attrs["axis"]
    if not inputs[0].is_contiguous or x.dtype not in DTYPES or x.dtype == "bool":
        return None
    if not x.size:
        return Lowered()
    if x.shape[axis] > _MAX_RANKED_ROW:
        return _lower_radix_sort(x, axis, outputs[0], is_order=True)
    task = align_up(x.shape[axis] * dtypes.itemsize(x.dtype))
    return _lower_by_rows(Code(emit_rank_sort, x.dtype), x, axis, outputs[0], (task,))


def _lower_radix_sort(x: Spec, axis: int, out: Operand, is_order: bool) -> Lowered:
    """Lower the sort of long rows by digits."""
    plan, extent = RadixPlan.of_row(x, axis, is_order), x.shape[axis]
    numbers = plan.task_bytes(extent), *plan.field_bytes(extent)
    return _lower_by_rows(Code(emit_radix_sort, plan), x, axis, out, numbers)


def _lower_by_rows(
    code: Code, x: Spec, axis: int, out: Operand, numbers: tuple[int, ...]
) -> Lowered:
    """Return the call of a kernel that sorts one row after the other.

    Args:
        code: the kernel.
        x: the array.
        axis: the sorted axis.
        out: the result.
        numbers: the bytes of a task's memory, and further numbers of the kernel.
    """
    extent, columns = x.shape[axis], prod(x.shape[axis + 1 :])
    rows = x.size // extent
    grain = partition(rows)
    by_rows: tuple[Reference, ...] = (("in", 0), ("out", 0))
    call = Call(
        code,
        (*by_rows, ("work", 0)),
        (extent, columns, *numbers),
        rows,
        grain,
        frozenset(by_rows if columns == 1 else ()),
        flops=8 * x.size * dtypes.itemsize(x.dtype),
        nbytes=x.nbytes + out.spec.nbytes,
    )
    return Lowered((call,), numbers[0] * -(-rows // grain))


def can_sort(x: Spec, axis: int) -> bool:
    """Return whether a kernel sorts the elements without their order."""
    if not x.size or not has_ordered_key(x.dtype):
        return False
    return can_sort_rows(x, axis) or x.shape[axis] > _MAX_RANKED_ROW


def lower_sort(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a sort along an axis: of many rows at once, or of each long row."""
    x, axis = inputs[0].spec, node.attrs["axis"]
    if not inputs[0].is_contiguous or not can_sort(x, axis):
        return None
    if not can_sort_rows(x, axis):
        return _lower_radix_sort(x, axis, outputs[0], is_order=False)
    lanes, extent, columns = current().lanes, x.shape[axis], adjacent_rows(x, axis)
    task = align_up(extent * lanes * dtypes.itemsize(x.dtype))
    groups = -(-columns // lanes)
    rows = x.size // (extent * columns) * groups
    grain, rounds = partition(rows), (extent - 1).bit_length()
    half = 1 << rounds >> 1
    call = Call(
        Code(emit_sort_rows, x.dtype, axis == x.ndim - 1),
        (("in", 0), ("out", 0), ("work", 0)),
        (extent, columns, groups, task, half, rounds),
        rows,
        grain,
        flops=x.size * rounds * rounds // 2,
        nbytes=x.nbytes + outputs[0].spec.nbytes,
    )
    return Lowered((call,), task * -(-rows // grain))
