"""Kernels that read or write elements at computed positions."""

from __future__ import annotations

import math
from typing import Any

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
from toolkit.errors import OutOfRangeError
from toolkit.ir import Spec
from toolkit.plans.loops.iteration_space import format_problem, index_problem

_COMBINE = {"add": "add", "max": "maximum", "min": "minimum", "mul": "multiply"}
# Modes that round each update; half precision combines in float32.
_ROUNDED = ("add", "mul")


def _gather_bytes(x: Spec, indices: Spec, **attrs: object) -> int:
    """Return the bytes of the indices as int64, the only index type of NumPy."""
    return scratch_bytes(8 * indices.size)


def _scatter_bytes(
    x: Spec, indices: Spec, updates: Spec, axis: int, mode: str, **attrs: object
) -> int:
    """Return the bytes of indices, row positions, and the update of the result."""
    lead, width = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    rows = scratch_bytes(8 * indices.size, 8 * lead, 8 * lead * indices.size)
    return rows + _writes_bytes(x, updates, mode, width)


def _along_bytes(x: Spec, indices: Spec, **attrs: object) -> int:
    """Return the bytes of each element's position, and of positions along one axis."""
    return scratch_bytes(8 * indices.size, 8 * max(indices.shape))


def _put_bytes(
    x: Spec, indices: Spec, updates: Spec, axis: int, mode: str, **attrs: object
) -> int:
    positions = _along_bytes(x, indices, axis=axis)
    return positions + _writes_bytes(x, updates, mode, 1)


def _writes_bytes(x: Spec, updates: Spec, mode: str, width: int) -> int:
    """Return the bytes of columns, and of a chunk of positions and updates.

    Half precision sums in float32.
    """
    chunk = min(updates.size, CHUNK)
    if x.dtype in HALVES and mode in _ROUNDED:
        return scratch_bytes(8 * width, 8 * chunk, 4 * chunk, 4 * x.size)
    return scratch_bytes(8 * width, 8 * chunk, dtypes.itemsize(x.dtype) * chunk)


