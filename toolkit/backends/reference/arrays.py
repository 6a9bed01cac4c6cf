"""Kernels on whole arrays: reductions, views, moves, indices, products, order."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.reference.common import widen
from toolkit.backends.rendering import upcast

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
    """The sum over `axis`, a tuple."""
    wide = widen(x)
    return np.sum(wide, axis, wide.dtype, keepdims=keepdims).astype(x.dtype)


def prod(x: Array, axis: Shape, keepdims: bool) -> Array:
    """The product over `axis`."""
    wide = widen(x)
    return np.prod(wide, axis, wide.dtype, keepdims=keepdims).astype(x.dtype)


def max(x: Array, axis: Shape, keepdims: bool) -> Array:
    """The greatest element; NaN if there is one."""
    return np.max(upcast(x), axis, keepdims=keepdims).astype(x.dtype)


def min(x: Array, axis: Shape, keepdims: bool) -> Array:
    """The least element; NaN if there is one."""
    return np.min(upcast(x), axis, keepdims=keepdims).astype(x.dtype)


def any(x: Array, axis: Shape, keepdims: bool) -> Array:
    """Whether any element is true."""
    return np.any(x, axis=axis, keepdims=keepdims)


def all(x: Array, axis: Shape, keepdims: bool) -> Array:
    """Whether all elements are true."""
    return np.all(x, axis=axis, keepdims=keepdims)


def argmax(x: Array, axis: int, keepdims: bool) -> Array:
    """The first position of the maximum."""
    return np.argmax(upcast(x), axis=axis, keepdims=keepdims).astype(np.int32)


def argmin(x: Array, axis: int, keepdims: bool) -> Array:
    """The first position of the minimum."""
    return np.argmin(upcast(x), axis=axis, keepdims=keepdims).astype(np.int32)


def cumsum(x: Array, axis: int, reverse: bool) -> Array:
    """The sum of all elements so far."""
    return _accumulate(np.add, x, axis, reverse)


def cumprod(x: Array, axis: int, reverse: bool) -> Array:
    """The product of all elements so far."""
    return _accumulate(np.multiply, x, axis, reverse)


def _accumulate(ufunc: Any, x: Array, axis: int, reverse: bool) -> Array:
    wide = np.flip(widen(x), axis) if reverse else widen(x)
    result = ufunc.accumulate(wide, axis, wide.dtype)
    return (np.flip(result, axis) if reverse else result).astype(x.dtype)


# --- views and moves ------------------------------------------------------------------


def reshape(x: Array, shape: Shape) -> Array:
    """The same elements in another shape."""
    return x.reshape(shape)


def transpose(x: Array, axes: Shape) -> Array:
    """A view with permuted axes."""
    return x.transpose(axes)


def broadcast_to(x: Array, shape: Shape) -> Array:
    """A view that repeats `x`."""
    return np.broadcast_to(x, shape)


def slice(x: Array, start: Shape, stop: Shape, step: Shape) -> Array:
    """A view of a box."""
    axes = zip(start, stop, step, strict=True)
    # A stop of -1 is before index 0, which NumPy spells None.
    return x[tuple(np.s_[m : None if n == -1 else n : by] for m, n, by in axes)]


def bitcast(x: Array, dtype: str) -> Array:
    """The bits of x as numbers of another dtype."""
    flat = np.frombuffer(x.tobytes(), dtypes.numpy_dtype(dtype))
    if not x.shape:
        return flat.reshape(())
    last = x.shape[-1] * x.itemsize // flat.itemsize
    return flat.reshape(*x.shape[:-1], last)


def as_complex(x: Array) -> Array:
    """Complex numbers from their real and imaginary parts, the last axis."""
    return (x[..., 0] + 1j * x[..., 1]).astype(np.result_type(x.dtype, "complex64"))


def as_real(x: Array) -> Array:
    """The real and imaginary parts of complex numbers, along a new last axis."""
    return np.stack([x.real, x.imag], axis=-1)


def concatenate(*xs: Array, axis: int) -> Array:
    """Arrays one after the other."""
    return np.concatenate(xs, axis)


def pad(x: Array, widths: tuple[tuple[int, int], ...], value: Any) -> Array:
    """`x` with `value` around it."""
    return np.pad(x, widths, constant_values=value) if x.ndim else x.copy()


# --- indices --------------------------------------------------------------------------


def gather(x: Array, indices: Array, axis: int) -> Array:
    """x[..., indices, ...] along `axis`."""
    return np.take(x, indices, axis)


def scatter(x: Array, indices: Array, updates: Array, axis: int, mode: str) -> Array:
    """`x` with `updates` combined into it, one index after the other."""
    result, updates = widen(x).copy(), widen(updates)
    before = (np.s_[:],) * axis
    for place in np.ndindex(indices.shape):
        target = (*before, indices[place])
        result[target] = _COMBINE[mode](result[target], updates[(*before, *place)])
    return result.astype(x.dtype)


def take_along_axis(x: Array, indices: Array, axis: int) -> Array:
    """The elements at `indices`, position by position."""
    return np.take_along_axis(x, indices, axis)


def put_along_axis(
    x: Array, indices: Array, updates: Array, axis: int, mode: str
) -> Array:
    """`x` with `updates` combined into it, one after the other."""
    result = widen(x).copy()
    updates = widen(updates)
    for place in np.ndindex(indices.shape):
        target = (*place[:axis], indices[place], *place[axis + 1 :])
        result[target] = _COMBINE[mode](result[target], updates[place])
    return result.astype(x.dtype)


def dynamic_slice(x: Array, *starts: Array, sizes: Shape) -> Array:
    """The box of `sizes` at `starts`."""
    return x[_box(starts, sizes, x.shape)].copy()


def dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    """`x` with `update` in the box at `starts`."""
    result = x.copy()
    result[_box(starts, update.shape, x.shape)] = update
    return result


def _box(starts: tuple[Array, ...], sizes: Shape, shape: Shape) -> Any:
    """A box at `starts`, moved so that it lies inside `shape`."""
    box = []
    for start, size, extent in zip(starts, sizes, shape, strict=True):
        first = int(np.clip(int(start), 0, extent - size))
        box.append(np.s_[first : first + size])
    return tuple(box)


# --- products, order, random numbers --------------------------------------------------


def matmul(a: Array, b: Array, factors: str = "") -> Array:
    """The matrix product over the last two axes."""
    return np.matmul(widen(a), widen(b)).astype(a.dtype)


def matmul_integer(a: Array, b: Array) -> Array:
    """The matrix product of int8 in int32."""
    return np.matmul(a.astype(np.int32), b.astype(np.int32))


def argsort(x: Array, axis: int) -> Array:
    """The stable order along `axis`, NaN last."""
    return np.argsort(upcast(x), axis, kind="stable").astype(np.int32)


def searchsorted(sorted_values: Array, values: Array, side: Any) -> Array:
    """Where `values` would go in a sorted 1-D array."""
    return np.searchsorted(upcast(sorted_values), upcast(values), side).astype(np.int32)


def random_uniform(key: Array, shape: Shape, dtype: str) -> Array:
    """Uniform on [0, 1): Philox 4x64-10 with the two words of `key`."""
    words = np.array([int(word) for word in key], np.uint64)
    generator = np.random.Generator(np.random.Philox(key=words, counter=0))
    return generator.random(shape, dtypes.numpy_dtype(dtype))
