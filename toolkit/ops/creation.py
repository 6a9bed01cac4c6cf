"""Creation of tensors from numbers: constants, ranges, grids, windows."""

from __future__ import annotations

import builtins
from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert, floating, is_scalar, weak_type
from toolkit.core.operation_replays import replayed
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ShapeError
from toolkit.ir.extents import has_extent, range_length, upper_bound
from toolkit.ops.checks import broadcast_shapes, extent_of, extents_of
from toolkit.ops.elementwise import floor, less_equal, where, zero_like
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
from toolkit.ops.transcendental import power
from toolkit.type_aliases import DTypeLike, Shape, TensorLike


def _full(shape: Shape, value: TensorLike, dtype: str) -> Tensor:
    extents = extents_of(shape)
    x = convert(value, dtype)
    return bind(broadcast_to_p, x, shape=extents) if extents else x


@replayed
def full(shape: Shape, fill_value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Create a tensor with one value in all elements.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        fill_value: the value, which broadcasts to `shape`.
        dtype: the dtype of the result. None means floatx.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.full((2, 3), 7))
        [[7. 7. 7.]
         [7. 7. 7.]]
    """
    value = convert(fill_value, dtypes.standardize(dtype))
    return broadcast_to(value, shape)


@replayed
def zeros(shape: Any, dtype: Any = None) -> Tensor:
    """Create a tensor of zeros.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        dtype: the dtype of the result. None means floatx.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.zeros((2, 3), dtype="int32"))
        [[0 0 0]
         [0 0 0]]
    """
    return _full(shape, 0, dtypes.standardize(dtype))


@replayed
def ones(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
    """Create a tensor of ones.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        dtype: the dtype of the result. None means floatx.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.ones((2, 3)))
        [[1. 1. 1.]
         [1. 1. 1.]]
    """
    return _full(shape, 1, dtypes.standardize(dtype))


def empty(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
    """Create a tensor for values that a caller writes later; the elements are 0.

    Args:
        shape: the shape of the result, an integer or a tuple of integers.
        dtype: the dtype of the result. None means floatx.

    Returns:
        A tensor of shape `shape` and dtype `dtype`.

    Example:
        >>> from toolkit import ops
        >>> ops.empty((2, 3)).shape
        (2, 3)
    """
    return zeros(shape, dtype)


@operation
def empty_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Create a tensor with the shape and dtype of another tensor; the elements are 0.

    Args:
        x: tensor of any shape.
        dtype: the dtype of the result. None means the dtype of `x`.

    Returns:
        A tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> ops.empty_like([[1, 2], [3, 4]]).shape
        (2, 2)
    """
    return zeros_like(x, dtype)


@operation
def full_like(x: TensorLike, fill_value: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Create a tensor with one value, and the shape and dtype of another tensor.

    Args:
        x: tensor of any shape.
        fill_value: the value, which broadcasts to the shape of `x`.
        dtype: the dtype of the result. None means the dtype of `x`.

    Returns:
        A tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.full_like([1, 2, 3], 9))
        [9 9 9]
    """
    x = convert(x)
    value = convert(fill_value, dtypes.standardize(dtype) if dtype else x.dtype)
    return broadcast_to(value, x.shape)


@operation
def zeros_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Create a tensor of zeros with the shape and dtype of another tensor.

    Args:
        x: tensor of any shape.
        dtype: the dtype of the result. None means the dtype of `x`.

    Returns:
        A tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.zeros_like([1, 2, 3]))
        [0 0 0]
    """
    return full_like(x, 0, dtype)


