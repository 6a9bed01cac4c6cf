"""Reductions, and cumulative sums and products."""

from __future__ import annotations

import math
from typing import Any

from toolkit import dtypes
from toolkit.backends.array.common import (
    CHUNK,
    HALVES,
    WIDE,
    Array,
    Kernels,
    Scratch,
    boxes,
    is_half,
    reduce_rows,
    scratch_bytes,
)
from toolkit.backends.kernels import workspace
from toolkit.ir import Spec

# Rows up to this length are short.
_SHORT = 32
# Elements up to which one call of `argmax` is faster than calls on copied chunks.
_SMALL = 2048


def _accumulator_bytes(x: Spec, axis: tuple[int, ...], **attrs: object) -> int:
    """Return the bytes of an accumulator and chunk in float32, or of one wide row."""
    size = math.prod(n for i, n in enumerate(x.shape) if i not in axis)
    if x.dtype in HALVES:
        chunk = 4 * min(x.size, CHUNK)
        return scratch_bytes(4 * size, chunk, chunk)
    return scratch_bytes(WIDE * dtypes.itemsize(x.dtype))


def _argument_bytes(x: Spec, axis: int, **attrs: object) -> int:
    """Return the bytes of a contiguous chunk of rows, and of its int64 results."""
    rows, length = _rows_per_chunk(x.shape, axis)
    return scratch_bytes(rows * length * dtypes.itemsize(x.dtype), rows * 8)


def _cumulative_bytes(x: Spec, axis: int, **attrs: object) -> int:
    """Return the bytes of two float32 copies of a chunk of rows, for half precision."""
    rows, length = _rows_per_chunk(x.shape, axis)
    return scratch_bytes(*[rows * length * 4] * 2) if x.dtype in HALVES else 0


