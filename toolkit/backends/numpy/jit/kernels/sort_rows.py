"""Sorting of many rows at once: each lane of a vector sorts one row.

The elements become signed integers with the same order. Batcher's odd-even merge sort
exchanges them in scratch memory; its exchanges do not depend on the elements (D. E.
Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M).
"""

from __future__ import annotations

from math import prod

from toolkit import dtypes
from toolkit.backends.numpy.jit.builder import Index, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.math.narrow import is_narrow
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.ir import Spec

_SORTED_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64"),
)
# The exchanges of one iteration of a loop.
_UNROLLED = 4


def can_sort_rows(x: Spec, axis: int) -> bool:
    """Return whether the lanes of a vector can sort rows along an axis at once.

    There must be a row for each lane, and the keys of a vector must fit in the cache.
    """
    if not x.size or (x.dtype not in _SORTED_DTYPES and not is_narrow(x.dtype)):
        return False
    extent, lanes = x.shape[axis], current().lanes
    key_bytes = extent * lanes * max(dtypes.itemsize(x.dtype), 4)
    return adjacent_rows(x, axis) >= lanes and key_bytes <= current().cache_bytes // 2


def adjacent_rows(x: Spec, axis: int) -> int:
    """Return the number of rows that are adjacent in memory."""
    if axis == x.ndim - 1:
        return x.size // x.shape[axis]
    return prod(x.shape[axis + 1 :])


def emit_sort_rows(dtype: str, is_last: bool) -> Kernel:
    """Emit out[..., :, c] = the sorted elements of x[..., :, c].

    A row of the call is a group of as many rows of x as a vector has lanes. The last
    group overlaps the group before it, if the lanes do not divide the number of rows.

    The table holds x, the result and the work memory. The numbers are the extent, the
    rows that are adjacent in memory, the groups of such rows, the bytes of a task's
    memory, the largest power of two below the extent, and its number of halvings.

    Args:
        dtype: the dtype of x.
        is_last: whether the sorted axis is the last one.
    """
    b = _RowSort(dtype)
    with b.loop(b.low, b.high) as number:
        outer, group = b.split(number, b.groups)
        column = b.min(group * b.lanes, b.columns - b.lanes)
        if is_last:
            b.load_rows(b.x + column * b.extent)
            b.sort()
            b.store_rows(b.out + column * b.extent)
        else:
            first = outer * b.extent * b.columns + column
            b.load_columns(b.x + first)
            b.sort()
            b.store_columns(b.out + first)
    return b


