"""Sorting: the stable order of rows, and binary search in a sorted sequence.

NaN sorts after all numbers. The order is stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.calls import Call, Lowered, Reference, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.elementwise import DTYPES
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.sort_rows import (
    adjacent_rows,
    can_sort_rows,
    emit_sort_rows,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.plans.operands import Operand, align_up

if TYPE_CHECKING:
    from toolkit.ir import Node

# The largest row that is sorted by rank: every pair of keys is compared.
_MAX_RANKED_ROW = 128
# The bits of a radix digit, and the number of its values.
_DIGIT, _BUCKETS = 8, 256
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


class _Sort(Kernel):
    """Emits out[row, :, c] = the stable order of x[row, :, c].

    A row of the call is a pair (row, c). Elements become keys: unsigned integers with
    the same order. Short rows are sorted by rank: each key is compared with a vector of
    keys at a time. Long rows use a radix sort, the lowest digit first. A digit that all
    keys share is skipped.

    The table holds x, the result, and the work memory. The work memory of a task has
    two buffers of keys, two of indices, and the counts of digits. The numbers are the
    extent, the columns, the bytes of a task's memory, and the bytes of a buffer of
    indices.
    """

    def __init__(self, dtype: str) -> None:
        super().__init__(current().lanes)
        self.s = LLVMScalars(self)
        self.dtype = dtype
        self.bits = 8 * dtypes.itemsize(dtype)
        self.kind = f"int{self.bits}"
        self.x, self.out = self.address(0, dtype), self.address(1, "int32")
        self.extent, self.columns, self.task, self.half = map(self.entry, range(3, 7))
        self.buffers = self.address(2) + self.slot * self.task
        self.keys_bytes = self.half * max(1, dtypes.itemsize(dtype) // 4)
        counts = self.keys_bytes * 2 + self.half * 2
        self.counts = Pointer(self, (self.buffers + counts).text, "i32")

    def write(self, is_short: bool) -> None:
        """Emit the loop over rows."""
        with self.loop(self.low, self.high) as row:
            outer, column = self.split(row, self.columns)
            first = outer * self.extent * self.columns + column
            keys, indices = self.buffer_pair(0)
            with self.loop(0, self.extent) as i:
                x = self.scalar(self.x + (first + i * self.columns), self.dtype)
                self.put_scalar(self.to_key(x), self.at(keys, i, self.kind))
                if not is_short:
                    self.put_scalar(self.to_int32(i), self.at(indices, i, "int32"))
            (self.sort_by_rank if is_short else self.sort_by_digits)(first)

    def sort_by_rank(self, first: Number) -> None:
        """Write each index at the rank of its key."""
        keys, _ = self.buffer_pair(0)
        zero: Value = self.index("add i64 0, 0")
        full = self.whole_vectors(0, self.extent, self.lanes)
        with self.loop(0, self.extent) as i:
            key = self.splat(self.scalar(self.at(keys, i, self.kind), self.kind))
            rank = [zero]
            for low, high in ((0, full), (full, self.extent)):
                with self.accumulate(low, high, self.lanes, rank) as iteration:
                    at = iteration.index
                    mask = self.first_lanes(high - at) if low is full else None
                    preceding = self.count_before(keys, at, mask, key, i)
                    iteration.next([iteration.index_of(0) + preceding])
                rank = iteration.values
            position = iteration.index_of(0) * self.columns + first
            self.put_scalar(self.to_int32(i), self.out + position)

    def count_before(
        self, keys: Pointer, at: Index, mask: Mask, key: Value, i: Index
    ) -> Index:
        """Count the keys of a vector that sort before the i-th key."""
        candidates = self.load(keys, at, self.kind, mask)
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

    def sort_by_digits(self, first: Number) -> None:
        """Sort by each digit, and write the indices."""
        zero: Value = self.index("add i64 0, 0")
        with self.accumulate(0, self.bits // _DIGIT, 1, [zero]) as iteration:
            shift = iteration.index * _DIGIT
            side = iteration.index_of(0)
            iteration.next([side ^ self.sort_by_digit(side, shift)])
        _, indices = self.buffer_pair(iteration.index_of(0))
        with self.loop(0, self.extent) as i:
            index = self.scalar(self.at(indices, i, "int32"), "int32")
            self.put_scalar(index, self.out + (first + i * self.columns))

    def buffer_pair(self, side: Number) -> tuple[Pointer, Pointer]:
        """Return the keys and indices of one of the two buffers."""
        offset = self.keys_bytes * 2 + side * self.half
        return self.buffers + side * self.keys_bytes, self.buffers + offset

    def to_key(self, x: Value) -> Value:
        """Return the bits of an unsigned integer with the same order as x."""
        if self.dtype.startswith("u"):
            return Value(x.text, self.kind)
        if not dtypes.is_float(x.dtype):
            return self.binary("xor", x, self.constant(-(1 << (self.bits - 1)), x))
        positive_zero = self.s.add(x, self.constant(0.0, x))  # -0.0 equals 0.0
        bits = self.convert("bitcast", positive_zero, self.kind)
        sign = self.binary("ashr", bits, self.constant(self.bits - 1, bits))
        top = self.constant(-(1 << (self.bits - 1)), bits)
        key = self.binary("xor", bits, self.binary("or", sign, top))
        return self.select(self.s.isnan(x), self.constant(-1, bits), key)

    def to_int32(self, number: Index) -> Value:
        """Return an index as 32 bits."""
        return self.convert("trunc", number, "int32")

    def locate_digit(
        self, keys: Pointer, i: Number, shift: Number
    ) -> tuple[Value, Pointer]:
        """Return a key, and the address of its digit's count."""
        key = self.scalar(self.at(keys, i, self.kind), self.kind)
        key_64 = key.text
        if self.bits < 64:
            key_64 = self.index(f"zext {key.type} {key} to i64").text
        shifted = self.index(f"lshr i64 {key_64}, {shift}")
        return key, self.counts + (shifted & (_BUCKETS - 1))

    def sort_by_digit(self, side: Index, shift: Number) -> Index:
        """Sort by a digit into the other buffers. Return 0 if all are equal, else 1."""
        keys, indices = self.buffer_pair(side)
        with self.loop(0, _BUCKETS) as bucket:
            self.put_scalar(Value("0", "int32"), self.counts + bucket)
        with self.loop(0, self.extent) as i:
            _, address = self.locate_digit(keys, i, shift)
            previous = self.scalar(address, "int32")
            self.put_scalar(self.binary("add", previous, Value("1", "int32")), address)
        _, address = self.locate_digit(keys, 0, shift)
        needs_move = self.compare("ne", self.integer_at(address, "int32"), self.extent)
        with self.when(needs_move):
            zero: Value = self.index("add i64 0, 0")
            with self.accumulate(0, _BUCKETS, 1, [zero]) as iteration:
                address, running_count = (
                    self.counts + iteration.index,
                    iteration.index_of(0),
                )
                count = self.integer_at(address, "int32")
                self.put_scalar(self.to_int32(running_count), address)
                iteration.next([running_count + count])
            self._move(keys, indices, self.buffer_pair(1 - side), shift)
        return self.index(f"zext i1 {needs_move} to i64")

    def _move(
        self,
        keys: Pointer,
        indices: Pointer,
        target: tuple[Pointer, Pointer],
        shift: Number,
    ) -> None:
        """Move each key to its bucket. Keys of the same digit keep their order."""
        with self.loop(0, self.extent) as i:
            key, count = self.locate_digit(keys, i, shift)
            at = self.integer_at(count, "int32")
            self.put_scalar(self.to_int32(at + 1), count)
            self.put_scalar(key, self.at(target[0], at, self.kind))
            index = self.scalar(self.at(indices, i, "int32"), "int32")
            self.put_scalar(index, self.at(target[1], at, "int32"))


