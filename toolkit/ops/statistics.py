"""Averages, quantiles, histograms and finite differences."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from toolkit.arguments import is_int, is_real
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ir import PRIMITIVES
from toolkit.ops.arrange import diagonal
from toolkit.ops.checks import normalize_axes, normalize_axis, reduced_shape
from toolkit.ops.contract import matmul
from toolkit.ops.creation import full, linspace, zeros
from toolkit.ops.elementwise import ceil, equal, floor, isnan, maximum, not_equal, where
from toolkit.ops.index import gather_p, scatter_p, take_along_axis_p
from toolkit.ops.numeric import clip, round
from toolkit.ops.ranges import index_range
from toolkit.ops.reduce import any, max, mean, min, sum
from toolkit.ops.shape import (
    broadcast_to,
    expand_dims,
    moveaxis,
    reshape,
    slice_axis,
    transpose,
)
from toolkit.ops.sort import searchsorted_p, sort
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import sqrt
from toolkit.type_aliases import Axis, TensorLike


@operation
def average(x: Any, axis: Any = None, weights: Any = None) -> Tensor:
    """Compute the weighted mean over axes: sum(x * weights) / sum(weights).

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        weights: numbers with the shape of `x`, or with the extents of the reduced axes
            only. None means equal weights.

    Returns:
        A floating tensor without the reduced axes.

    Raises:
        ShapeError: the shape of `weights` matches neither `x` nor its axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.average([1.0, 5.0], weights=[3.0, 1.0]))
        2.0
    """
    if weights is None:
        return mean(x, axis=axis)
    x, weights = floating(x, weights)
    axes = normalize_axes("average", axis, x.ndim)
    if weights.shape != x.shape:
        if weights.shape != tuple(x.shape[a] for a in axes):
            raise ShapeError(
                f"average: weights of shape {weights.shape} fit neither x of shape "
                f"{x.shape} nor its axes {axes}"
            )
        broadcast_shape = [n if i in axes else 1 for i, n in enumerate(x.shape)]
        weights = broadcast_to(reshape(weights, broadcast_shape), x.shape)
    return sum(x * weights, axis=axes) / sum(weights, axis=axes)


@operation
def ptp(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor:
    """Return the largest minus the smallest element over axes.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes, with the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.ptp([[1, 5], [7, 3]], axis=1))
        [4 4]
    """
    return max(x, axis, keepdims) - min(x, axis, keepdims)


# --- quantiles ------------------------------------------------------------------------

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def quantiles(
    op: str,
    x: Any,
    q: Any,
    axis: Any,
    method: str = "linear",
    keepdims: bool = False,
    skip_nan: bool = False,
) -> Tensor:
    """Return the values below which a fraction q of the elements over `axis` is.

    Args:
        op: name of the function in errors.
        x: a tensor.
        q: fractions in [0, 1], () or (m,); several become the first axis of the result.
        axis: an integer, a tuple, or None for all.
        method: interpolation between two elements: "linear", "lower", "higher",
            "midpoint" or "nearest".
        keepdims: whether reduced axes stay, with extent 1.
        skip_nan: whether NaNs are ignored, and the result is NaN only if all elements
            are NaN; else one NaN makes the result NaN.
    """
    if method not in _METHODS:
        raise unknown_choice(f"{op}: method", method, _METHODS)
    (x,), shares = floating(x), convert(q, "float64")
    axes = normalize_axes(op, axis, x.ndim)
    batch_axes = [i for i in range(x.ndim) if i not in axes]
    count = math.prod(x.shape[a] for a in axes)
    rows = reshape(
        transpose(x, (*batch_axes, *axes)), [*(x.shape[i] for i in batch_axes), count]
    )
    if count == 0:
        if not skip_nan:
            raise ShapeError(f"{op}: no elements along axis {axes} of shape {x.shape}")
        rows = full((*rows.shape[:-1], 1), float("nan"), x.dtype)
    y = _row_quantiles(rows, reshape(shares, (-1,)), method, skip_nan)
    y = moveaxis(y, -1, 0)
    return reshape(y, (*shares.shape, *reduced_shape(x.shape, axes, keepdims)))


def _row_quantiles(rows: Tensor, shares: Tensor, method: str, skip_nan: bool) -> Tensor:
    """Return quantiles: (..., n) and m fractions give (..., m)."""
    ordered = sort(rows)
    is_nan = isnan(rows)
    count = full((*rows.shape[:-1], 1), rows.shape[-1], "float64")
    if skip_nan:
        count = count - convert(sum(is_nan, axis=-1, keepdims=True), "float64")
    rank = shares * maximum(count - 1.0, 0.0)

    def at(ranks: Tensor) -> Tensor:
        ranks = convert(ranks, "int32")
        return bind(take_along_axis_p, ordered, ranks, axis=rows.ndim - 1)

    if method == "nearest":
        y = at(round(rank))
    elif method == "lower":
        y = at(floor(rank))
    elif method == "higher":
        y = at(ceil(rank))
    else:
        low, high = at(floor(rank)), at(ceil(rank))
        weight = convert(rank - floor(rank), rows.dtype)
        gap = where(equal(low, high), 0, high - low)  # infinities may be equal
        y = low + gap * (weight if method == "linear" else 0.5)
    if skip_nan:
        return y
    return where(any(is_nan, axis=-1, keepdims=True), float("nan"), y)


@operation
def quantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """Return the values below which fractions q of the elements are.

    Args:
        x: numbers of any shape.
        q: a fraction in [0, 1], or (m,) fractions, which give a first axis of extent m.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        method: the interpolation between two elements: "linear", "lower", "higher",
            "midpoint" or "nearest".
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the reduced axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.quantile([1.0, 2.0, 3.0, 4.0, 5.0], [0.25, 0.5]))
        [2. 3.]
    """
    return quantiles("quantile", x, q, axis, method, keepdims)


@operation
def percentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Tensor:
    """Return the values below which q percent of the elements are.

    Args:
        x: numbers of any shape.
        q: a percentage in [0, 100], or (m,) percentages, which give a first axis of
            extent m.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        method: the interpolation between two elements: "linear", "lower", "higher",
            "midpoint" or "nearest".
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the reduced axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.percentile([1.0, 2.0, 3.0, 4.0, 5.0], 75))
        4.0
    """
    shares = convert(q, "float64") / 100.0
    return quantiles("percentile", x, shares, axis, method, keepdims)


@operation
def median(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the middle of the sorted elements over axes.

    It is the mean of the middle two elements if their number is even.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A floating tensor without the reduced axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.median([[5.0, 1.0, 3.0], [9.0, 7.0, 8.0]], axis=1))
        [3. 8.]
    """
    return quantiles("median", x, 0.5, axis, keepdims=keepdims)


