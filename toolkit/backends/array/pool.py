"""Channels-last pooling over N spatial axes, and the adjoints."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.array.common import HALVES, Array, Kernels, Scratch, scratch_bytes
from toolkit.backends.array.windows import WindowBox, Windows, max_elements
from toolkit.backends.kernels import workspace
from toolkit.definitions.records import record
from toolkit.ir import Spec

Shape = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]

# Elements of a chunk of outputs.
_CHUNK = 1 << 15


@record
class _Pooling:
    """Partition of a batch into chunks of windows.

    dtype: the dtype of the arrays. sums: the accumulator dtype, float32 for half
    precision.
    """

    windows: Windows
    batch: int
    channels: int
    dtype: str
    sums: str

    @staticmethod
    def of(
        x: Any, spatial: Shape, window: Shape, strides: Shape, padding: Pads
    ) -> _Pooling:
        """Return the partition for batch, channels and dtype of `x`, array or spec."""
        windows = Windows(spatial, window, strides, padding, (1,) * len(window))
        dtype = x.dtype if isinstance(x, Spec) else dtypes.name_of(x.dtype)
        return _pooling(windows, x.shape[0], x.shape[-1], dtype)

    @cached_property
    def window_boxes(self) -> tuple[WindowBox, ...]:
        """Return all windows, part by part."""
        total = self.batch * math.prod(self.windows.out)
        pixels = min(total, max(1, _CHUNK // max(1, self.channels)))
        return self.windows.window_boxes(self.batch, pixels)

    @cached_property
    def chunk(self) -> int:
        """Return the maximum number of output elements in a part."""
        if not self.window_boxes:
            return 0
        first = self.window_boxes[0]
        return math.prod((first.field[0], *first.out, self.channels))

    def max_elements(self, dtype: str) -> int:
        """Return the elements that a part reads, if they must be copied to `dtype`."""
        if dtype == self.dtype and not self.windows.padded:
            return 0
        return max_elements(self.window_boxes, self.channels)

    @cached_property
    def rank(self) -> str:
        """Return an unsigned dtype that holds the window positions, counted from 1."""
        return "uint8" if self.windows.taps < 256 else "uint32"

    @cached_property
    def total_sizes(self) -> tuple[int, int]:
        """Return the elements of a part and of all images, if sums need a dtype."""
        if self.sums == self.dtype:
            return (0, 0)
        images = self.batch * math.prod(self.windows.spatial) * self.channels
        return (self.chunk, images)


@lru_cache(maxsize=256)
def _pooling(windows: Windows, batch: int, channels: int, dtype: str) -> _Pooling:
    sums = "float32" if dtype in HALVES else dtype
    return _Pooling(windows, batch, channels, dtype, sums)


def _max_pool_bytes(x: Spec, window: Shape, strides: Shape, padding: Pads) -> int:
    """Return the bytes of input pixels, two ranks per window, and an equality mask."""
    pool = _Pooling.of(x, x.shape[1:-1], window, strides, padding)
    elements = pool.max_elements(x.dtype) * dtypes.itemsize(x.dtype)
    ranks = pool.chunk * dtypes.itemsize(pool.rank)
    return scratch_bytes(elements, ranks, ranks, pool.chunk, pool.chunk)


def _gather_bytes(
    x: Spec, index: Spec, window: Shape, strides: Shape, padding: Pads
) -> int:
    """Return the bytes of input pixels, an equality mask, and selected bits."""
    pool = _Pooling.of(x, x.shape[1:-1], window, strides, padding)
    itemsize = dtypes.itemsize(x.dtype)
    return scratch_bytes(
        pool.max_elements(x.dtype) * itemsize, pool.chunk, pool.chunk * itemsize
    )


def _scatter_bytes(
    g: Spec, index: Spec, spatial: Shape, window: Shape, strides: Shape, padding: Pads
) -> int:
    """Return the bytes of an equality mask, selected bits, and float32 sums."""
    pool = _Pooling.of(g, spatial, window, strides, padding)
    itemsize = dtypes.itemsize(pool.sums)
    sizes = (pool.chunk, *pool.total_sizes)
    return scratch_bytes(pool.chunk, *(size * itemsize for size in sizes))


def _sum_bytes(x: Spec, window: Shape, strides: Shape, padding: Pads) -> int:
    """Return the bytes of input pixels, and of a float32 chunk for half precision."""
    pool = _Pooling.of(x, x.shape[1:-1], window, strides, padding)
    itemsize = dtypes.itemsize(pool.sums)
    return scratch_bytes(
        pool.max_elements(pool.sums) * itemsize, pool.total_sizes[0] * itemsize
    )


def _sum_grad_bytes(
    g: Spec, spatial: Shape, window: Shape, strides: Shape, padding: Pads
) -> int:
    """Return the bytes of a float32 chunk and of sums, for half precision."""
    pool = _Pooling.of(g, spatial, window, strides, padding)
    return scratch_bytes(*(4 * size for size in pool.total_sizes))


def least_of(dtype: str) -> float:
    """Return the number that is at most each number of a dtype."""
    if dtypes.is_float(dtype):
        return -math.inf
    return np.iinfo(dtype).min


class Pool(Kernels):
    """Maxima and sums over sliding windows."""

    @workspace(_max_pool_bytes)
    def max_pool(
        self,
        x: Array,
        *,
        window: Shape,
        strides: Shape,
        padding: Pads,
        out: Any = None,
        work: Any = None,
    ) -> tuple[Array, Array]:
        """Return each window's maximum, and its first position as int32."""
        pool = _Pooling.of(x, x.shape[1:-1], window, strides, padding)
        shape = (pool.batch, *pool.windows.out, pool.channels)
        y, index = out or (None, None)
        y = self._result(y, shape, x.dtype)
        index = self._result(index, shape, "int32")
        if not y.size:
            return y, index
        memory = Scratch(self.xp, work)
        size = pool.max_elements(pool.dtype)
        copy = memory.take(size, x.dtype) if size else None
        ranks = [memory.take(pool.chunk, pool.rank) for _ in range(2)]
        marks = [memory.take(pool.chunk, "bool") for _ in range(2)]
        for window_box in pool.window_boxes:
            box = window_box.box
            loaded = window_box.load(self.xp, x, least_of(pool.dtype), copy)
            views = [loaded[shift] for shift in window_box.shifts]
            buffers = (_shaped(b, y[box]) for b in (*ranks, *marks))
            self._find_maxima(views, y[box], index[box], *buffers)
        return y, index

    def _find_maxima(
        self,
        views: list[Array],
        y: Array,
        index: Array,
        best: Array,
        rank: Array,
        equal: Array,
        unordered: Array,
    ) -> None:
        """Compute the rank of the maximum of each window.

        The rank of a position falls from taps to 1, so the first maximum has the
        greatest rank. This needs no masked copies, which are slow.
        """
        xp, taps = self.xp, len(views)
        xp.copyto(y, views[0])
        for view in views[1:]:
            xp.maximum(y, view, out=y)
        has_nan = y.dtype.kind not in "biu" and xp.isnan(y, out=equal).any()
        best.fill(0)
        for position, view in enumerate(views):
            xp.equal(view, y, out=equal)
            if has_nan:
                # Where y is NaN, the argmax is the first NaN.
                xp.isnan(view, out=unordered)
                xp.logical_or(equal, unordered, out=equal)
            xp.copyto(rank, equal)
            xp.multiply(rank, taps - position, out=rank)
            xp.maximum(best, rank, out=best)
        xp.copyto(index, best)
        xp.subtract(taps, index, out=index)

    @workspace(_gather_bytes)
    def max_pool_gather(
        self,
        x: Array,
        index: Array,
        *,
        window: Shape,
        strides: Shape,
        padding: Pads,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return the elements of `x` at the argmax positions; 0 on padding."""
        xp = self.xp
        pool = _Pooling.of(x, x.shape[1:-1], window, strides, padding)
        out = self._result(out, index.shape, x.dtype)
        if not out.size:
            return out
        integer = f"int{8 * x.itemsize}"
        memory, size = Scratch(xp, work), pool.max_elements(pool.dtype)
        copy = memory.take(size, x.dtype) if size else None
        equal = memory.take(pool.chunk, "bool")
        bits = memory.take(pool.chunk, integer)
        for window_box in pool.window_boxes:
            loaded = window_box.load(xp, x, 0, copy).view(integer)
            target, winner = out[window_box.box].view(integer), index[window_box.box]
            masked, same = _shaped(bits, target), _shaped(equal, target)
            target.fill(0)
            for position, shift in enumerate(window_box.shifts):
                self._keep(loaded[shift], winner, position, same, masked)
                xp.bitwise_or(target, masked, out=target)
        return out

    @workspace(_scatter_bytes)
    def max_pool_scatter(
        self,
        g: Array,
        index: Array,
        *,
        spatial: Shape,
        window: Shape,
        strides: Shape,
        padding: Pads,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return images with each element of `g` added at the argmax of its window."""
        xp = self.xp
        pool = _Pooling.of(g, spatial, window, strides, padding)
        out = self._result(out, (pool.batch, *spatial, pool.channels), g.dtype)
        if not out.size:
            return out
        integer = f"int{8 * dtypes.itemsize(pool.sums)}"
        memory = Scratch(xp, work)
        equal = memory.take(pool.chunk, "bool")
        bits = memory.take(pool.chunk, integer)
        copy, total = self._totals(pool, out, memory)
        for window_box in pool.window_boxes:
            gradient = self._converted(g[window_box.box], copy).view(integer)
            masked, same = _shaped(bits, gradient), _shaped(equal, gradient)
            values = masked.view(pool.sums)
            for position, (pixels, covered) in enumerate(window_box.meetings):
                self._keep(gradient, index[window_box.box], position, same, masked)
                met = total[pixels]
                xp.add(met, values[covered], out=met)
        return out if total is out else self._copy_to(out, total)

    @workspace(_sum_bytes)
    def sum_pool(
        self,
        x: Array,
        *,
        window: Shape,
        strides: Shape,
        padding: Pads,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return the sum of each window; padding counts as 0."""
        xp = self.xp
        pool = _Pooling.of(x, x.shape[1:-1], window, strides, padding)
        shape = (pool.batch, *pool.windows.out, pool.channels)
        out = self._result(out, shape, x.dtype)
        if not out.size:
            return out
        memory, size = Scratch(xp, work), pool.max_elements(pool.sums)
        copy = memory.take(size, pool.sums) if size else None
        sums = memory.take(pool.total_sizes[0], pool.sums)
        for window_box in pool.window_boxes:
            loaded = window_box.load(xp, x, 0, copy)
            target = out[window_box.box]
            total = _shaped(sums, target) if sums.size else target
            total.fill(0)
            for shift in window_box.shifts:
                xp.add(total, loaded[shift], out=total)
            if total is not target:
                self._copy_to(target, total)
        return out

    @workspace(_sum_grad_bytes)
    def sum_pool_grad(
        self,
        g: Array,
        *,
        spatial: Shape,
        window: Shape,
        strides: Shape,
        padding: Pads,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return images with each element of `g` added to all pixels of its window."""
        pool = _Pooling.of(g, spatial, window, strides, padding)
        out = self._result(out, (pool.batch, *spatial, pool.channels), g.dtype)
        if not out.size:
            return out
        copy, total = self._totals(pool, out, Scratch(self.xp, work))
        for window_box in pool.window_boxes:
            gradient = self._converted(g[window_box.box], copy)
            for pixels, covered in window_box.meetings:
                met = total[pixels]
                self.xp.add(met, gradient[covered], out=met)
        return out if total is out else self._copy_to(out, total)

    def _keep(
        self, x: Array, index: Array, position: int, equal: Array, out: Array
    ) -> None:
        """Compute out = x where index == position, else 0, on integers (bits)."""
        self.xp.equal(index, position, out=equal)
        self.xp.copyto(out, equal)
        self.xp.negative(out, out=out)
        self.xp.bitwise_and(out, x, out=out)

    def _totals(
        self, pool: _Pooling, out: Array, memory: Scratch
    ) -> tuple[Array | None, Array]:
        """Return a flat float32 chunk and sums for half precision; else None, `out`."""
        chunk, images = pool.total_sizes
        if pool.sums == pool.dtype:
            out.fill(0)
            return None, out
        copy, total = memory.take(chunk, pool.sums), memory.take(images, pool.sums)
        total.fill(0)
        return copy, total.reshape(out.shape)

    def _converted(self, g: Array, copy: Array | None) -> Array:
        """Return `g`, converted into `copy` if that exists."""
        return g if copy is None else self._copy_to(_shaped(copy, g), g)


def _shaped(buffer: Array, like: Array) -> Array:
    """Return the start of a flat buffer in the shape of `like`."""
    return buffer[: like.size].reshape(like.shape)
