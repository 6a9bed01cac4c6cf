"""Scratch memory and cache-sized chunks that all kernel families share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from toolkit.backends.kernels import Kernel
from toolkit.plans.operands import align_up

Array = Any
Box = Any  # an index expression: a tuple of slices, or Ellipsis for all

# Elements per chunk of a kernel with several steps. A few such chunks fit into any L2
# cache, and they amortize the overhead of the calls.
CHUNK = 16384
# The row length to which `reduce_rows` joins short rows.
WIDE = 2048
HALVES = ("float16", "bfloat16")


class Kernels:
    """Family of kernels on the array module `xp`: the public methods of a subclass.

    Args:
        xp: the array module.
        gemm: the replacement of `xp.matmul`, called as `gemm(a, b, out=)`.
    """

    def __init__(self, xp: Any, gemm: Kernel | None = None) -> None:
        self.xp = xp
        self.gemm: Kernel = gemm or xp.matmul

    def table(self) -> dict[str, Kernel]:
        """Return the kernels by the name of their primitive."""
        public = (name for name in vars(type(self)) if not name.startswith("_"))
        return {name: getattr(self, name) for name in public if name != "table"}

    def _result(self, out: Array | None, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return `out`, or a new array if it is None."""
        return self.xp.empty(shape, dtype) if out is None else out

    def _copy_to(self, out: Array, x: Array) -> Array:
        """Copy, broadcast and cast `x` into `out`."""
        self.xp.copyto(out, x, casting="unsafe")
        return out


class Scratch:
    """Allocator of 64-byte aligned pieces of a kernel's `work`, or of new memory."""

    __slots__ = ("offset", "work", "xp")

    def __init__(self, xp: Any, work: Array | None) -> None:
        self.xp: Any = xp
        self.work: Any | None = work
        self.offset: int = 0

    def take(self, shape: tuple[int, ...] | int, dtype: Any) -> Array:
        """Allocate an uninitialized array."""
        if self.work is None:
            return self.xp.empty(shape, dtype)
        dtype = self.xp.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else shape
        start, nbytes = self.offset, math.prod(shape) * dtype.itemsize
        self.offset += align_up(nbytes)
        return self.work[start : start + nbytes].view(dtype).reshape(shape)


def scratch_bytes(*sizes: int) -> int:
    """Return the total bytes of `Scratch` pieces with these sizes."""
    return sum(map(align_up, sizes))


def is_half(dtype: Any) -> bool:
    """Return whether a NumPy dtype is float16 or bfloat16, which compute in float32."""
    return dtype.itemsize == 2 and dtype.kind in "fV"


def boxes(shape: Sequence[int], limit: int) -> Iterator[Box]:
    """Split an index space, in row-major order, into boxes of at most `limit` elements.

    Each box is contiguous in a C-contiguous array of that shape.
    """
    size = math.prod(shape)
    if size <= limit:
        if size:
            yield ...
        return
    inner, axis = 1, len(shape) - 1
    while inner * shape[axis] <= limit:
        inner *= shape[axis]
        axis -= 1
    extent = shape[axis]
    num_boxes = -(-extent // max(1, limit // inner))
    step = -(-extent // num_boxes)
    for outer in product(*(range(n) for n in shape[:axis])):
        head = tuple(slice(i, i + 1) for i in outer)
        for start in range(0, extent, step):
            yield (*head, slice(start, min(start + step, extent)))


def piece(array: Array, shape: tuple[int, ...], box: Box) -> Array:
    """Return the part of `array`, broadcast to `shape`, inside `box` of `shape`."""
    if box is ... or array.ndim == 0:
        return array
    if array.shape == shape:
        return array[box]
    lead = len(shape) - array.ndim
    extents = zip(box[lead:], array.shape, strict=False)
    return array[tuple(slice(None) if n == 1 else s for s, n in extents)]


def fill_counter(xp: Any, out: Array, step: int = 1) -> Array:
    """Compute out[i] = i * step by doubling, because `arange` has no `out`."""
    out[:1] = 0
    filled, size = 1, out.size
    while filled < size:
        added = min(filled, size - filled)
        xp.add(out[:added], filled * step, out=out[filled : filled + added])
        filled += added
    return out


def reduce_rows(ufunc: Any, x: Array, out: Array, wide: Array) -> None:
    """Reduce the rows of a contiguous matrix to one.

    Short rows are joined to rows as long as `wide`, whose inner loop is fast.
    """
    rows, width = x.shape
    joined = max(1, wide.size // max(width, 1))
    joined_rows = rows - rows % joined
    if joined == 1 or not joined_rows:
        ufunc.reduce(x, axis=0, dtype=x.dtype, out=out)
        return
    wide = wide[: joined * width]
    matrix = x[:joined_rows].reshape(-1, joined * width)
    ufunc.reduce(matrix, axis=0, dtype=x.dtype, out=wide)
    ufunc.reduce(wide.reshape(joined, width), axis=0, dtype=x.dtype, out=out)
    if joined_rows < rows:
        remainder = wide[:width]
        ufunc.reduce(x[joined_rows:], axis=0, dtype=x.dtype, out=remainder)
        ufunc(out, remainder, out=out)