# --- joint distributions --------------------------------------------------------------


@operation
def correlate(x1: TensorLike, x2: TensorLike, mode: str = "valid") -> Tensor:
    """Compute the cross-correlation of two vectors: their product sums at each shift.

    The result is y[k] = sum_n x1[n + k] * x2[n].

    Args:
        x1: (m,), numbers.
        x2: (n,), numbers.
        mode: the shifts of the result. "valid": shifts with full overlap, max(m, n) -
            min(m, n) + 1 of them. "same": the middle max(m, n) shifts. "full": all m +
            n - 1 shifts.

    Returns:
        A vector with the common floating dtype.

    Raises:
        ShapeError: an operand is not a vector, or is empty.

    Example:
        >>> from toolkit import ops
        >>> print(ops.correlate([1.0, 2.0, 3.0], [1.0, 10.0]))
        [21. 32.]
    """
    if mode not in ("valid", "same", "full"):
        raise unknown_choice("correlate: mode", mode, ("valid", "same", "full"))
    x1, x2 = floating(x1, x2)
    if x1.ndim != 1 or x2.ndim != 1 or 0 in (x1.size, x2.size):
        raise ShapeError(
            f"correlate: expected two vectors; received shapes {x1.shape}, {x2.shape}"
        )
    m, n = x1.size, x2.size
    every = bind(
        PRIMITIVES["conv"],
        reshape(x1, (1, m, 1)),
        reshape(x2, (n, 1, 1)),
        strides=(1,),
        padding=((n - 1, n - 1),),
        dilation=(1,),
        groups=1,
    )
    short, long = builtins.min(m, n), builtins.max(m, n)
    first = {"full": 0, "valid": short - 1, "same": short - 1 - short // 2}[mode]
    count = {"full": m + n - 1, "valid": long - short + 1, "same": long}[mode]
    if m < n:  # then the middle shifts are counted from the opposite end
        first = m + n - 1 - first - count
    return slice_axis(reshape(every, (m + n - 1,)), 0, first, first + count)


@operation
def corrcoef(x: TensorLike) -> Tensor:
    """Compute the Pearson correlation coefficients between the rows of a matrix.

    Args:
        x: (n, samples), or (samples,) for one variable.

    Returns:
        A floating tensor of shape (n, n) with elements in [-1, 1], or a scalar for a
        vector.

    Raises:
        ShapeError: `x` does not have 1 or 2 axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.corrcoef([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), 4))
        [[ 1. -1.]
         [-1.  1.]]
    """
    (x,) = floating(x)
    if x.ndim not in (1, 2):
        raise ShapeError(f"corrcoef: expected 1 or 2 axes; received {x.shape}")
    rows = reshape(x, (-1, x.shape[-1]))
    centered = rows - mean(rows, axis=1, keepdims=True)
    products = matmul(centered, transpose(centered))
    deviation = sqrt(sum(centered * centered, axis=1))
    y = products / expand_dims(deviation, 0) / expand_dims(deviation, 1)
    y = clip(y, -1.0, 1.0)
    return y if x.ndim == 2 else reshape(y, ())


@operation
def histogram(
    x: TensorLike, bins: Any = 10, range: Any = None
) -> tuple[Tensor, Tensor]:
    """Count the elements of a vector between adjacent edges.

    Args:
        x: (n,), numbers.
        bins: the number of bins of equal width, or the edges of the bins in ascending
            order.
        range: a pair of the outer edges if `bins` is a number. None means the extremes
            of `x`.

    Returns:
        A pair of the counts (bins,), with the dtype of `x` as in Keras, and the edges
        (bins + 1,). A value on an edge counts in the bin on its right, and a value on
        the last edge in the last bin.

    Raises:
        ShapeError: `x` is not a vector.

    Example:
        >>> from toolkit import ops
        >>> counts, edges = ops.histogram([0.5, 1.5, 1.7, 4.0], bins=2, range=(0, 4))
        >>> counts.tolist(), edges.tolist()
        ([3.0, 1.0], [0.0, 2.0, 4.0])
    """
    x = convert(x)
    dtype = "int32" if x.dtype == "bool" else x.dtype
    (x,) = floating(x)
    if x.ndim != 1:
        raise ShapeError(
            f"histogram: Input tensor must be 1-dimensional; received shape {x.shape}"
        )
    edges = _edges(x, bins, range) if is_int(bins) else convert(bins, x.dtype)
    count = edges.size - 1
    bins_of = bind(searchsorted_p, edges, x, side="right")
    last = slice_axis(edges, 0, count, count + 1)
    bins_of = where(equal(x, last), count, bins_of)
    # Bins 0 and count + 1 count the values outside the range.
    ones = full(x.shape, 1, "int32")
    blank = zeros((count + 2,), "int32")
    counts = bind(scatter_p, blank, bins_of, ones, axis=0, mode="add")
    return convert(slice_axis(counts, 0, 1, count + 1), dtype), edges


def _edges(x: Tensor, bins: int, limits: Any) -> Tensor:
    if bins < 1:
        raise ArgumentError(
            "histogram: Argument `bins` should be a non-negative integer, and at least "
            f"1; received {bins}"
        )
    if limits is not None and len(limits) != 2:
        raise ArgumentError(
            "histogram: Argument `range` must be a tuple of two elements; received "
            f"{limits}"
        )
    numbers = [limit for limit in limits or () if is_real(limit)]
    if len(numbers) == 2 and numbers[1] < numbers[0]:
        raise ArgumentError(
            "histogram: The second element of `range` must be greater than the first; "
            f"received {limits}"
        )
    if limits is not None:
        low, high = (convert(limit, x.dtype) for limit in limits)
    elif x.size == 0:
        low, high = convert(0, x.dtype), convert(1, x.dtype)
    else:
        low, high = min(x), max(x)
    half = where(equal(low, high), 0.5, convert(0, x.dtype))
    return linspace(low - half, high + half, bins + 1)


# --- along an axis --------------------------------------------------------------------


@operation
def diff(a: TensorLike, n: int = 1, axis: int = -1) -> Tensor:
    """Compute the differences x[i + 1] - x[i] along an axis.

    Args:
        a: numbers with at least 1 axis.
        n: the number of repetitions, >= 0. Each one reduces the extent of the axis by
            1.
        axis: the axis of the differences. The default is the last axis.

    Returns:
        A tensor with the dtype of `a`. Booleans give whether adjacent elements differ.

    Raises:
        ArgumentError: `n` is negative.
        ShapeError: `a` has no axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.diff([1, 4, 9, 16]))
        [3 5 7]
        >>> print(ops.diff([1, 4, 9, 16], n=2))
        [2 2]
    """
    x = convert(a)
    if n < 0:
        raise ArgumentError(f"diff: expected n >= 0; received {n}")
    if x.ndim == 0:
        raise ShapeError("diff: expected a tensor with axes; received a 0-d one")
    axis = normalize_axis("diff", axis, x.ndim)
    for _ in (None,) * n:
        length = x.shape[axis]
        right = slice_axis(x, axis, builtins.min(1, length), length)
        lower = slice_axis(x, axis, 0, builtins.max(length - 1, 0))
        x = not_equal(lower, right) if x.dtype == "bool" else right - lower
    return x


@operation
def trapezoid(
    y: TensorLike, x: TensorLike | None = None, dx: float = 1.0, axis: int = -1
) -> Tensor:
    """Integrate along an axis by the trapezoidal rule.

    Args:
        y: values of the function, of any shape.
        x: the coordinates of the values: (n,), or the shape of `y`. None means
            coordinates with the distance `dx`.
        dx: the distance between adjacent coordinates without `x`.
        axis: the axis of the integration. The default is the last axis.

    Returns:
        A floating tensor without the axis.

    Example:
        >>> from toolkit import ops
        >>> print(ops.trapezoid([0.0, 1.0, 4.0]))
        3.0
    """
    (y,) = floating(y)
    axis = normalize_axis("trapezoid", axis, y.ndim)
    if x is None:
        step = convert(dx, y.dtype)
    else:
        x = convert(x, y.dtype)
        if x.ndim == 1:
            x = reshape(x, (-1, *(1,) * (y.ndim - 1 - axis)))
        step = diff(x, axis=axis - y.ndim)
    n = y.shape[axis]
    heights = slice_axis(y, axis, 1, n) + slice_axis(y, axis, 0, n - 1)
    return sum(heights * step, axis=axis) * 0.5


@operation
def trace(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Sum the elements of a diagonal of matrices.

    Args:
        x: a tensor with at least 2 axes.
        offset: the diagonal. 0 is the main diagonal, positive numbers are above it, and
            negative numbers are below it.
        axis1: the axis of the rows.
        axis2: the axis of the columns.

    Returns:
        A tensor without the two axes, with the dtype of `sum`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.trace([[1, 2], [3, 4]]))
        5
    """
    return sum(diagonal(x, offset, axis1, axis2), axis=-1)


@operation
def cdist(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute the Euclidean distances between all pairs of rows of two matrices.

    Args:
        x: (..., m, d), points as rows.
        y: (..., n, d), points as rows.

    Returns:
        A floating tensor of shape (..., m, n).

    Raises:
        ShapeError: the rows have different extents.

    Example:
        >>> from toolkit import ops
        >>> print(ops.cdist([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]]))
        [[5. 1.]]
    """
    x, y = floating(x, y)
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1]:
        raise ShapeError(
            "cdist: expected rows of equal length; received shapes "
            f"{x.shape} and {y.shape}"
        )
    difference = expand_dims(x, -2) - expand_dims(y, -3)
    return sqrt(sum(difference * difference, axis=-1))