class _RowSort(Kernel):
    """Emits the parts of the sort of a group of rows."""

    def __init__(self, dtype: str) -> None:
        super().__init__(current().lanes)
        self.s = LLVMScalars(self)
        self.dtype = dtype
        self.bits = 8 * dtypes.itemsize(dtype)
        self.kind = f"int{self.bits}"
        self.x, self.out = self.address(0, dtype), self.address(1, dtype)
        self.extent, self.columns, self.groups, task, self.half, self.rounds = (
            self.entry(3 + k) for k in range(6)
        )
        work = self.address(2) + self.slot * task
        self.keys = Pointer(self, work.text, f"i{self.bits}")

    # --- keys -------------------------------------------------------------------------

    def to_key(self, x: Value) -> Value:
        """Return a signed integer with the order of x; the largest one for NaN."""
        if self.dtype.startswith("u"):
            signed = Value(x.text, self.kind, x.lanes)
            return self.binary("xor", signed, self._sign_bit(signed))
        if not dtypes.is_float(x.dtype):
            return x
        key = self._flip_negative(self.convert("bitcast", x, self.kind))
        largest = self.constant((1 << (self.bits - 1)) - 1, key)
        return self.select(self.s.isnan(x), largest, key)

    def from_key(self, key: Value) -> Value:
        """Return the element of a key."""
        if self.dtype.startswith("u"):
            flipped = self.binary("xor", key, self._sign_bit(key))
            return Value(flipped.text, self.dtype, key.lanes)
        if not dtypes.is_float(self.dtype):
            return key
        return self.convert("bitcast", self._flip_negative(key), self.dtype)

    def _sign_bit(self, like: Value) -> Value:
        return self.constant(-(1 << (self.bits - 1)), like)

    def _flip_negative(self, bits: Value) -> Value:
        """Flip all bits except the sign of a negative number."""
        sign = self.binary("ashr", bits, self.constant(self.bits - 1, bits))
        others = self.constant((1 << (self.bits - 1)) - 1, bits)
        return self.binary("xor", bits, self.binary("and", sign, others))

    # --- memory -----------------------------------------------------------------------

    def load_columns(self, x: Pointer) -> None:
        """Load the keys of rows that are adjacent columns in memory."""
        with self.loop(0, self.extent) as i:
            element = self.load(x, i * self.columns, self.dtype, None)
            self._put(self.to_key(element), i)

    def store_columns(self, out: Pointer) -> None:
        """Store rows that are adjacent columns in memory."""
        with self.loop(0, self.extent) as i:
            element = self.from_key(self._get(i))
            self.store(element, out, i * self.columns, None)

    def load_rows(self, x: Pointer) -> None:
        """Load the keys of contiguous rows, by transposed blocks."""
        lanes = range(self.lanes)
        full = self.whole_vectors(0, self.extent, self.lanes)
        with self.loop(0, full, self.lanes) as i:
            rows = [self.load(x, self.extent * k + i, self.dtype, None) for k in lanes]
            for k, keys in enumerate(self.transposed([*map(self.to_key, rows)])):
                self._put(keys, i + k)
        with self.loop(full, self.extent) as i, self.loop(0, self.lanes) as lane:
            element = self.scalar(x + (lane * self.extent + i), self.dtype)
            self.put_scalar(self.to_key(element), self.keys + (i * self.lanes + lane))

    def store_rows(self, out: Pointer) -> None:
        """Store contiguous rows."""
        full = self.whole_vectors(0, self.extent, self.lanes)
        with self.loop(0, full, self.lanes) as i:
            columns = [self._get(i + k) for k in range(self.lanes)]
            for k, row in enumerate(self.transposed(columns)):
                self.store(self.from_key(row), out, self.extent * k + i, None)
        with self.loop(full, self.extent) as i, self.loop(0, self.lanes) as lane:
            key = self.scalar(self.keys + (i * self.lanes + lane), self.kind)
            self.put_scalar(self.from_key(key), out + (lane * self.extent + i))

    def _get(self, i: Number) -> Value:
        return self.load(self.keys, i * self.lanes, self.kind, None)

    def _put(self, keys: Value, i: Number) -> None:
        self.store(keys, self.keys, i * self.lanes, None)

    # --- the network ------------------------------------------------------------------

    def sort(self) -> None:
        """Sort the keys of each lane."""
        with self.accumulate(0, self.rounds, 1, [self.half]) as merges:
            p = merges.index_of(0)
            self._exchange_at(p, 0, p)
            with self.accumulate(0, self.rounds, 1, [self.half]) as steps:
                q = steps.index_of(0)
                with self.when(q > p):
                    self._exchange_at(p, p, q - p)
                steps.next([q // 2])
            merges.next([p // 2])

    def _exchange_at(self, p: Index, remainder: Number, distance: Index) -> None:
        """Order the keys at i and i + distance, for each i with (i & p) == remainder.

        The indices i are runs of p: remainder, ..., remainder + p - 1, then 2 p later.
        """
        end = self.extent - distance
        runs = self.ceil_div(end - remainder, p + p)
        with self.when(self.compare("eq", p, 1)), self.loop(0, runs) as run:
            self._exchange(run + run + remainder, distance, 1)
        with self.when(p > 1), self.loop(0, runs) as run:
            first = run * (p + p) + remainder
            stop = self.min(first + p, end)
            full = self.whole_vectors(first, stop, _UNROLLED)
            with self.loop(first, full, _UNROLLED) as i:
                self._exchange(i, distance, _UNROLLED)
            with self.loop(full, stop) as i:
                self._exchange(i, distance, 1)

    def _exchange(self, i: Index, distance: Index, count: int) -> None:
        """Order `count` keys from i on, and the keys at a distance from them."""
        positions = [i + k for k in range(count)]
        pairs = [(self._get(k), self._get(k + distance)) for k in positions]
        for k, pair in zip(positions, pairs, strict=True):
            self._put(self.intrinsic("smin", *pair), k)
            self._put(self.intrinsic("smax", *pair), k + distance)
