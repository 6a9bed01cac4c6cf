"""Kernels on whole arrays: reductions, views, moves, indices, products, order."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.kernels import upcast
from toolkit.backends.reference.common import widen

Array = Any
Shape = tuple[int, ...]

_COMBINE: dict[str, Any] = {
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "set": lambda old, new: new,
    "max": np.maximum,
    "min": np.minimum,
}


# --- reductions -----------------------------------------------------------------------


def sum(x: Array, axis: Shape, keepdims: bool) -> Array:
    """Sum over `axis`, a tuple."""
    wide = widen(x)
    return np.sum(wide, axis, wide.dtype, keepdims=keepdims).astype(x.dtype)


def prod(x: Array, axis: Shape, keepdims: bool) -> Array:
    """Multiply all elements along `axis`."""
    wide = widen(x)
    return np.prod(wide, axis, wide.dtype, keepdims=keepdims).astype(x.dtype)


def max(x: Array, axis: Shape, keepdims: bool) -> Array:
    """Return the maximum; NaN if an element is NaN."""
    return np.max(upcast(x), axis, keepdims=keepdims).astype(x.dtype)


def min(x: Array, axis: Shape, keepdims: bool) -> Array:
    """Return the minimum; NaN if an element is NaN."""
    return np.min(upcast(x), axis, keepdims=keepdims).astype(x.dtype)


def any(x: Array, axis: Shape, keepdims: bool) -> Array:
    """Return whether any element is true."""
    return np.any(x, axis=axis, keepdims=keepdims)


def all(x: Array, axis: Shape, keepdims: bool) -> Array:
    """Return whether all elements are true."""
    return np.all(x, axis=axis, keepdims=keepdims)


def argmax(x: Array, axis: int, keepdims: bool) -> Array:
    """Return the first position of the maximum."""
    return np.argmax(upcast(x), axis=axis, keepdims=keepdims).astype(np.int32)


def argmin(x: Array, axis: int, keepdims: bool) -> Array:
    """Return the first position of the minimum."""
    return np.argmin(upcast(x), axis=axis, keepdims=keepdims).astype(np.int32)


def cumsum(x: Array, axis: int, reverse: bool) -> Array:
    """Compute the cumulative sum."""
    return _accumulate(np.add, x, axis, reverse)


def cumprod(x: Array, axis: int, reverse: bool) -> Array:
    """Compute the cumulative product."""
    return _accumulate(np.multiply, x, axis, reverse)


def _accumulate(ufunc: Any, x: Array, axis: int, reverse: bool) -> Array:
    wide = np.flip(widen(x), axis) if reverse else widen(x)
    result = ufunc.accumulate(wide, axis, wide.dtype)
    return (np.flip(result, axis) if reverse else result).astype(x.dtype)


# --- views and moves ------------------------------------------------------------------


def reshape(x: Array, shape: Shape) -> Array:
    """Return the same elements in another shape."""
    return x.reshape(shape)


def transpose(x: Array, axes: Shape) -> Array:
    """Return a view with permuted axes."""
    return x.transpose(axes)


def broadcast_to(x: Array, shape: Shape) -> Array:
    """Return a view that repeats `x`."""
    return np.broadcast_to(x, shape)


def slice(x: Array, start: Shape, stop: Shape, step: Shape) -> Array:
    """Return a view of a box."""
    axes = zip(start, stop, step, strict=True)
    # A stop of -1 is before index 0, which is None in NumPy.
    return x[tuple(np.s_[m : None if n == -1 else n : by] for m, n, by in axes)]


def bitcast(x: Array, dtype: str) -> Array:
    """Reinterpret the bits of x as another dtype."""
    flat = np.frombuffer(x.tobytes(), dtypes.numpy_dtype(dtype))
    if not x.shape:
        return flat.reshape(())
    last = x.shape[-1] * x.itemsize // flat.itemsize
    return flat.reshape(*x.shape[:-1], last)


reinterpret = bitcast


def as_complex(x: Array) -> Array:
    """Convert real and imaginary parts along the last axis to complex numbers."""
    return (x[..., 0] + 1j * x[..., 1]).astype(np.result_type(x.dtype, "complex64"))


def as_real(x: Array) -> Array:
    """Convert complex numbers to real and imaginary parts along a new last axis."""
    return np.stack([x.real, x.imag], axis=-1)


def conjugate(x: Array) -> Array:
    """Negate the imaginary parts of complex numbers."""
    return np.conjugate(x)


def concatenate(*xs: Array, axis: int) -> Array:
    """Concatenate arrays."""
    return np.concatenate(xs, axis)


def pad(x: Array, widths: tuple[tuple[int, int], ...], value: Any) -> Array:
    """Pad `x` with `value`."""
    return np.pad(x, widths, constant_values=value) if x.ndim else x.copy()


# --- indices --------------------------------------------------------------------------


def gather(x: Array, indices: Array, axis: int, shifted: bool = False) -> Array:
    """Return x[..., indices, ...] along `axis`."""
    return np.take(x, indices, axis)


def scatter(x: Array, indices: Array, updates: Array, axis: int, mode: str) -> Array:
    """Combine `updates` into a copy of `x`, in the order of the indices."""
    result, updates = widen(x).copy(), widen(updates)
    before = (np.s_[:],) * axis
    for position in np.ndindex(indices.shape):
        target = (*before, indices[position])
        result[target] = _COMBINE[mode](result[target], updates[(*before, *position)])
    return result.astype(x.dtype)


def take_along_axis(
    x: Array, indices: Array, axis: int, shifted: bool = False
) -> Array:
    """Return the elements at `indices`, elementwise."""
    return np.take_along_axis(x, indices, axis)


def put_along_axis(
    x: Array, indices: Array, updates: Array, axis: int, mode: str
) -> Array:
    """Combine `updates` into a copy of `x`, in order."""
    result = widen(x).copy()
    updates = widen(updates)
    for position in np.ndindex(indices.shape):
        target = (*position[:axis], indices[position], *position[axis + 1 :])
        result[target] = _COMBINE[mode](result[target], updates[position])
    return result.astype(x.dtype)


def dynamic_slice(x: Array, *starts: Array, sizes: Shape) -> Array:
    """Return the box of `sizes` at `starts`."""
    return x[_box(starts, sizes, x.shape)].copy()


def dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    """Return `x` with `update` in the box at `starts`."""
    result = x.copy()
    result[_box(starts, update.shape, x.shape)] = update
    return result


def _box(starts: tuple[Array, ...], sizes: Shape, shape: Shape) -> Any:
    """Return a box at `starts`, clamped to fit inside `shape`."""
    box = []
    for start, size, extent in zip(starts, sizes, shape, strict=True):
        first = int(np.clip(int(start), 0, extent - size))
        box.append(np.s_[first : first + size])
    return tuple(box)


# --- products, order, random numbers --------------------------------------------------


def matmul(a: Array, b: Array, factors: str = "") -> Array:
    """Return the matrix product over the last two axes."""
    return np.matmul(widen(a), widen(b)).astype(a.dtype)


def matmul_integer(a: Array, b: Array) -> Array:
    """Return the matrix product of int8 in int32."""
    return np.matmul(a.astype(np.int32), b.astype(np.int32))


def argsort(x: Array, axis: int) -> Array:
    """Return the stable order along `axis`, NaN last."""
    return np.argsort(upcast(x), axis, kind="stable").astype(np.int32)


def sort(x: Array, axis: int) -> Array:
    """Return the sorted elements along `axis`, NaN last."""
    return np.take_along_axis(x, argsort(x, axis), axis)


def searchsorted(sorted_values: Array, values: Array, side: Any) -> Array:
    """Return the insertion points of `values` in a sorted 1-D array."""
    return np.searchsorted(upcast(sorted_values), upcast(values), side).astype(np.int32)


def random_uniform(key: Array, shape: Shape, dtype: str) -> Array:
    """Return uniform numbers on [0, 1): Philox 4x64-10 with the two words of `key`."""
    words = np.array([int(word) for word in key], np.uint64)
    generator = np.random.Generator(np.random.Philox(key=words, counter=0))
    return generator.random(shape, dtypes.numpy_dtype(dtype))
