"""Views, and kernels that move elements without arithmetic."""

from __future__ import annotations

from typing import Any

from toolkit.backends.array.common import Array, Kernels
from toolkit.dtypes import numpy_dtype


class Shape(Kernels):
    """Kernels that rearrange elements."""

    def reshape(
        self, x: Array, *, shape: tuple[int, ...], out: Array | None = None
    ) -> Array:
        """Reshape; the result is a view if `x` is contiguous."""
        if out is None:
            return x.reshape(shape)
        self._copy_to(out.reshape(x.shape), x)
        return out

    def transpose(self, x: Array, *, axes: tuple[int, ...]) -> Array:
        """Return a view with permuted axes."""
        return x.transpose(axes)

    def broadcast_to(self, x: Array, *, shape: tuple[int, ...]) -> Array:
        """Return a view that repeats `x` along new axes and axes of extent 1."""
        return self.xp.broadcast_to(x, shape)

    def slice(
        self,
        x: Array,
        *,
        start: tuple[int, ...],
        stop: tuple[int, ...],
        step: tuple[int, ...],
    ) -> Array:
        """Return a view of a box; with a negative step, stop -1 is before index 0."""
        return x[slices_of(start, stop, step)]

    def bitcast(self, x: Array, *, dtype: str, out: Any = None) -> Array:
        """Reinterpret the bits of `x` as another dtype."""
        if out is None:
            contiguous = self.xp.ascontiguousarray(x).reshape(x.shape)
            return contiguous.view(numpy_dtype(dtype))
        self._copy_to(out.view(x.dtype), x)
        return out

    def reinterpret(self, x: Array, *, dtype: str, out: Array | None = None) -> Array:
        """Reinterpret the bits of `x` as another dtype of the same size."""
        return self.bitcast(x, dtype=dtype, out=out)

    def as_complex(self, x: Array, *, out: Any = None) -> Array:
        """Convert real and imaginary parts along the last axis to complex numbers."""
        dtype = self.xp.result_type(x.dtype, "complex64")
        pairs = self.xp.ascontiguousarray(x, "float64" if dtype.itemsize > 8 else None)
        y = pairs.view(dtype).reshape(x.shape[:-1])
        return y if out is None else self._copy_to(out, y)

    def as_real(self, x: Array, *, out: Any = None) -> Array:
        """Convert complex numbers to real and imaginary parts along a new last axis."""
        numbers = self.xp.ascontiguousarray(x).reshape(*x.shape, 1)
        y = numbers.view(x.real.dtype)
        return y if out is None else self._copy_to(out, y)

    def conjugate(self, x: Array, *, out: Array | None = None) -> Array:
        """Negate the imaginary parts of complex numbers."""
        return self.xp.conjugate(x, out=out)

    def concatenate(self, *xs: Array, axis: int, out: Any = None) -> Array:
        """Concatenate arrays along `axis`."""
        return self.xp.concatenate(xs, axis=axis, out=out)

    def pad(
        self,
        x: Array,
        *,
        widths: tuple[tuple[int, int], ...],
        value: Any,
        out: Any = None,
    ) -> Array:
        """Pad `x` with `widths[axis] = (low, high)` elements of `value`."""
        extents = zip(x.shape, widths, strict=True)
        shape = tuple(low + n + high for n, (low, high) in extents)
        out = self._result(out, shape, x.dtype)
        interior = out
        for axis, (low, high) in enumerate(widths):
            before = (slice(None),) * axis
            if low:
                interior[(*before, slice(0, low))] = value
            if high:
                interior[(*before, slice(-high, None))] = value
            end = interior.shape[axis] - high
            interior = interior[(*before, slice(low, end))]
        self._copy_to(interior, x)
        return out


def slices_of(
    start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]
) -> tuple[slice, ...]:
    """Return the index of a box; with a negative step, stop -1 is before index 0."""
    return tuple(map(_range, start, stop, step))


def _range(start: int, stop: int, step: int) -> slice:
    return slice(start, None if step < 0 and stop < 0 else stop, step)