def _rows_per_chunk(shape: tuple[int, ...], axis: int) -> tuple[int, int]:
    """Return the number of rows along `axis` in a chunk, and their length."""
    length = shape[axis]
    rows = math.prod(n for i, n in enumerate(shape) if i != axis)
    return min(rows, max(1, CHUNK // max(length, 1))), length


def has_short_rows(x: Array | Spec, axis: object) -> bool:
    """Return whether columns reduce many short rows, which are slow in NumPy.

    Args:
        x: an array, or its spec.
        axis: the axes of an extreme value.
    """
    length: int = x.shape[-1] if axis == (x.ndim - 1,) else 0
    return 0 < length <= _SHORT and bool(x.size >= 8 * length * length)


class Reduce(Kernels):
    """Kernels that combine the elements along one or several axes."""

    @workspace(_accumulator_bytes)
    def sum(self, x: Array, **attrs: Any) -> Array:
        """Sum over `axis`, a tuple; half precision accumulates in float32."""
        return self._reduce(self.xp.add, x, **attrs)

    @workspace(_accumulator_bytes)
    def prod(self, x: Array, **attrs: Any) -> Array:
        """Multiply all elements along `axis`."""
        return self._reduce(self.xp.multiply, x, **attrs)

    def max(self, x: Array, *, axis: Any, keepdims: bool, out: Any = None) -> Array:
        """Return the maximum along `axis`; NaN if an element is NaN."""
        return self._extreme(self.xp.maximum, x, axis, keepdims, out)

    def min(self, x: Array, *, axis: Any, keepdims: bool, out: Any = None) -> Array:
        """Return the minimum along `axis`; NaN if an element is NaN."""
        return self._extreme(self.xp.minimum, x, axis, keepdims, out)

    def any(self, x: Array, *, axis: Any, keepdims: bool, out: Any = None) -> Array:
        """Return whether any element along `axis` is true."""
        return self.xp.logical_or.reduce(x, axis=axis, keepdims=keepdims, out=out)

    def all(self, x: Array, *, axis: Any, keepdims: bool, out: Any = None) -> Array:
        """Return whether all elements along `axis` are true."""
        return self.xp.logical_and.reduce(x, axis=axis, keepdims=keepdims, out=out)

    @workspace(_argument_bytes)
    def argmax(self, x: Array, **attrs: Any) -> Array:
        """Return the first position of the maximum as int32; NaN is the maximum."""
        return self._position(self.xp.argmax, x, **attrs)

    @workspace(_argument_bytes)
    def argmin(self, x: Array, **attrs: Any) -> Array:
        """Return the first position of the minimum as int32; NaN is the minimum."""
        return self._position(self.xp.argmin, x, **attrs)

    @workspace(_cumulative_bytes)
    def cumsum(self, x: Array, **attrs: Any) -> Array:
        """Compute the cumulative sum along `axis`, from the end if `reverse`."""
        return self._accumulate(self.xp.add, x, **attrs)

    @workspace(_cumulative_bytes)
    def cumprod(self, x: Array, **attrs: Any) -> Array:
        """Compute the cumulative product along `axis`."""
        return self._accumulate(self.xp.multiply, x, **attrs)

    def _extreme(
        self, ufunc: Any, x: Array, axis: tuple[int, ...], keepdims: bool, out: Any
    ) -> Array:
        """Reduce by columns if there are many short rows, which are slow in NumPy."""
        if not has_short_rows(x, axis):
            return ufunc.reduce(x, axis=axis, keepdims=keepdims, out=out)
        out = self._result(out, _reduced(x.shape, axis, keepdims), x.dtype)
        result = out[..., 0] if keepdims else out
        for box in boxes(result.shape, max(1, CHUNK // x.shape[-1])):
            chunk, target = x[box], result[box]
            self.xp.copyto(target, chunk[..., 0])
            for column in range(1, x.shape[-1]):
                ufunc(target, chunk[..., column], out=target)
        return out

    def _reduce(
        self,
        ufunc: Any,
        x: Array,
        *,
        axis: tuple[int, ...],
        keepdims: bool,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        if is_half(x.dtype):
            return self._reduce_half(ufunc, x, axis, keepdims, out, work)
        if (
            x.size >= WIDE
            and axis == tuple(range(len(axis)))
            and 0 < 2 * (width := math.prod(x.shape[len(axis) :])) <= WIDE
            and x.flags.c_contiguous
        ):
            out = self._result(out, _reduced(x.shape, axis, keepdims), x.dtype)
            wide = Scratch(self.xp, work).take(WIDE, x.dtype)
            reduce_rows(ufunc, x.reshape(-1, width), out.reshape(width), wide)
            return out
        return ufunc.reduce(x, axis=axis, dtype=x.dtype, keepdims=keepdims, out=out)

    def _reduce_half(
        self,
        ufunc: Any,
        x: Array,
        axis: tuple[int, ...],
        keepdims: bool,
        out: Any,
        work: Any,
    ) -> Array:
        """Reduce float32 copies of chunks into a float32 accumulator."""
        memory, kept_shape = Scratch(self.xp, work), _reduced(x.shape, axis, True)
        total = memory.take(kept_shape, "float32")
        buffer, partial = (memory.take(min(x.size, CHUNK), "float32") for _ in "xp")
        total.fill(ufunc.identity)
        for box in boxes(x.shape, CHUNK):
            chunk = buffer[: x[box].size].reshape(x[box].shape)
            self.xp.copyto(chunk, x[box])
            chunk_result = partial[: math.prod(_reduced(chunk.shape, axis, True))]
            chunk_result = chunk_result.reshape(_reduced(chunk.shape, axis, True))
            ufunc.reduce(chunk, axis=axis, keepdims=True, out=chunk_result)
            target = total if box is ... else total[_within(box, axis)]
            ufunc(target, chunk_result, out=target)
        out = self._result(out, _reduced(x.shape, axis, keepdims), x.dtype)
        return self._copy_to(out, total.reshape(out.shape))

    def _position(
        self,
        find: Any,
        x: Array,
        *,
        axis: int,
        keepdims: bool,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Apply `find` to contiguous chunks of rows, to avoid a copy of the array."""
        if out is None and x.size <= _SMALL:
            return find(x, axis=axis, keepdims=keepdims).astype("int32")
        out = self._result(out, _reduced(x.shape, (axis,), keepdims), "int32")
        x = self.xp.moveaxis(x, axis, -1)
        result = out.reshape(x.shape[:-1])
        rows, length = _rows_per_chunk(x.shape, x.ndim - 1)
        memory = Scratch(self.xp, work)
        buffer = memory.take(rows * length, x.dtype)
        index_buffer = memory.take(rows, "int64")
        for box in boxes(x.shape[:-1], max(1, rows)):
            chunk = x[box]
            if not chunk.flags.c_contiguous:
                copy = buffer[: chunk.size].reshape(chunk.shape)
                self.xp.copyto(copy, chunk)
                chunk = copy
            target = result[box]
            position = index_buffer[: target.size].reshape(target.shape)
            find(chunk, axis=-1, out=position)
            self._copy_to(target, position)
        return out

    def _accumulate(
        self,
        ufunc: Any,
        x: Array,
        *,
        axis: int,
        reverse: bool,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        if out is None and not reverse and x.size < WIDE and not is_half(x.dtype):
            return ufunc.accumulate(x, axis=axis, dtype=x.dtype)
        out = self._result(out, x.shape, x.dtype)
        source, target = (self.xp.moveaxis(a, axis, -1) for a in (x, out))
        if reverse:
            source, target = source[..., ::-1], target[..., ::-1]
        if not is_half(x.dtype):
            ufunc.accumulate(source, axis=-1, dtype=x.dtype, out=target)
            return out
        rows, length = _rows_per_chunk(x.shape, axis)
        memory = Scratch(self.xp, work)
        before, after = (memory.take(rows * length, "float32") for _ in "ba")
        for box in boxes(source.shape[:-1], max(1, rows)):
            chunk = source[box]
            copy, result = (
                b[: chunk.size].reshape(chunk.shape) for b in (before, after)
            )
            self.xp.copyto(copy, chunk)
            ufunc.accumulate(copy, axis=-1, out=result)
            self._copy_to(target[box], result)
        return out


def _reduced(
    shape: tuple[int, ...], axis: tuple[int, ...], keepdims: bool
) -> tuple[int, ...]:
    """Return the shape after a reduction."""
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axis)


def _within(box: Any, axis: tuple[int, ...]) -> Any:
    """Return the index of a box's reduction in the accumulator with kept axes."""
    return tuple(slice(None) if i in axis else s for i, s in enumerate(box))
