"""Reductions that ignore NaNs."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor
from toolkit.ops.checks import is_empty, normalize_axes, only_axis, reduced_shape
from toolkit.ops.creation import full
from toolkit.ops.elementwise import isnan, where
from toolkit.ops.numeric import logical_not, square
from toolkit.ops.reduce import all, argmax, argmin, cumprod, cumsum, max, min, prod, sum
from toolkit.ops.statistics import quantiles
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import sqrt
from toolkit.type_aliases import Axis, TensorLike


def _filled(x: TensorLike, value: TensorLike) -> Tensor:
    """Return x with `value` instead of its NaNs."""
    x = convert(x)
    if not dtypes.is_float(x.dtype):
        return x
    return where(isnan(x), convert(value, x.dtype), x)


def _count(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    """Count the elements over `axis` that are not NaN."""
    numbers = convert(logical_not(isnan(x)), x.dtype)
    return sum(numbers, axis=axis, keepdims=keepdims)


@operation
def nansum(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Compute the sum of elements over axes; NaNs count as 0.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes, with the dtype of `sum`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nansum([1.0, float("nan"), 3.0]))
        4.0
    """
    return sum(_filled(x, 0), axis, keepdims)


@operation
def nanprod(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Compute the product of elements over axes; NaNs count as 1.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes, with the dtype of `prod`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanprod([2.0, float("nan"), 3.0]))
        6.0
    """
    return prod(_filled(x, 1), axis, keepdims)


@operation
def nancumsum(x: Any, axis: Any = None, dtype: Any = None) -> Tensor:
    """Compute cumulative sums along an axis; NaNs count as 0.

    Args:
        x: numbers of any shape.
        axis: the axis of the sums. None means the flattened tensor.
        dtype: the dtype of the result. None means the dtype of `x`; booleans give
            int32.

    Returns:
        A tensor with the shape of `x`, or (x.size,) if `axis` is None.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nancumsum([1.0, float("nan"), 3.0]))
        [1. 1. 4.]
    """
    return _cumulative(cumsum, _filled(x, 0), axis, dtype)


@operation
def nancumprod(x: Any, axis: Any = None, dtype: Any = None) -> Tensor:
    """Compute cumulative products along an axis; NaNs count as 1.

    Args:
        x: numbers of any shape.
        axis: the axis of the products. None means the flattened tensor.
        dtype: the dtype of the result. None means the dtype of `x`; booleans give
            int32.

    Returns:
        A tensor with the shape of `x`, or (x.size,) if `axis` is None.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nancumprod([2.0, float("nan"), 3.0]))
        [2. 2. 6.]
    """
    return _cumulative(cumprod, _filled(x, 1), axis, dtype)


def _cumulative(function: Any, x: Tensor, axis: Any, dtype: Any) -> Tensor:
    """Return a cumulative sum or product; for an empty tuple of axes, x itself."""
    if axis == ():
        return convert(x, dtype and dtypes.standardize(dtype))
    return function(x, only_axis(function.__name__, axis), dtype)


def _extremum(
    reduction: Any, fill: float, x: TensorLike, axis: Axis | None, keepdims: bool
) -> Tensor:
    x = convert(x)
    if not dtypes.is_float(x.dtype):
        return reduction(x, axis, keepdims)
    nan, axes = float("nan"), normalize_axes(f"nan{reduction.__name__}", axis, x.ndim)
    if is_empty(x.shape, axes):
        return full(reduced_shape(x.shape, axes, keepdims), nan, x.dtype)
    y = reduction(_filled(x, fill), axes, keepdims)
    return where(all(isnan(x), axes, keepdims), convert(nan, x.dtype), y)


@operation
def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the largest element over axes, without NaNs.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes, with the dtype of `x`. It is NaN if all
        elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanmax([1.0, float("nan"), 3.0]))
        3.0
    """
    return _extremum(max, float("-inf"), x, axis, keepdims)


