"""Scatter: rows or elements combined with a destination at checked indices."""

from __future__ import annotations

from toolkit.backends.numpy.jit.builder import Index, Number, Pointer, Value
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.kernels.gather import valid_index
from toolkit.backends.numpy.jit.processor import current
from toolkit.backends.numpy.jit.scalars import LLVMScalars
from toolkit.plans.loops.plan import UPDATES

# The elements whose indices are loaded together. More would need more registers.
_GROUP = 4


def emit_scatter(dtype: str, index_dtype: str, mode: str) -> Kernel:
    """Emit out = x with updates[o, j] at indices[j]. Rows are runs of the destination.

    Each range of rows reads all indices and applies the indices in its range, in order,
    so that the result does not depend on the partition. If out is x, a Variable that is
    updated in place, nothing else is read or written.
    """
    b = Kernel(current().lanes)
    x, updates, out = (b.address(k, dtype) for k in (0, 2, 3))
    indices, error = b.address(1, index_dtype), b.address(4)
    count, limit, run, outers = (b.entry(k) for k in (5, 6, 7, 8))
    _copy_rows(b, x, out, run, dtype)
    first, last = b.low // limit, b.min(outers, b.ceil_div(b.high, limit))
    with b.loop(first, last) as outer, b.loop(0, count) as position:
        with valid_index(b, indices, position, index_dtype, limit, error) as index:
            row = outer * limit + index
            with b.when(b.binary("and", row >= b.low, row < b.high)):
                source = updates + (outer * count + position) * run
                _update_run(b, mode, dtype, source, out + row * run, run)
    return b


def emit_scatter_elements(
    dtype: str, index_dtype: str, mode: str, is_near: bool
) -> Kernel:
    """Emit out = x with updates[o, j] at [o, indices[j]]. Rows are elements of out."""
    e = _ElementScatter(dtype, index_dtype, mode, is_near)
    b, count, limit = e.b, e.count, e.limit
    _copy_rows(b, e.x, e.out, 1, dtype)
    first, last = b.low // limit, b.min(b.entry(8), b.ceil_div(b.high, limit))
    with b.loop(first, last) as outer:
        start = outer * limit
        low, high = b.max(b.low - start, 0), b.min(b.high - start, limit)
        e.update(e.out + start, e.indices, e.updates + outer * count, (low, high))
    return b


def emit_put_along_axis(
    dtype: str, index_dtype: str, mode: str, is_single: bool, is_near: bool
) -> Kernel:
    """Emit out = x with updates[row, j, i] at [row, indices[row, j, i], i]."""
    e = _ElementScatter(dtype, index_dtype, mode, is_near)
    b, count, limit = e.b, e.count, e.limit
    run: Number = 1 if is_single else b.entry(7)
    _copy_rows(b, e.x, e.out, limit * run, dtype)
    with b.loop(b.low, b.high) as row:
        out, start = e.out + row * limit * run, row * count * run
        indices, updates = e.indices + start, e.updates + start
        if is_single:
            e.update(out, indices, updates, (0, limit))
        else:
            e.update_runs(out, indices, updates, run)
    return b