class Index(Kernels):
    """Kernels with integer index arrays; a negative index counts from the end."""

    @workspace(_gather_bytes)
    def gather(
        self,
        x: Array,
        indices: Array,
        *,
        axis: int,
        shifted: bool = False,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return x[..., indices, ...] along `axis`."""
        index = Scratch(self.xp, work).take(indices.shape, "int64")
        self.xp.copyto(index, indices)
        self._check("gather", index, x.shape[axis], axis, shifted)
        # With mode="raise" NumPy would buffer the whole output.
        return self.xp.take(x, index, axis=axis, out=out, mode="wrap")

    @workspace(_scatter_bytes)
    def scatter(
        self,
        x: Array,
        indices: Array,
        updates: Array,
        *,
        axis: int,
        mode: str,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Copy `x` and combine `updates` into x[..., indices, ...], in order."""
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        _require(updates.shape, (*before, *indices.shape, *after))
        extent, lead, width = x.shape[axis], math.prod(before), math.prod(after)
        memory = Scratch(self.xp, work)
        index = memory.take(indices.size, "int64")
        self.xp.copyto(index, indices.reshape(-1))
        self._wrap("scatter", index, extent, axis)
        block = fill_counter(self.xp, memory.take(lead, "int64"), extent)
        start = memory.take((lead, indices.size), "int64")
        self.xp.add(block.reshape(-1, 1), index, out=start)
        self.xp.multiply(start, width, out=start)
        rows = updates.reshape(start.size, width)
        return self._write(x, start.reshape(-1, 1), rows, mode, out, memory)

    @workspace(_along_bytes)
    def take_along_axis(
        self,
        x: Array,
        indices: Array,
        *,
        axis: int,
        shifted: bool = False,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Return the elements of `x` at `indices` along `axis`, elementwise."""
        memory = Scratch(self.xp, work)
        arguments = "take_along_axis", x, indices, axis, memory
        positions = self._positions(*arguments, shifted)
        return self.xp.take(x.reshape(-1), positions, out=out, mode="wrap")

    @workspace(_put_bytes)
    def put_along_axis(
        self,
        x: Array,
        indices: Array,
        updates: Array,
        *,
        axis: int,
        mode: str,
        out: Any = None,
        work: Any = None,
    ) -> Array:
        """Copy `x` and combine `updates` into it at `indices` along `axis`."""
        memory = Scratch(self.xp, work)
        _require(updates.shape, indices.shape)
        positions = self._positions("put_along_axis", x, indices, axis, memory)
        rows = updates.reshape(-1, 1)
        return self._write(x, positions.reshape(-1, 1), rows, mode, out, memory)

    def dynamic_slice(
        self, x: Array, *starts: Array, sizes: tuple[int, ...], out: Any = None
    ) -> Array:
        """Return the box of `sizes` at `starts`, clamped to fit inside `x`."""
        box = x[_clamped(starts, sizes, x.shape)]
        return box.copy() if out is None else self._copy_to(out, box)

    def dynamic_update_slice(
        self, x: Array, update: Array, *starts: Array, out: Any = None
    ) -> Array:
        """Copy `x` and write `update` at `starts`, clamped to fit inside."""
        out = x.copy() if out is None else self._copy_to(out, x)
        out[_clamped(starts, update.shape, x.shape)] = update
        return out

    def _check(
        self, op: str, index: Array, extent: int, axis: int, shifted: bool = False
    ) -> int:
        """Raise unless each index is in [-extent, extent); return the minimum."""
        if not index.size:
            return 0
        lowest = int(self.xp.minimum.reduce(index, axis=None))
        highest = int(self.xp.maximum.reduce(index, axis=None))
        if lowest < -extent or highest >= extent:
            wrong = highest if highest >= extent else lowest
            problem = index_problem(op, axis, shifted)
            raise OutOfRangeError(format_problem(problem, wrong, extent))
        return lowest

    def _wrap(
        self, op: str, index: Array, extent: int, axis: int, shifted: bool = False
    ) -> None:
        """Check the indices, and add the extent to negative ones, in place."""
        if self._check(op, index, extent, axis, shifted) < 0:
            self.xp.remainder(index, extent, out=index)

    def _positions(
        self,
        op: str,
        x: Array,
        indices: Array,
        axis: int,
        memory: Scratch,
        shifted: bool = False,
    ) -> Array:
        """Return the flat position in x.reshape(-1) of each element of the result."""
        shape = indices.shape
        _require(shape, (*x.shape[:axis], shape[axis], *x.shape[axis + 1 :]))
        positions = memory.take(shape, "int64")
        self.xp.copyto(positions, indices)
        self._wrap(op, positions, x.shape[axis], axis, shifted)
        counter = memory.take(max(shape), "int64")
        stride = math.prod(x.shape[axis + 1 :])
        self.xp.multiply(positions, stride, out=positions)
        stride = 1
        for i in reversed(range(x.ndim)):
            if i != axis:
                steps = fill_counter(self.xp, counter[: shape[i]], stride)
                steps = steps.reshape(-1, *(1,) * (x.ndim - 1 - i))
                self.xp.add(positions, steps, out=positions)
            stride *= x.shape[i]
        return positions

    def _write(
        self,
        x: Array,
        positions: Array,
        updates: Array,
        mode: str,
        out: Any,
        memory: Scratch,
    ) -> Array:
        """Combine rows of updates into a copy of `x`, starting at these flat positions.

        The positions are flat, because `ufunc.at` is several times faster in one
        dimension.
        """
        xp, size = self.xp, min(updates.size, CHUNK)
        out = self._result(out, x.shape, x.dtype)
        target, through = out, is_half(x.dtype) and mode in _ROUNDED
        columns = fill_counter(self.xp, memory.take(updates.shape[1], "int64"), 1)
        flat = memory.take(size, "int64")
        values = memory.take(size, "float32" if through else x.dtype)
        if through:
            target = memory.take(x.shape, "float32")
        self._copy_to(target, x)
        target = target.reshape(-1)
        for box in boxes(updates.shape, CHUNK):
            chunk = updates[box]
            to, value = flat[: chunk.size], values[: chunk.size]
            row, column = (..., ...) if box is ... else (*box, ...)[:2]
            xp.add(positions[row], columns[column], out=to.reshape(chunk.shape))
            self._copy_to(value.reshape(chunk.shape), chunk)
            if mode == "set":
                target[to] = value
            else:
                getattr(xp, _COMBINE[mode]).at(target, to, value)
        return self._copy_to(out, target.reshape(x.shape)) if through else out


def _require(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise an error unless the shapes are equal; equal sizes are not enough."""
    if shape != expected:
        raise ValueError(f"expected shape {expected}; received {shape}")


def _clamped(
    starts: tuple[Array, ...], sizes: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[slice, ...]:
    """Return the box at `starts`, clamped to fit inside `shape`."""
    if any(size > extent for size, extent in zip(sizes, shape, strict=True)):
        raise ValueError(f"a box of {sizes} does not fit into {shape}")
    firsts = (
        min(max(int(start), 0), extent - size)
        for start, size, extent in zip(starts, sizes, shape, strict=True)
    )
    return tuple(
        slice(first, first + size) for first, size in zip(firsts, sizes, strict=True)
    )