@operation
def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element over axes, without NaNs.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes, with the dtype of `x`. It is NaN if all
        elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanmin([1.0, float("nan"), 3.0]))
        1.0
    """
    return _extremum(min, float("inf"), x, axis, keepdims)


def _arg_extremum(
    reduction: Any, fill: float, x: TensorLike, axis: int | None, keepdims: bool
) -> Tensor:
    x = convert(x)
    y = reduction(_filled(x, fill), axis, keepdims)
    if not dtypes.is_float(x.dtype):
        return y
    return where(all(isnan(x), axis, keepdims), -1, y)


@operation
def nanargmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first largest element along an axis, without NaNs.

    Args:
        x: numbers of any shape.
        axis: the axis to search. None searches the flattened tensor.
        keepdims: whether the axis stays in the result, with extent 1.

    Returns:
        An int32 tensor without the axis. It is -1 if all elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanargmax([1.0, float("nan"), 3.0]))
        2
    """
    return _arg_extremum(argmax, float("-inf"), x, axis, keepdims)


@operation
def nanargmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first smallest element along an axis, without NaNs.

    Args:
        x: numbers of any shape.
        axis: the axis to search. None searches the flattened tensor.
        keepdims: whether the axis stays in the result, with extent 1.

    Returns:
        An int32 tensor without the axis. It is -1 if all elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanargmin([1.0, float("nan"), 3.0]))
        0
    """
    return _arg_extremum(argmin, float("inf"), x, axis, keepdims)


@operation
def nanmean(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Compute the arithmetic mean over axes, without NaNs.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the reduced axes. It is NaN if all elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanmean([1.0, float("nan"), 3.0]))
        2.0
    """
    (x,) = floating(x)
    return sum(_filled(x, 0), axis, keepdims) / _count(x, axis, keepdims)


@operation
def nanvar(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Compute the variance mean((x - mean(x)) ** 2) over axes, without NaNs.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the reduced axes. It is NaN if all elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanvar([1.0, float("nan"), 3.0]))
        1.0
    """
    (x,) = floating(x)
    axes = normalize_axes("nanvar", axis, x.ndim)
    return nanmean(square(x - nanmean(x, axes, True)), axes, keepdims)


@operation
def nanstd(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Compute the standard deviation over axes, without NaNs: sqrt(nanvar(x)).

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the reduced axes. It is NaN if all elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanstd([1.0, float("nan"), 5.0]))
        2.0
    """
    return sqrt(nanvar(x, axis, keepdims))


@operation
def nanquantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """Return the values below which fractions q of the elements are, without NaNs.

    Args:
        x: numbers of any shape.
        q: a fraction in [0, 1], or (m,) fractions, which give a first axis of extent m.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        method: the interpolation between two elements: "linear", "lower", "higher",
            "midpoint" or "nearest".
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the reduced axes. It is NaN if all elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanquantile([1.0, float("nan"), 3.0], 0.5))
        2.0
    """
    return quantiles("nanquantile", x, q, axis, method, keepdims, skip_nan=True)


@operation
def nanpercentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """Return the values below which q percent of the elements are, without NaNs.

    Args:
        x: numbers of any shape.
        q: a percentage in [0, 100], or (m,) percentages, which give a first axis of
            extent m.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        method: the interpolation between two elements: "linear", "lower", "higher",
            "midpoint" or "nearest".
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the reduced axes. It is NaN if all elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanpercentile([1.0, float("nan"), 3.0], 100))
        3.0
    """
    shares = convert(q, "float64") / 100.0
    return quantiles("nanpercentile", x, shares, axis, method, keepdims, skip_nan=True)


@operation
def nanmedian(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the middle of the sorted elements over axes, without NaNs.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the reduced axes. It is NaN if all elements are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.nanmedian([1.0, float("nan"), 3.0, 8.0]))
        3.0
    """
    return quantiles("nanmedian", x, 0.5, axis, keepdims=keepdims, skip_nan=True)