class _ElementScatter:
    """Emits updates of single elements of a line at checked indices.

    The table holds x, the indices, the updates, the result, the error block, the number
    of indices, and the extent of x along the axis.

    Args:
        dtype, index_dtype: of x, and of the indices.
        mode: the combination of an element and its update.
        is_near: whether the dtype of the indices can hold the extent.
    """

    def __init__(self, dtype: str, index_dtype: str, mode: str, is_near: bool) -> None:
        self.b = b = Kernel(current().lanes)
        self.dtype, self.index_dtype, self.mode = dtype, index_dtype, mode
        self.is_near = is_near
        self.x, self.updates, self.out = (b.address(k, dtype) for k in (0, 2, 3))
        self.indices, self.error = b.address(1, index_dtype), b.address(4)
        self.count, self.limit = b.entry(5), b.entry(6)

    def update(
        self,
        out: Pointer,
        indices: Pointer,
        updates: Pointer,
        span: tuple[Number, Number],
    ) -> None:
        """Combine updates[j] with out[indices[j]], in the order of j.

        One comparison checks the indices of a vector. If all are in the span, the
        updates need no further check.

        Args:
            out, indices, updates: the addresses of a line.
            span: the range of the elements of `out` to update.
        """
        b = self.b
        full = b.whole_vectors(0, self.count, b.lanes) if self.is_near else 0
        with b.loop(0, full, b.lanes) as first:
            are_inside = self._are_inside(indices, first, span)
            with b.when(are_inside):
                for k in range(0, b.lanes, _GROUP):
                    self._update_group(out, indices, updates, first + k)
            with b.when(b.opposite(are_inside)):
                stop = first + b.lanes
                self._update_checked(out, indices, updates, span, (first, stop))
        self._update_checked(out, indices, updates, span, (full, self.count))

    def update_runs(
        self, out: Pointer, indices: Pointer, updates: Pointer, run: Number
    ) -> None:
        """Combine updates[j, i] with out[indices[j, i], i], in the order of j."""
        b, kind = self.b, self.index_dtype
        with b.loop(0, self.count) as j, b.loop(0, run) as i:
            position = j * run + i
            with valid_index(
                b, indices, position, kind, self.limit, self.error
            ) as index:
                self._update(updates + position, out + (index * run + i))

    def _update_group(
        self, out: Pointer, indices: Pointer, updates: Pointer, first: Index
    ) -> None:
        """Combine the elements of a group. All loads of indices precede the stores."""
        b, positions = self.b, [first + k for k in range(_GROUP)]
        numbers = [b.integer_at(indices + i, self.index_dtype) for i in positions]
        values = [b.scalar(updates + i, self.dtype) for i in positions]
        for number, value in zip(numbers, values, strict=True):
            _store(b, self.mode, value, out + number)

    def _are_inside(
        self, indices: Pointer, first: Number, span: tuple[Number, Number]
    ) -> Value:
        """Return whether a vector of indices is in a span, without a wrap."""
        b, s = self.b, LLVMScalars(self.b)
        index = b.load(indices, first, self.index_dtype, None)
        low, high = (
            s.cast(b.splat(b.int64(bound)), self.index_dtype) for bound in span
        )
        is_inside = s.logical_and(s.less_equal(low, index), s.less(index, high))
        return b.across_lanes("and", is_inside)

    def _update_checked(
        self,
        out: Pointer,
        indices: Pointer,
        updates: Pointer,
        span: tuple[Number, Number],
        positions: tuple[Number, Number],
    ) -> None:
        b, kind, (low, high) = self.b, self.index_dtype, span
        with (
            b.loop(*positions) as position,
            valid_index(b, indices, position, kind, self.limit, self.error) as index,
            b.when(b.binary("and", index >= low, index < high)),
        ):
            self._update(updates + position, out + index)

    def _update(self, source: Pointer, target: Pointer) -> None:
        _store(self.b, self.mode, self.b.scalar(source, self.dtype), target)


def _copy_rows(b: Kernel, x: Pointer, out: Pointer, run: Number, dtype: str) -> None:
    """Copy the rows of x to out, unless they are the same memory."""
    with b.when(b.let(f"icmp ne ptr {x}, {out}", "bool")):
        start, count = b.low * run, (b.high - b.low) * run
        b.copy(x + start, out + start, count, dtype)


def _update_run(
    b: Kernel, mode: str, dtype: str, source: Pointer, target: Pointer, run: Number
) -> None:
    """Combine a run of elements with its destination."""
    for i, mask in b.run(0, run):
        new = b.load(source, i, dtype, mask)
        if mode != "set":
            new = _combine(b, mode, b.load(target, i, dtype, mask), new)
        b.store(new, target, i, mask)


def _store(b: Kernel, mode: str, new: Value, target: Pointer) -> None:
    """Combine a value with one element of memory."""
    if mode != "set":
        new = _combine(b, mode, b.scalar(target, new.dtype), new)
    b.put_scalar(new, target)


def _combine(b: Kernel, mode: str, old: Value, new: Value) -> Value:
    value: Value = getattr(LLVMScalars(b), UPDATES[mode])(old, new)
    return value
