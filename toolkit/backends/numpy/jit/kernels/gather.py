"""Gather of single elements by checked indices, vectorized where all are in range."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from toolkit.backends.numpy.jit.builder import (
    MEMORY_TYPES,
    Index,
    Number,
    Pointer,
    Value,
)
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars


@contextmanager
def valid_index(
    b: Kernel,
    indices: Pointer,
    position: Number,
    dtype: str,
    limit: Index,
    error: Pointer,
) -> Iterator[Index]:
    """Yield the wrapped index at a position. The body runs only if it is in range."""
    raw_index = b.integer_at(indices + position, dtype)
    negative, from_end = raw_index < 0, raw_index + limit
    wrapped = b.index(f"select i1 {negative}, i64 {from_end}, i64 {raw_index}")
    with b.when(b.compare("uge", wrapped, limit)):
        b.note_bad_index(error, raw_index, limit)
    with b.when(b.compare("ult", wrapped, limit)):
        yield wrapped


def emit_gather_elements(dtype: str, index_dtype: str, is_near: bool) -> Kernel:
    """Emit out[o, j] = x[o, indices[j]]. Rows are pairs (o, j)."""
    e = _ElementGather(dtype, index_dtype, is_near, True)
    b, count = e.b, e.count
    with b.loop(b.low // count, b.ceil_div(b.high, count)) as outer:
        start = outer * count
        low, high = b.max(b.low - start, 0), b.min(b.high - start, count)
        e.gather(e.x + outer * e.limit, e.indices, e.out + start, (low, high))
    return b


def emit_take_along_axis(
    dtype: str, index_dtype: str, is_near: bool, is_single: bool
) -> Kernel:
    """Emit out[row, j, i] = x[row, indices[row, j, i], i]."""
    e = _ElementGather(dtype, index_dtype, is_near, is_single)
    b = e.b
    with b.loop(b.low, b.high) as row:
        line = e.x + row * e.limit * e.run
        lines, length = (1, e.count) if is_single else (e.count, e.run)
        with b.loop(0, lines) as j:
            start = (row * lines + j) * length
            e.gather(line, e.indices + start, e.out + start, (0, length))
    return b


class _ElementGather:
    """Emits a gather of elements by indices.

    The table holds x, the indices, the result, the error block, the number of indices,
    the extent of x along the axis, and the number of elements after it.

    Args:
        dtype, index_dtype: of x, and of the indices.
        is_near: whether 32-bit lanes can hold the positions in a line of x.
        is_single: whether there is one element after the axis.
    """

    def __init__(
        self, dtype: str, index_dtype: str, is_near: bool, is_single: bool
    ) -> None:
        self.b = b = Kernel(current().lanes)
        self.dtype, self.index_dtype = dtype, index_dtype
        self.is_near = is_near
        self.x, self.out = b.address(0, dtype), b.address(2, dtype)
        self.indices, self.error = b.address(1, index_dtype), b.address(3)
        self.count, self.limit = b.entry(4), b.entry(5)
        self.run: Number = 1 if is_single else b.entry(6)

    def gather(
        self,
        x: Pointer,
        indices: Pointer,
        out: Pointer,
        positions: tuple[Number, Number],
    ) -> None:
        """Compute out[i] = x[indices[i]], or x[indices[i], i] for longer runs.

        Args:
            x, indices, out: the addresses of a line.
            positions: the range of i.
        """
        b, (low, high) = self.b, positions
        if not self.is_near:
            self._gather_scalars(x, indices, out, positions)
            return
        full = b.whole_vectors(low, high, b.lanes)
        with b.loop(low, full, b.lanes) as first:
            numbers, are_valid = self._numbers(indices, first)
            with b.when(are_valid):
                kind = MEMORY_TYPES[self.dtype]
                elements = b.gather_at(x, numbers, kind, self.dtype, None)
                b.store(elements, out, first, None)
            with b.when(b.opposite(are_valid)):
                self._gather_scalars(x, indices, out, (first, first + b.lanes))
        self._gather_scalars(x, indices, out, (full, high))

    def _numbers(self, indices: Pointer, first: Number) -> tuple[Value, Value]:
        """Return the positions for a vector of indices, and whether all are valid."""
        b, s = self.b, LLVMScalars(self.b)
        raw_indices = b.load(indices, first, self.index_dtype, None)
        limit = s.cast(b.splat(self.limit), self.index_dtype)
        zero = s.const(0, raw_indices)
        index = s.select(
            s.less(raw_indices, zero), s.add(raw_indices, limit), raw_indices
        )
        are_valid = s.logical_and(s.less_equal(zero, index), s.less(index, limit))
        numbers = s.cast(index, "int32")
        if self.run != 1:
            columns = s.add(b.int32(b.int64(first)), b.lane_numbers())
            run = b.int32(b.int64(self.run))
            numbers = s.add(s.multiply(numbers, run), columns)
        return numbers, b.across_lanes("and", are_valid)

    def _gather_scalars(
        self,
        x: Pointer,
        indices: Pointer,
        out: Pointer,
        positions: tuple[Number, Number],
    ) -> None:
        b, kind = self.b, self.index_dtype
        with (
            b.loop(*positions) as i,
            valid_index(b, indices, i, kind, self.limit, self.error) as index,
        ):
            number = index if self.run == 1 else index * self.run + i
            b.put_scalar(b.scalar(x + number, self.dtype), out + i)