@operation
def ones_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Create a tensor of ones with the shape and dtype of another tensor.

    Args:
        x: tensor of any shape.
        dtype: the dtype of the result. None means the dtype of `x`.

    Returns:
        A tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.ones_like([[1.5, 2.5]]))
        [[1. 1.]]
    """
    return full_like(x, 1, dtype)


@replayed
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Tensor:
    """Create equally spaced numbers from `start` up to, not including, `stop`.

    Args:
        start: the first number. If `stop` is None, it is the end, and the first number
            is 0.
        stop: the end of the interval, or None.
        step: the distance between adjacent numbers. None means 1.
        dtype: the dtype of the result. None means the common dtype of the arguments:
            int32 for integers, floatx for floats.

    Returns:
        A tensor of shape (ceil((stop - start) / step),).

    Example:
        >>> from toolkit import ops
        >>> print(ops.arange(4))
        [0 1 2 3]
        >>> print(ops.arange(1, 2, 0.25))
        [1.   1.25 1.5  1.75]
    """
    step = 1 if step is None else step
    if stop is None:
        start, stop = 0, start
    start, stop, step = (_number(v) for v in (start, stop, step))
    name = dtypes.result_type(*map(weak_type, (start, stop, step)))
    name = dtypes.standardize(dtype) if dtype else name
    if has_extent((start, stop, step)):
        return _free_range(start, stop, step, name)
    return convert(
        index_range(start, stop, step, _range_dtype(start, stop, step)), name
    )


def _range_dtype(*numbers: object) -> str | None:
    """Return the dtype in which NumPy counts; None: its own choice.

    It converts numbers of 32 bits in a third of the time of numbers of 64 bits.
    """
    limit = 2**31 - 1
    is_short = all(type(x) is int and abs(x) <= limit for x in numbers)
    return "int32" if is_short else None


def _number(x: TensorLike) -> Any:
    return x if is_scalar(x) else convert(x).item()


def _free_range(start: int, stop: int, step: int, dtype: str) -> Tensor:
    """Return a range of a free length: the start of a longer constant."""
    count = range_length(start, stop, step)
    # One number more: the slice then never has the length of the constant.
    numbers = convert(index_range(upper_bound(count) + 1), dtype)
    numbers = slice_axis(numbers, 0, 0, count)
    numbers = numbers if step == 1 else numbers * convert(step, dtype)
    return (
        numbers
        if type(start) is int and start == 0
        else numbers + convert(start, dtype)
    )


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
    """Create equally spaced numbers from `start` to `stop`, along a new axis.

    Args:
        start: the first number, or a tensor of first numbers.
        stop: the last number, or a tensor that broadcasts with `start`.
        num: the number of points.
        endpoint: whether `stop` is the last point. With False, the points end one step
            before `stop`.
        retstep: whether to return the distance between adjacent points, too.
        dtype: the dtype of the result. None means the floating dtype of the ends. An
            integer dtype rounds down.
        axis: the index of the new axis in the result.

    Returns:
        A tensor of shape (num, *shape of the ends) with the new axis moved to `axis`.
        With `retstep`, a pair of the tensor and the distance.

    Example:
        >>> from toolkit import ops
        >>> print(ops.linspace(0, 1, 5))
        [0.   0.25 0.5  0.75 1.  ]
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
    """Create powers of a base with equally spaced exponents.

    The result is base ** linspace(start, stop, num).

    Args:
        start: the first exponent, or a tensor of first exponents.
        stop: the last exponent, or a tensor that broadcasts with `start`.
        num: the number of points.
        endpoint: whether base ** stop is the last point.
        base: the base of the powers.
        dtype: the dtype of the result. None means the floating dtype of the ends. An
            integer dtype rounds down.
        axis: the index of the new axis in the result.

    Returns:
        A tensor of shape (num, *shape of the ends) with the new axis moved to `axis`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.logspace(0, 4, 5, base=2), 4))
        [ 1.  2.  4.  8. 16.]
    """
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
    """Create numbers from `start` to `stop` with a constant quotient.

    Args:
        start: the first number, or a tensor of first numbers; not 0.
        stop: the last number, with the sign of `start`, or a tensor that broadcasts
            with it.
        num: the number of points.
        endpoint: whether `stop` is the last point.
        dtype: the dtype of the result. None means the floating dtype of the ends. An
            integer dtype rounds down.
        axis: the index of the new axis in the result.

    Returns:
        A tensor of shape (num, *shape of the ends) with the new axis moved to `axis`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.geomspace(1, 1000, 4), 3))
        [   1.   10.  100. 1000.]
    """
    low, high = floating(start, stop)
    shares = linspace(zeros_like(low * high), 1.0, num, endpoint, axis=axis)
    position = axis if axis >= 0 else axis + shares.ndim
    low, high = (
        expand_dims(broadcast_to(end, (low * high).shape), position)
        for end in (low, high)
    )
    return _as_dtype(low * power(high / low, shares), dtype)