@operation
def extract_sequences(
    x: TensorLike, sequence_length: int, sequence_stride: int
) -> Tensor:
    """Extract overlapping frames of the last axis.

    Args:
        x: (..., n), numbers.
        sequence_length: the number of elements of a frame.
        sequence_stride: the number of elements between the starts of adjacent frames.

    Returns:
        A tensor of shape (..., frames, sequence_length) with the dtype of `x`.
        Incomplete frames are not included.

    Example:
        >>> from toolkit import ops
        >>> print(ops.extract_sequences([1, 2, 3, 4, 5], 3, 2))
        [[1 2 3]
         [3 4 5]]
    """
    x = convert(x)
    count = builtins.max((x.shape[-1] - sequence_length) // sequence_stride + 1, 0)
    if not count * sequence_length:
        empty = convert(np.zeros((count, sequence_length), "int32"))
        return bind(gather_p, x, empty, axis=x.ndim - 1)
    positions, run = sequence_runs(count, sequence_length, sequence_stride)
    used, last = run * (int(positions[-1, -1]) + 1), x.ndim - 1
    x = reshape(slice_axis(x, last, 0, used), (*x.shape[:-1], used // run, run))
    pieces = bind(gather_p, x, convert(positions), axis=last)
    return reshape(pieces, (*x.shape[:-2], count, sequence_length))


def sequence_runs(count: int, length: int, stride: int) -> tuple[np.ndarray, int]:
    """Return the runs of elements that make up overlapping frames, and their length.

    Args:
        count: number of frames.
        length: elements of a frame.
        stride: elements between the starts of frames.
    """
    run = math.gcd(length, stride)
    starts = index_range(count, dtype="int32", rows=length // run)[:, None]
    return starts * (stride // run) + np.arange(length // run, dtype="int32"), run