def emit_argsort(dtype: str, is_short: bool) -> Kernel:
    """Emit a kernel that sorts rows, by rank if `is_short`, else by digits."""
    b = _Sort(dtype)
    b.write(is_short)
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
    extent, columns = x.shape[axis], prod(x.shape[axis + 1 :])
    rows, itemsize = x.size // extent, dtypes.itemsize(x.dtype)
    half = align_up(4 * extent)
    task = 2 * (max(1, itemsize // 4) + 1) * half + align_up(4 * _BUCKETS)
    grain = partition(rows)
    by_rows: tuple[Reference, ...] = (("in", 0), ("out", 0))
    call = Call(
        Code(emit_argsort, x.dtype, extent <= _MAX_RANKED_ROW),
        (*by_rows, ("work", 0)),
        (extent, columns, task, half),
        rows,
        grain,
        frozenset(by_rows if columns == 1 else ()),
        flops=8 * x.size * itemsize,
        nbytes=x.nbytes + outputs[0].spec.nbytes,
    )
    return Lowered((call,), task * -(-rows // grain))


def lower_sort(
    node: Node, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Lower a sort of many rows along an axis."""
    x, axis = inputs[0].spec, node.attrs["axis"]
    if not inputs[0].is_contiguous or not can_sort_rows(x, axis):
        return None
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