@replayed
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """Create a matrix with ones on one diagonal, and zeros elsewhere.

    Args:
        N: the number of rows.
        M: the number of columns. None means `N`.
        k: the diagonal. 0 is the main diagonal, positive numbers are above it, and
            negative numbers are below it.
        dtype: the dtype of the result. None means floatx.

    Returns:
        A tensor of shape (N, M).

    Example:
        >>> from toolkit import ops
        >>> print(ops.eye(2, 3, k=1))
        [[0. 1. 0.]
         [0. 0. 1.]]
    """
    N = extent_of(N)
    M = N if M is None else extent_of(M)
    rows = reshape(arange(N, dtype="int32"), (N, 1))
    columns = reshape(arange(M, dtype="int32"), (1, M))
    return convert(rows + k == columns, dtypes.standardize(dtype))


def identity(n: int, dtype: DTypeLike | None = None) -> Tensor:
    """Create a square identity matrix.

    Args:
        n: the number of rows and columns.
        dtype: the dtype of the result. None means floatx.

    Returns:
        A tensor of shape (n, n).

    Example:
        >>> from toolkit import ops
        >>> print(ops.identity(2))
        [[1. 0.]
         [0. 1.]]
    """
    return eye(n, dtype=dtype)


def _is_lower(n: int, m: int, k: int) -> Tensor:
    """Return whether elements of an n x m matrix are on or below the k-th diagonal."""
    rows = reshape(arange(n, dtype="int32"), (n, 1))
    return less_equal(reshape(arange(m, dtype="int32"), (1, m)), rows + k)


@replayed
def tri(
    N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None
) -> Tensor:
    """Create a matrix of ones on and below a diagonal, and zeros above it.

    Args:
        N: the number of rows.
        M: the number of columns. None means `N`.
        k: the last diagonal with ones. 0 is the main diagonal, positive numbers are
            above it.
        dtype: the dtype of the result. None means floatx.

    Returns:
        A tensor of shape (N, M).

    Example:
        >>> from toolkit import ops
        >>> print(ops.tri(3))
        [[1. 0. 0.]
         [1. 1. 0.]
         [1. 1. 1.]]
    """
    return convert(_is_lower(N, N if M is None else M, k), dtypes.standardize(dtype))


def _matrices(op: str, x: TensorLike) -> Tensor:
    x = convert(x)
    if x.ndim < 2:
        raise ShapeError(f"{op}: expected at least 2 axes; received shape {x.shape}")
    return x


@operation
def tril(x: TensorLike, k: int = 0) -> Tensor:
    """Set the elements of matrices above a diagonal to zero.

    Args:
        x: (..., m, n), matrices.
        k: the last diagonal that stays. 0 is the main diagonal, positive numbers are
            above it.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.tril([[1, 2], [3, 4]]))
        [[1 0]
         [3 4]]
    """
    x = _matrices("tril", x)
    return where(_is_lower(x.shape[-2], x.shape[-1], k), x, zero_like(x))


@operation
def triu(x: TensorLike, k: int = 0) -> Tensor:
    """Set the elements of matrices below a diagonal to zero.

    Args:
        x: (..., m, n), matrices.
        k: the first diagonal that stays. 0 is the main diagonal, negative numbers are
            below it.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.triu([[1, 2], [3, 4]]))
        [[1 2]
         [0 4]]
    """
    x = _matrices("triu", x)
    return where(_is_lower(x.shape[-2], x.shape[-1], k - 1), zero_like(x), x)
