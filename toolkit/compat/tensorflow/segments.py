"""Sums, means, minima and maxima of the rows of each segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import check_within
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import TensorLike


def _flatten_rows(
    function: str, data: Any, ids: Any, count: int
) -> tuple[Tensor, Tensor]:
    """Return rows and the segment of each: ids can have several leading axes of
    data."""
    data, ids = convert(data), convert(ids)
    if tuple(data.shape[: ids.ndim]) != tuple(ids.shape):
        raise ShapeError(
            f"{function}: expected segment_ids of the first extents of data, "
            f"{tuple(data.shape)}; received shape {tuple(ids.shape)}"
        )
    check_within(function, ids, count, lowest=None)
    row_shape = data.shape[ids.ndim :]
    return ops.reshape(data, (-1, *row_shape)), ops.reshape(ids, (-1,))


def _segment_sizes(ids: Tensor, count: int, rank: int) -> Tensor:
    """Return the number of rows of each segment, in a shape that broadcasts to the
    rank."""
    sizes = ops.segment_sum(ops.ones(ids.shape, "int32"), ids, count)
    return ops.reshape(sizes, (count, *[1] * (rank - 1)))


def _segment_mean(total: Tensor, sizes: Tensor) -> Tensor:
    """Return the mean; for integers it is truncated as in TensorFlow."""
    sizes = ops.maximum(sizes, 1)
    if total.dtype in dtypes.INEXACT:
        return total / ops.cast(sizes, total.dtype)
    magnitude = ops.floor_divide(ops.absolute(total), ops.cast(sizes, total.dtype))
    return ops.sign(total) * magnitude


_EXTREMES: dict[str, Callable[[str], float]] = {
    "max": lambda dtype: _finite_limits(dtype)[0],
    "min": lambda dtype: _finite_limits(dtype)[1],
}


def _finite_limits(dtype: str) -> tuple[Any, Any]:
    """Return the lowest and the highest finite number."""
    if dtypes.is_float(dtype):
        return -dtypes.largest(dtype), dtypes.largest(dtype)
    return dtypes.lowest(dtype), dtypes.highest(dtype)


def _reduce_segments(
    name: str, rows: Tensor, ids: Tensor, count: int, empty: float | None
) -> Tensor:
    """Return a minimum or maximum of each segment; `empty` for one without rows."""
    result = getattr(ops, f"segment_{name}")(rows, ids, count)
    if empty is None:
        return result
    is_empty = ops.equal(_segment_sizes(ids, count, result.ndim), 0)
    return ops.where(is_empty, convert(empty, result.dtype), result)


# --- unsorted segments ----------------------------------------------------------------


def _make_unsorted(name: str) -> Any:
    def reduce_segments(
        data: TensorLike,
        segment_ids: TensorLike,
        num_segments: Any,
        name: str | None = None,
    ) -> Tensor:
        count = int(num_segments)
        rows, ids = _flatten_rows(f"unsorted_segment_{kind}", data, segment_ids, count)
        empty = _EXTREMES[kind](str(rows.dtype)) if kind in _EXTREMES else None
        return _reduce_segments(kind, rows, ids, count, empty)

    kind = name
    reduce_segments.__name__ = reduce_segments.__qualname__ = f"unsorted_segment_{name}"
    reduce_segments.__doc__ = (
        f"Compute the {name} of the rows of each segment, without rows with negative "
        "ids.\n\n    A segment without rows has 0 as its sum, 1 as its product, and "
        "as its maximum\n    or minimum the lowest or highest number of the dtype."
    )
    return reduce_segments


unsorted_segment_max: Any = _make_unsorted("max")
unsorted_segment_min: Any = _make_unsorted("min")
unsorted_segment_prod: Any = _make_unsorted("prod")
unsorted_segment_sum: Any = _make_unsorted("sum")


def unsorted_segment_mean(
    data: TensorLike,
    segment_ids: TensorLike,
    num_segments: TensorLike,
    name: str | None = None,
) -> Tensor:
    """Return the mean of each segment, 0 for an empty one; float64 for integers."""
    return _scaled("unsorted_segment_mean", data, segment_ids, num_segments, False)


def unsorted_segment_sqrt_n(
    data: TensorLike,
    segment_ids: TensorLike,
    num_segments: TensorLike,
    name: str | None = None,
) -> Tensor:
    """Return the sum of each segment, divided by the square root of its size."""
    return _scaled("unsorted_segment_sqrt_n", data, segment_ids, num_segments, True)


def _scaled(
    name: str, data: TensorLike, ids: TensorLike, num_segments: Any, root: bool
) -> Tensor:
    count = int(num_segments)
    rows, ids = _flatten_rows(name, data, ids, count)
    if rows.dtype not in dtypes.INEXACT:
        rows = ops.cast(rows, "float64")
    total = ops.segment_sum(rows, ids, count)
    sizes = ops.cast(
        ops.maximum(_segment_sizes(ids, count, total.ndim), 1), total.dtype
    )
    return total / (ops.sqrt(sizes) if root else sizes)


# --- sorted segments ------------------------------------------------------------------


def _make_sorted(name: str) -> Any:
    def reduce_segments(
        data: TensorLike, segment_ids: TensorLike, name: str | None = None
    ) -> Tensor:
        function_name = f"segment_{kind}"
        static_ids = np.asarray(convert(segment_ids).numpy())
        if (
            static_ids.ndim != 1
            or np.any(np.diff(static_ids) < 0)
            or np.any(static_ids < 0)
        ):
            raise ArgumentError(
                f"{function_name}: expected segment_ids to be a sorted, nonnegative "
                f"vector; received {static_ids.tolist()}"
            )
        count = int(static_ids[-1]) + 1 if static_ids.size else 0
        rows, ids = _flatten_rows(function_name, data, static_ids, count)
        if kind == "mean":
            total = ops.segment_sum(rows, ids, count)
            return _segment_mean(total, _segment_sizes(ids, count, total.ndim))
        return _reduce_segments(
            kind, rows, ids, count, 0 if kind in _EXTREMES else None
        )

    kind = name
    reduce_segments.__name__ = reduce_segments.__qualname__ = f"segment_{name}"
    reduce_segments.__doc__ = (
        f"The {name} of the rows of each segment.\n\n    The ids are known, sorted and "
        "not negative. A segment without rows has "
        f"{1 if name == 'prod' else 0}."
    )
    return reduce_segments


segment_max: Any = _make_sorted("max")
segment_mean: Any = _make_sorted("mean")
segment_min: Any = _make_sorted("min")
segment_prod: Any = _make_sorted("prod")
segment_sum: Any = _make_sorted("sum")


make_operations(__name__)
