"""Sums, means, minima and maxima of ragged rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow import segments
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.ragged_values import (
    count_values,
    gather_values,
    reshape_values,
)
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.type_aliases import Axis, TensorLike

_Function = Callable[..., Any]
_SEGMENTS = {name: f"unsorted_segment_{name}" for name in ("sum", "prod", "max", "min")}


def _reduction(kind: str) -> _Function:
    def reduce_rows(
        function: _Function,
        input_tensor: RaggedTensor,
        axis: Axis | None = None,
        keepdims: bool = False,
        name: str | None = None,
    ) -> Any:
        rows = input_tensor
        axes = range(rows.ndim) if axis is None else np.atleast_1d(axis)
        sorted_axes = sorted({int(n) % rows.ndim for n in axes}, reverse=True)
        if len(sorted_axes) == rows.ndim:
            total = function(rows.flat_values)
            return reshape_values(total, (1,) * rows.ndim) if keepdims else total
        if len(sorted_axes) > 1 and kind not in (
            "sum",
            "prod",
            "max",
            "min",
            "any",
            "all",
        ):
            raise ArgumentError(
                f"reduce_{kind}: expected one axis of ragged rows, or all; received "
                f"{axis}"
            )
        for axis_index in sorted_axes:
            rows = _along(kind, function, rows, axis_index)
            if keepdims:
                rows = RaggedTensor.operations["expand_dims"](
                    function, rows, axis_index
                )
        return rows

    return reduce_rows


def _along(kind: str, function: _Function, rows: RaggedTensor, axis: int) -> Any:
    if not isinstance(rows, RaggedTensor):
        return function(rows, axis)
    if axis > 1:
        return rows.with_values(_along(kind, function, rows.values, axis - 1))
    if axis == 0:
        splits = np.array([0, rows.count])
        return _grouped(kind, RaggedTensor(rows, splits))[0]
    return _grouped(kind, rows)


def _grouped(kind: str, rows: RaggedTensor) -> Any:
    """Reduce over the values of each row; the values can also be rows."""
    ids, inner = rows.rowids(), rows.values
    targets: Any = None
    while isinstance(inner, RaggedTensor):
        # Each value of a row is a row: reduce over values with the same index.
        count = rows.count if targets is None else targets.values_count
        lengths = np.zeros(count, int)
        np.maximum.at(lengths, ids, inner.lengths)
        splits = np.concatenate([[0], np.cumsum(lengths)])
        targets = _Targets(targets, splits)
        columns = (
            np.arange(count_values(inner.values)) - inner.splits[:-1][inner.rowids()]
        )
        ids = splits[:-1][ids[inner.rowids()]] + columns
        inner = inner.values
    count = rows.count if targets is None else targets.values_count
    reduced = _segments(kind, inner, ids, count)
    return reduced if targets is None else targets.of(reduced)


class _Targets:
    """The nested row structure of a reduction's result."""

    def __init__(self, outer: _Targets | None, splits: Any) -> None:
        self.outer, self.splits = outer, splits
        self.values_count = int(splits[-1])

    def of(self, values: TensorLike) -> Any:
        """Return values in these rows."""
        rows = RaggedTensor(values, self.splits)
        return rows if self.outer is None else self.outer.of(rows)


def _segments(kind: str, values: TensorLike, ids: TensorLike, count: int) -> Tensor:
    ids = np.asarray(ids, "int64")
    if kind in _SEGMENTS:
        return getattr(segments, _SEGMENTS[kind])(values, ids, count)
    if kind in ("any", "all"):
        is_match = values if kind == "any" else ops.logical_not(values)
        total = segments.unsorted_segment_sum(ops.cast(is_match, "int32"), ids, count)
        result = ops.greater(total, 0)
        return result if kind == "any" else ops.logical_not(result)
    if kind == "logsumexp":
        maxima = segments.unsorted_segment_max(values, ids, count)
        scaled = ops.exp(values - gather_values(maxima, ids))
        return ops.log(segments.unsorted_segment_sum(scaled, ids, count)) + maxima
    mean = _mean(values, ids, count)
    if kind == "mean":
        return mean
    variance = _mean(ops.square(values - gather_values(mean, ids)), ids, count)
    return variance if kind == "variance" else ops.sqrt(variance)


def _mean(values: Any, ids: Any, count: int) -> Tensor:
    total = segments.unsorted_segment_sum(values, ids, count)
    shape = (count, *[1] * (len(total.shape) - 1))
    sizes = np.bincount(ids, minlength=count).reshape(shape)
    if dtypes.is_integer(str(values.dtype)):
        return ops.floor_divide(total, np.maximum(sizes, 1).astype(str(values.dtype)))
    return total / ops.cast(sizes, values.dtype)


REDUCTIONS: dict[str, _Function] = {
    f"reduce_{kind}": _reduction(kind)
    for kind in "all any logsumexp max mean min prod std sum variance".split()
}
