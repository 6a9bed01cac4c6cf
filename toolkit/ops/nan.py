"""Reductions that ignore NaNs."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor
from toolkit.ops.checks import is_empty, normalize_axes, only_axis, reduced_shape
from toolkit.ops.creation import full
from toolkit.ops.elementwise import isnan, sqrt, where
from toolkit.ops.numeric import logical_not, square
from toolkit.ops.reduce import all, argmax, argmin, cumprod, cumsum, max, min, prod, sum
from toolkit.ops.statistics import quantiles
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import Array, Axis, TensorLike


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
    """Sum over `axis`, ignoring NaNs."""
    return sum(_filled(x, 0), axis, keepdims)


@operation
def nanprod(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Multiply over `axis`, ignoring NaNs."""
    return prod(_filled(x, 1), axis, keepdims)


@operation
def nancumsum(x: Any, axis: Any = None, dtype: Any = None) -> Tensor:
    """Return the cumulative sum along `axis` (None: flattened), ignoring NaNs."""
    return _cumulative(cumsum, _filled(x, 0), axis, dtype)


@operation
def nancumprod(x: Any, axis: Any = None, dtype: Any = None) -> Tensor:
    """Return the cumulative product along `axis` (None: flattened), ignoring NaNs."""
    return _cumulative(cumprod, _filled(x, 1), axis, dtype)


def _cumulative(function: Any, x: Tensor, axis: int, dtype: Any) -> Tensor:
    """Return a cumulative sum or product; for an empty tuple of axes, x itself."""
    if axis == ():
        return convert(x, dtype and dtypes.standardize(dtype))
    return function(x, only_axis(function.__name__, axis), dtype)


def _extremum(
    reduction: Any, fill: float, x: Array | Tensor, axis: int | None, keepdims: bool
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
    """Return the largest element over `axis`, ignoring NaNs; NaN if all are NaN."""
    return _extremum(max, float("-inf"), x, axis, keepdims)


@operation
def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element over `axis`, ignoring NaNs; NaN if all are NaN."""
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
    """Return the index of the first largest number, int32; -1 if all are NaN."""
    return _arg_extremum(argmax, float("-inf"), x, axis, keepdims)


@operation
def nanargmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first smallest number, int32; -1 if all are NaN."""
    return _arg_extremum(argmin, float("inf"), x, axis, keepdims)


@operation
def nanmean(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the arithmetic mean over `axis`, ignoring NaNs."""
    (x,) = floating(x)
    return sum(_filled(x, 0), axis, keepdims) / _count(x, axis, keepdims)


@operation
def nanvar(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the variance over `axis`, ignoring NaNs."""
    (x,) = floating(x)
    axes = normalize_axes("nanvar", axis, x.ndim)
    return nanmean(square(x - nanmean(x, axes, True)), axes, keepdims)


@operation
def nanstd(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the standard deviation over `axis`, ignoring NaNs."""
    return sqrt(nanvar(x, axis, keepdims))


@operation
def nanquantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """Compute `quantile`, ignoring NaNs."""
    return quantiles("nanquantile", x, q, axis, method, keepdims, skip_nan=True)


@operation
def nanpercentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """Compute `percentile`, ignoring NaNs."""
    shares = convert(q, "float64") / 100.0
    return quantiles("nanpercentile", x, shares, axis, method, keepdims, skip_nan=True)


@operation
def nanmedian(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Compute `median`, ignoring NaNs."""
    return quantiles("nanmedian", x, 0.5, axis, keepdims=keepdims, skip_nan=True)
