"""Sorting.

NumPy's sorts are fast on 64-bit integers, and its `argsort` always allocates. So rows
are sorted as integers in place. The high bits are the value's bits, mapped to compare
like the value. The low bits are its position, which makes the sort stable.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.array.common import (
    CHUNK,
    HALVES,
    Array,
    Kernels,
    Scratch,
    boxes,
    fill_counter,
    is_half,
    scratch_bytes,
)
from toolkit.backends.kernels import workspace
from toolkit.ir import Spec

# `searchsorted` has no `out`, so it computes results in arrays of at most 1 KB.
_SEARCH_CHUNK = 128
# Up to this number of elements, one call of `argsort` is faster than several calls.
_SMALL = 2048


def _rows_per_chunk(shape: tuple[int, ...], axis: int) -> int:
    rows = math.prod(n for i, n in enumerate(shape) if i != axis)
    return min(rows, max(1, CHUNK // max(1, shape[axis])))


def _argsort_bytes(x: Spec, axis: int, **attrs: object) -> int:
    """Return the bytes of a contiguous chunk, NaN marks, and five int64 arrays."""
    size = _rows_per_chunk(x.shape, axis) * x.shape[axis]
    itemsize = 4 if x.dtype in HALVES else dtypes.itemsize(x.dtype)
    return scratch_bytes(size * itemsize, size, *[8 * size] * 5)


def _searchsorted_bytes(edges: Spec, x: Spec, **attrs: object) -> int:
    """Return the bytes of the edges and some values as float32, if narrower."""
    chunk_size = min(_SEARCH_CHUNK, math.prod(x.shape))
    is_narrow = edges.dtype in HALVES
    return scratch_bytes(4 * math.prod(edges.shape), 4 * chunk_size) if is_narrow else 0


class Sort(Kernels):
    """Kernels that order elements, NaN last."""

    @workspace(_argsort_bytes)
    def argsort(
        self, x: Array, *, axis: int, out: Any = None, work: Any = None
    ) -> Array:
        """Return the stable order of the elements along `axis`, as int32."""
        if out is None and x.size <= _SMALL and self.xp is np:
            numbers = x.astype("float32") if is_half(x.dtype) else x
            return np.argsort(numbers, axis=axis, kind="stable").astype("int32")
        out = self._result(out, x.shape, "int32")
        if not x.size:
            return out
        source, target = (self.xp.moveaxis(a, axis, -1) for a in (x, out))
        rows, length = _rows_per_chunk(x.shape, axis), x.shape[axis]
        memory, size = Scratch(self.xp, work), rows * length
        dtype = "float32" if is_half(x.dtype) else x.dtype
        values, mark = memory.take(size, dtype), memory.take(size, "bool")
        keys, *spare = (memory.take(size, "int64") for _ in range(4))
        positions = fill_counter(self.xp, memory.take(size, "int64"))
        for box in boxes(source.shape[:-1], rows):
            chunk = source[box]
            buffers = [b[: chunk.size] for b in (values, mark, keys, positions, *spare)]
            self._copy_to(buffers[0].reshape(chunk.shape), chunk)
            order = self._order(length, *buffers).reshape(chunk.shape)
            self._copy_to(target[box], order)
        return out

    def _order(
        self,
        length: int,
        values: Array,
        mark: Array,
        keys: Array,
        positions: Array,
        first: Array,
        second: Array,
        third: Array,
    ) -> Array:
        """Return the order of each row of `length` elements; all arrays are flat."""
        xp = self.xp
        self._to_integers(values, mark, keys, first)
        if values.itemsize == 8:
            # Sort by the low words first, then stably by the high words.
            xp.bitwise_and(keys, 0xFFFFFFFF, out=first)
            xp.subtract(first, 1 << 31, out=first)
            low = self._sort(first, positions, length)
            xp.right_shift(keys, 32, out=keys)
            xp.take(keys, low, out=second, mode="wrap")
            high = self._sort(second, positions, length)
            order = xp.take(low, high, out=third, mode="wrap")
        else:
            order = self._sort(keys, positions, length)
        rows = order.reshape(-1, length)
        xp.subtract(rows, positions[::length].reshape(-1, 1), out=rows)
        return order

    def _to_integers(self, values: Array, mark: Array, keys: Array, t: Array) -> None:
        """Compute keys, signed integers that compare like the values."""
        xp, kind, width = self.xp, values.dtype.kind, 8 * values.itemsize
        if kind != "f":
            xp.copyto(keys, values, casting="unsafe")
            if kind == "u" and width == 32:
                xp.subtract(keys, 1 << 31, out=keys)
            elif kind == "u" and width == 64:
                xp.bitwise_xor(keys, -1 << 63, out=keys)
            return
        xp.add(values, 0.0, out=values)  # -0.0 equals 0.0
        if xp.isnan(values, out=mark).any():
            xp.copyto(values, xp.nan, where=mark)
        xp.copyto(keys, values.view(f"int{width}"))
        # The bits of a float compare like the float, but in reverse for negative ones.
        xp.right_shift(keys, 63, out=t)
        xp.bitwise_and(t, (1 << (width - 1)) - 1, out=t)
        xp.bitwise_xor(keys, t, out=keys)

    def _sort(self, keys: Array, positions: Array, length: int) -> Array:
        """Sort 32-bit keys by row, in place, and return the source index of each."""
        self.xp.left_shift(keys, 32, out=keys)
        self.xp.bitwise_or(keys, positions, out=keys)
        keys.reshape(-1, length).sort(axis=-1)
        return self.xp.bitwise_and(keys, 0xFFFFFFFF, out=keys)

    @workspace(_searchsorted_bytes)
    def searchsorted(
        self,
        sorted_values: Array,
        values: Array,
        *,
        side: str,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return the insertion points of `values` in a sorted 1-D array, as int32."""
        out = self._result(out, values.shape, "int32")
        edges, flat, result = sorted_values, values.reshape(-1), out.reshape(-1)
        wide = None
        if is_half(edges.dtype):  # NumPy does not sort NaN last for bfloat16
            memory = Scratch(self.xp, work)
            edges = self._copy_to(memory.take(edges.size, "float32"), edges)
            wide = memory.take(min(_SEARCH_CHUNK, flat.size), "float32")
        for start in range(0, flat.size, _SEARCH_CHUNK):
            some = flat[start : start + _SEARCH_CHUNK]
            if wide is not None:
                some = self._copy_to(wide[: some.size], some)
            positions = self.xp.searchsorted(edges, some, side=side)
            result[start : start + _SEARCH_CHUNK] = positions
        return out
