"""Sums, means, minima and maxima of the rows of each segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import check_within
from toolkit.compat.tensorflow.boundary import operations
from toolkit.compat.tensorflow.views import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError


def _rows(function: str, data: Any, ids: Any, count: int) -> tuple[Tensor, Tensor]:
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


def _sizes(ids: Tensor, count: int, rank: int) -> Tensor:
    """Return the number of rows of each segment, in a shape that broadcasts to the
    rank."""
    sizes = ops.segment_sum(ops.ones(ids.shape, "int32"), ids, count)
    return ops.reshape(sizes, (count, *[1] * (rank - 1)))


def _quotient(total: Tensor, sizes: Tensor) -> Tensor:
    """Return the mean; for integers it is truncated as in TensorFlow."""
    sizes = ops.maximum(sizes, 1)
    if total.dtype in dtypes.INEXACT:
        return total / ops.cast(sizes, total.dtype)
    magnitude = ops.floor_divide(ops.absolute(total), ops.cast(sizes, total.dtype))
    return ops.sign(total) * magnitude


_EXTREMES: dict[str, Callable[[str], float]] = {
    "max": lambda dtype: _limits(dtype)[0],
    "min": lambda dtype: _limits(dtype)[1],
}


def _limits(dtype: str) -> tuple[Any, Any]:
    """Return the lowest and the highest finite number."""
    if dtypes.is_float(dtype):
        return -dtypes.largest(dtype), dtypes.largest(dtype)
    return dtypes.lowest(dtype), dtypes.highest(dtype)


def _of_segments(
    name: str, rows: Tensor, ids: Tensor, count: int, empty: Any
) -> Tensor:
    """Return a minimum or maximum of each segment; `empty` for one without rows."""
    result = getattr(ops, f"segment_{name}")(rows, ids, count)
    if empty is None:
        return result
    is_empty = ops.equal(_sizes(ids, count, result.ndim), 0)
    return ops.where(is_empty, convert(empty, result.dtype), result)


# --- unsorted segments ----------------------------------------------------------------


def _unsorted(name: str) -> Any:
    def reduce_segments(
        data: Any, segment_ids: Any, num_segments: Any, name: Any = None
    ) -> Tensor:
        count = int(num_segments)
        rows, ids = _rows(f"unsorted_segment_{kind}", data, segment_ids, count)
        empty = _EXTREMES[kind](str(rows.dtype)) if kind in _EXTREMES else None
        return _of_segments(kind, rows, ids, count, empty)

    kind = name
    reduce_segments.__name__ = reduce_segments.__qualname__ = f"unsorted_segment_{name}"
    reduce_segments.__doc__ = (
        f"The {name} of the rows of each segment; those with a negative id do not "
        "count.\n\n    A segment without rows has 0 as its sum, 1 as its product, and "
        "as its maximum\n    or minimum the lowest or highest number of the dtype."
    )
    return reduce_segments


unsorted_segment_max: Any = _unsorted("max")
unsorted_segment_min: Any = _unsorted("min")
unsorted_segment_prod: Any = _unsorted("prod")
unsorted_segment_sum: Any = _unsorted("sum")


def unsorted_segment_mean(
    data: Any, segment_ids: Any, num_segments: Any, name: Any = None
) -> Tensor:
    """Return the mean of each segment, 0 for an empty one; float64 for integers."""
    return _scaled("unsorted_segment_mean", data, segment_ids, num_segments, False)


def unsorted_segment_sqrt_n(
    data: Any, segment_ids: Any, num_segments: Any, name: Any = None
) -> Tensor:
    """Return the sum of each segment, divided by the square root of its size."""
    return _scaled("unsorted_segment_sqrt_n", data, segment_ids, num_segments, True)


def _scaled(name: str, data: Any, ids: Any, num_segments: Any, root: bool) -> Tensor:
    count = int(num_segments)
    rows, ids = _rows(name, data, ids, count)
    if rows.dtype not in dtypes.INEXACT:
        rows = ops.cast(rows, "float64")
    total = ops.segment_sum(rows, ids, count)
    sizes = ops.cast(ops.maximum(_sizes(ids, count, total.ndim), 1), total.dtype)
    return total / (ops.sqrt(sizes) if root else sizes)


# --- sorted segments ------------------------------------------------------------------


def _sorted(name: str) -> Any:
    def reduce_segments(data: Any, segment_ids: Any, name: Any = None) -> Tensor:
        what = f"segment_{kind}"
        known = np.asarray(convert(segment_ids).numpy())
        if known.ndim != 1 or np.any(np.diff(known) < 0) or np.any(known < 0):
            raise ArgumentError(
                f"{what}: expected segment_ids that are a vector, sorted and not "
                f"negative; received {known.tolist()}"
            )
        count = int(known[-1]) + 1 if known.size else 0
        rows, ids = _rows(what, data, known, count)
        if kind == "mean":
            total = ops.segment_sum(rows, ids, count)
            return _quotient(total, _sizes(ids, count, total.ndim))
        return _of_segments(kind, rows, ids, count, 0 if kind in _EXTREMES else None)

    kind = name
    reduce_segments.__name__ = reduce_segments.__qualname__ = f"segment_{name}"
    reduce_segments.__doc__ = (
        f"The {name} of the rows of each segment.\n\n    The ids are known, sorted and "
        "not negative. A segment without rows has "
        f"{1 if name == 'prod' else 0}."
    )
    return reduce_segments


segment_max: Any = _sorted("max")
segment_mean: Any = _sorted("mean")
segment_min: Any = _sorted("min")
segment_prod: Any = _sorted("prod")
segment_sum: Any = _sorted("sum")


operations(__name__)
