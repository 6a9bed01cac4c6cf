"""Creation of tensors from numbers: constants, ranges, grids, windows."""

from __future__ import annotations

import builtins
from operator import index
from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ShapeError
from toolkit.ops.checks import broadcast_shapes, extents_of
from toolkit.ops.elementwise import floor, less_equal, power, where, zero_like
from toolkit.ops.ranges import index_range
from toolkit.ops.shape import (
    broadcast_to,
    broadcast_to_p,
    concatenate,
    expand_dims,
    moveaxis,
    reshape,
    slice_axis,
)
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import DTypeLike, Shape, TensorLike


def _full(shape: Shape, value: TensorLike, dtype: str) -> Tensor:
    extents = extents_of(shape)
    x = convert(value, dtype)
    return bind(broadcast_to_p, x, shape=extents) if extents else x


def full(shape: Shape, fill_value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor filled with `fill_value`, floatx unless `dtype` is given."""
    value = convert(fill_value, dtypes.standardize(dtype))
    return broadcast_to(value, shape)


def zeros(shape: Any, dtype: Any = None) -> Tensor:
    """Return a tensor of zeros, floatx unless `dtype` is given."""
    return _full(shape, 0, dtypes.standardize(dtype))


def ones(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor of ones, floatx unless `dtype` is given."""
    return _full(shape, 1, dtypes.standardize(dtype))


def empty(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor with unspecified elements: zeros."""
    return zeros(shape, dtype)


@operation
def empty_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor with the shape and dtype of x and unspecified elements: zeros."""
    return zeros_like(x, dtype)


@operation
def full_like(x: TensorLike, fill_value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor filled with `fill_value`, with the shape and dtype of x."""
    x = convert(x)
    value = convert(fill_value, dtypes.standardize(dtype) if dtype else x.dtype)
    return broadcast_to(value, x.shape)


@operation
def zeros_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return zeros with the shape and dtype of x."""
    return full_like(x, 0, dtype)


@operation
def ones_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return ones with the shape and dtype of x."""
    return full_like(x, 1, dtype)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Tensor:
    """Return numbers from `start` (or 0) up to `stop`, `step` apart."""
    step = 1 if step is None else step
    if stop is None:
        start, stop = 0, start
    start, stop, step = (_number(v) for v in (start, stop, step))
    name = dtypes.result_type(*(type(v) for v in (start, stop, step)))
    name = dtypes.standardize(dtype) if dtype else name
    return convert(index_range(start, stop, step), name)


def _number(x: TensorLike) -> Any:
    return x if isinstance(x, (int, float)) else convert(x).item()


@operation
def linspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Return `num` evenly spaced numbers from `start` to `stop`, along a new `axis`.

    Args:
        start: the first number, or a tensor of them.
        stop: the last number; with endpoint=False, the one after the last.
        num: the number of points.
        endpoint: whether `stop` is the last point.
        retstep: whether to return the distance between adjacent numbers too.
        dtype: dtype of the result; integers are rounded down.
        axis: index of the new axis in the result.
    """
    low, high = floating(start, stop)
    shape = broadcast_shapes("linspace", low.shape, high.shape)
    low, high = broadcast_to(low, shape), broadcast_to(high, shape)
    step = (high - low) / builtins.max(num - 1 if endpoint else num, 1)
    counter = reshape(arange(num, dtype=low.dtype), (num,) + (1,) * low.ndim)
    values = expand_dims(low, 0) + counter * expand_dims(step, 0)
    if endpoint and num > 1:
        values = concatenate([slice_axis(values, 0, 0, num - 1), expand_dims(high, 0)])
    values = _as_dtype(moveaxis(values, 0, axis), dtype)
    return (values, step) if retstep else values


def _as_dtype(x: Tensor, dtype: Any) -> Tensor:
    if dtype is None:
        return x
    name = dtypes.standardize(dtype)
    return convert(x if dtypes.is_float(name) else floor(x), name)


@operation
def logspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10,
    dtype: Any = None,
    axis: int = 0,
) -> Tensor:
    """Return `base` to the powers `linspace(start, stop)`, with the same arguments."""
    powers = linspace(start, stop, num, endpoint, axis=axis)
    return _as_dtype(power(convert(base, powers.dtype), powers), dtype)


@operation
def geomspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Tensor:
    """Return `num` numbers from `start` to `stop` with equal quotients.

    Arguments as for `linspace`. Both ends have the same sign, and neither is 0.
    """
    low, high = floating(start, stop)
    shares = linspace(zeros_like(low * high), 1.0, num, endpoint, axis=axis)
    position = axis if axis >= 0 else axis + shares.ndim
    low, high = (
        expand_dims(broadcast_to(end, (low * high).shape), position)
        for end in (low, high)
    )
    return _as_dtype(low * power(high / low, shares), dtype)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """Return an N x M matrix (M = N if None) with ones on its k-th diagonal."""
    N = index(N)
    M = N if M is None else index(M)
    rows = reshape(arange(N, dtype="int32"), (N, 1))
    columns = reshape(arange(M, dtype="int32"), (1, M))
    return convert(rows + k == columns, dtypes.standardize(dtype))


def identity(n: int, dtype: DTypeLike | None = None) -> Tensor:
    """Return the n x n identity matrix."""
    return eye(n, dtype=dtype)


def _is_lower(n: int, m: int, k: int) -> Tensor:
    """Return whether elements of an n x m matrix are on or below the k-th diagonal."""
    rows = reshape(arange(n, dtype="int32"), (n, 1))
    return less_equal(reshape(arange(m, dtype="int32"), (1, m)), rows + k)


def tri(
    N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None
) -> Tensor:
    """Return an N x M matrix (M = N if None) of ones on and below its k-th diagonal."""
    return convert(_is_lower(N, N if M is None else M, k), dtypes.standardize(dtype))


def _matrices(op: str, x: TensorLike) -> Tensor:
    x = convert(x)
    if x.ndim < 2:
        raise ShapeError(f"{op}: expected at least 2 axes; received shape {x.shape}")
    return x


@operation
def tril(x: TensorLike, k: int = 0) -> Tensor:
    """Return the lower triangles of matrices, with zeros above the k-th diagonal."""
    x = _matrices("tril", x)
    return where(_is_lower(x.shape[-2], x.shape[-1], k), x, zero_like(x))


@operation
def triu(x: TensorLike, k: int = 0) -> Tensor:
    """Return the upper triangles of matrices, with zeros below the k-th diagonal."""
    x = _matrices("triu", x)
    return where(_is_lower(x.shape[-2], x.shape[-1], k - 1), zero_like(x), x)
