"""The order of elements: where each of a row belongs, and places in a sorted sequence.

NaN counts as behind all numbers, and equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from toolkit import dtypes
from toolkit.backends.base import aligned
from toolkit.backends.numpy.jit.builder import Index, Mask, Number, Pointer, Value
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.fused.elementwise import DTYPES
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.lowering import (
    Call,
    Lowered,
    Operand,
    Reference,
    partition,
)
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars

# Rows of up to so many elements are sorted by comparing each with all others.
_FEW = 128
# The bits of a digit, and how many there are.
_DIGIT, _BUCKETS = 8, 256
# Values of one task, each of which reads all along a sequence.
_GRAIN = 8192


def _precedes(s: LLVMScalars, a: Value, b: Value) -> Value:
    """Whether a comes before b: it is less, or b alone is NaN."""
    less: Value = s.less(a, b)
    if not dtypes.is_float(a.dtype):
        return less
    last: Value = s.logical_and(s.isnan(b), s.logical_not(s.isnan(a)))
    either: Value = s.logical_or(less, last)
    return either


def emit_searchsorted(dtype: str, side: str) -> Kernel:
    """out[i] = how many of the edges precede x[i], or do not follow it.

    The table: edges, x and the result, how many edges there are, at least one, and how
    often that can be halved until one is left. The steps are the same for all values,
    so a vector of them goes through the edges together.
    """
    b = Kernel(current().lanes)
    s = LLVMScalars(b)
    edges, x, out = (b.address(k) for k in range(3))
    extent, halvings = b.entry(3), b.entry(4)

    def passed(place: Value, value: Value) -> Value:
        """1 where the result lies behind an edge."""
        edge = b.gather_at(edges, place, _type(dtype), dtype, None)
        if side == "left":
            behind = _precedes(s, edge, value)
        else:
            behind = s.logical_not(_precedes(s, value, edge))
        return b.convert("zext", behind, "int32")

    for index, mask in b.run(b.low, b.high):
        value = b.load(x, index, dtype, mask)
        first: list[Value] = [b.filled(0, "int32"), extent]
        with b.accumulate(0, halvings, 1, first) as iteration:
            start, left = iteration.values[0], iteration.index_of(1)
            half = left // 2
            step = b.int32(b.int64(half))
            one = b.filled(1, "int32")
            probe = b.binary("sub", b.binary("add", start, step), one)
            moved = b.binary("mul", passed(probe, value), step)
            iteration.next([b.binary("add", start, moved), left - half])
        start = iteration.values[0]
        b.store(b.binary("add", start, passed(start, value)), out, index, mask)
    return b


def _type(dtype: str) -> str:
    return Value("", dtype).type


class _Sort(Kernel):
    """Writes out[row, :, c] = the stable order of x[row, :, c].

    A row of the call is a pair (row, c). Elements become keys, integers that compare
    like them. Few keys are compared with all others, a vector of them at a time. Many
    are put in the order of one digit after the other, the lowest first; a digit that
    all keys have in common takes no move.

    The table: x, the result, and for each task two buffers of keys and two of places,
    and the numbers of keys by digit; the extent, the columns, and the bytes of a task's
    buffers and of one of places.
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

    def write(self, few: bool) -> None:
        """The loop over rows."""
        with self.loop(self.low, self.high) as row:
            outer, column = self.split(row, self.columns)
            first = outer * self.extent * self.columns + column
            keys, places = self.side(0)
            with self.loop(0, self.extent) as i:
                x = self.scalar(self.x + (first + i * self.columns), self.dtype)
                self.put_scalar(self.key(x), self.at(keys, i, self.kind))
                if not few:
                    self.put_scalar(self.narrow(i), self.at(places, i, "int32"))
            (self.by_rank if few else self.by_digits)(first)

    def by_rank(self, first: Number) -> None:
        """Put the place of each key where those that come before it end."""
        keys, _ = self.side(0)
        zero: Value = self.index("add i64 0, 0")
        whole = self.whole_vectors(0, self.extent, self.lanes)
        with self.loop(0, self.extent) as i:
            key = self.splat(self.scalar(self.at(keys, i, self.kind), self.kind))
            rank = [zero]
            for low, high in ((0, whole), (whole, self.extent)):
                with self.accumulate(low, high, self.lanes, rank) as iteration:
                    at = iteration.index
                    mask = self.first_lanes(high - at) if low is whole else None
                    before = self.before(keys, at, mask, key, i)
                    iteration.next([iteration.index_of(0) + before])
                rank = iteration.values
            place = iteration.index_of(0) * self.columns + first
            self.put_scalar(self.narrow(i), self.out + place)

    def before(
        self, keys: Pointer, at: Index, mask: Mask, key: Value, i: Index
    ) -> Index:
        """How many keys of a vector come before the i-th."""
        others = self.load(keys, at, self.kind, mask)
        less = self.binary("icmp ult", others, key, "bool")
        same = self.binary("icmp eq", others, key, "bool")
        in_front = self.first_lanes(i - at)
        found = self.binary("or", less, self.binary("and", same, in_front))
        if mask is not None:
            found = self.binary("and", found, mask)
        bits = f"i{self.lanes}"
        self.declarations.add(f"declare {bits} @llvm.ctpop.{bits}({bits})")
        packed = self.index(f"bitcast {found.type} {found} to {bits}")
        count = self.index(f"call {bits} @llvm.ctpop.{bits}({bits} {packed})")
        return self.index(f"zext {bits} {count} to i64")

    def by_digits(self, first: Number) -> None:
        """Sort by each digit, and write the places."""
        zero: Value = self.index("add i64 0, 0")
        with self.accumulate(0, self.bits // _DIGIT, 1, [zero]) as iteration:
            shift = iteration.index * _DIGIT
            side = iteration.index_of(0)
            iteration.next([side ^ self.by_digit(side, shift)])
        _, places = self.side(iteration.index_of(0))
        with self.loop(0, self.extent) as i:
            place = self.scalar(self.at(places, i, "int32"), "int32")
            self.put_scalar(place, self.out + (first + i * self.columns))

    def side(self, side: Number) -> tuple[Pointer, Pointer]:
        """The keys and places of one of two buffers."""
        places = self.keys_bytes * 2 + side * self.half
        return self.buffers + side * self.keys_bytes, self.buffers + places

    def key(self, x: Value) -> Value:
        """The bits of an integer that compares, without a sign, like x."""
        if self.dtype.startswith("u"):
            return Value(x.text, self.kind)
        if not dtypes.is_float(x.dtype):
            return self.binary("xor", x, self.constant(-(1 << (self.bits - 1)), x))
        clean = self.s.add(x, self.constant(0.0, x))  # -0.0 equals 0.0
        raw = self.convert("bitcast", clean, self.kind)
        sign = self.binary("ashr", raw, self.constant(self.bits - 1, raw))
        top = self.constant(-(1 << (self.bits - 1)), raw)
        key = self.binary("xor", raw, self.binary("or", sign, top))
        return self.select(self.s.isnan(x), self.constant(-1, raw), key)

    def narrow(self, number: Index) -> Value:
        """An index as 32 bits."""
        return self.convert("trunc", number, "int32")

    def count(self, keys: Pointer, i: Number, shift: Number) -> tuple[Value, Pointer]:
        """A key, and where its digit is counted."""
        key = self.scalar(self.at(keys, i, self.kind), self.kind)
        wide = key.text
        if self.bits < 64:
            wide = self.index(f"zext {key.type} {key} to i64").text
        shifted = self.index(f"lshr i64 {wide}, {shift}")
        return key, self.counts + (shifted & (_BUCKETS - 1))

    def by_digit(self, side: Index, shift: Number) -> Index:
        """Sort by one digit into the other buffers; 0 if all have the same, else 1."""
        keys, places = self.side(side)
        with self.loop(0, _BUCKETS) as bucket:
            self.put_scalar(Value("0", "int32"), self.counts + bucket)
        with self.loop(0, self.extent) as i:
            _, place = self.count(keys, i, shift)
            seen = self.scalar(place, "int32")
            self.put_scalar(self.binary("add", seen, Value("1", "int32")), place)
        _, place = self.count(keys, 0, shift)
        moves = self.compare("ne", self.integer_at(place, "int32"), self.extent)
        with self.when(moves):
            none: Value = self.index("add i64 0, 0")
            with self.accumulate(0, _BUCKETS, 1, [none]) as iteration:
                place, before = self.counts + iteration.index, iteration.index_of(0)
                more = self.integer_at(place, "int32")
                self.put_scalar(self.narrow(before), place)
                iteration.next([before + more])
            self._move(keys, places, self.side(1 - side), shift)
        return self.index(f"zext i1 {moves} to i64")

    def _move(
        self, keys: Pointer, places: Pointer, to: tuple[Pointer, Pointer], shift: Number
    ) -> None:
        """Put each key behind those of lower digits, and the same ones in front."""
        with self.loop(0, self.extent) as i:
            key, count = self.count(keys, i, shift)
            at = self.integer_at(count, "int32")
            self.put_scalar(self.narrow(at + 1), count)
            self.put_scalar(key, self.at(to[0], at, self.kind))
            place = self.scalar(self.at(places, i, "int32"), "int32")
            self.put_scalar(place, self.at(to[1], at, "int32"))


def emit_argsort(dtype: str, few: bool) -> Kernel:
    """The function that sorts rows, of few elements or of many."""
    b = _Sort(dtype)
    b.write(few)
    return b


# --- lowering -------------------------------------------------------------------------


def lower_searchsorted(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Where values would go in a sorted sequence."""
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
        _GRAIN,
        frozenset(by_rows),
        flops=x.spec.size * (halvings + 1),
        nbytes=x.spec.nbytes + outputs[0].spec.nbytes,
    )
    return Lowered((call,))


def lower_argsort(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """The stable order along an axis."""
    x, axis = inputs[0].spec, node.attrs["axis"]
    if not inputs[0].is_contiguous or x.dtype not in DTYPES or x.dtype == "bool":
        return None
    if not x.size:
        return Lowered()
    extent, columns = x.shape[axis], prod(x.shape[axis + 1 :])
    rows, itemsize = x.size // extent, dtypes.itemsize(x.dtype)
    half = aligned(4 * extent)
    task = 2 * (max(1, itemsize // 4) + 1) * half + aligned(4 * _BUCKETS)
    grain = partition(rows)
    by_rows: tuple[Reference, ...] = (("in", 0), ("out", 0))
    call = Call(
        Code(emit_argsort, x.dtype, extent <= _FEW),
        (*by_rows, ("work", 0)),
        (extent, columns, task, half),
        rows,
        grain,
        frozenset(by_rows if columns == 1 else ()),
        flops=8 * x.size * itemsize,
        nbytes=x.nbytes + outputs[0].spec.nbytes,
    )
    return Lowered((call,), task * -(-rows // grain))
