"""`pad`: additional elements before and after each axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.ir.extents import has_extent
from toolkit.ops.checks import known_values
from toolkit.ops.index import gather_p
from toolkit.ops.ranges import check_range
from toolkit.ops.shape import broadcast_to, concatenate, flip, pad_p, slice_axis
from toolkit.ops.symbolic import operation

# Runs of adjacent elements of the last axis up to which a concatenation is faster than
# a gather. A gather along another axis copies longer blocks, and is always faster.
_MAX_RUNS = 9
_COPYING_MODES = {
    "circular": "wrap",
    "edge": "edge",
    "reflect": "reflect",
    "symmetric": "symmetric",
    "wrap": "wrap",
}


@operation
def pad(
    x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None
) -> Tensor:
    """Add elements before and after each axis of a tensor.

    Args:
        x: tensor of any shape.
        pad_width: a pair (before, after) for each axis; one pair, or one integer, for
            all axes.
        mode: "constant" adds `constant_values`, "edge" the outermost element. "reflect"
            mirrors the tensor without its outermost element, and "symmetric" with it.
            "wrap" (or "circular") continues at the opposite end. "empty" adds
            unspecified elements.
        constant_values: the value in mode "constant". None means 0.

    Returns:
        A tensor with larger extents and the dtype of `x`.

    Raises:
        ArgumentError: the mode is unsupported, or `constant_values` contradicts it.

    Example:
        >>> from toolkit import ops
        >>> print(ops.pad([1, 2, 3], 2))
        [0 0 1 2 3 0 0]
        >>> print(ops.pad([1, 2, 3], ((2, 0),), mode="reflect"))
        [3 2 1 2 3]
    """
    x = convert(x)
    widths = _pad_widths(x, pad_width)
    if mode not in ("constant", "empty", *_COPYING_MODES):
        raise unknown_choice("pad: mode", mode, ("constant", "empty", *_COPYING_MODES))
    if constant_values is not None and mode != "constant":
        raise ArgumentError(
            "pad: Argument `constant_values` can only be provided when "
            f"`mode == 'constant'`; received mode {mode!r}"
        )
    if mode in ("constant", "empty"):
        value = _pad_value(constant_values, x.dtype)
        return bind(pad_p, x, widths=widths, value=value)
    for axis, width in enumerate(widths):
        if width != (0, 0):
            x = _pad_by_copies(x, axis, width, _COPYING_MODES[mode])
    return x


def _pad_widths(x: Tensor, pad_width: Any) -> tuple[tuple[int, int], ...]:
    try:
        # An object array does not convert extents.
        dtype = object if has_extent(pad_width) else None
        pairs = np.broadcast_to(np.asarray(pad_width, dtype), (x.ndim, 2)).tolist()
    except ValueError:
        raise ShapeError(
            f"pad: expected (before, after) for each of {x.ndim} axes; "
            f"received {pad_width!r}"
        ) from None
    widths = tuple((_as_int(low), _as_int(high)) for low, high in pairs)
    if any(width < 0 for pair in widths for width in pair):
        raise ArgumentError(f"pad: widths must be >= 0; received {pad_width!r}")
    return widths


def _as_int(width: int) -> int:
    return width if has_extent(width) else int(width)


def _pad_value(value: Any, dtype: str) -> float:
    if value is None:
        return 0
    if not isinstance(value, (bool, int, float)):
        advice = "pass `constant_values` as a Python number"
        value = known_values("pad", convert(value), advice).item()
    return float(value) if dtypes.is_float(dtype) else int(value)


def _pad_by_copies(x: Tensor, axis: int, width: tuple[int, int], mode: str) -> Tensor:
    n = x.shape[axis]
    if n == 0:
        raise ShapeError(f"pad: axis {axis} of shape {x.shape} has no elements to copy")
    check_range(n + sum(width))
    sources = np.pad(np.arange(n, dtype="int32"), width, mode=mode)  # type: ignore[call-overload]
    low = width[0]
    before, after = sources[:low].tolist(), sources[low + n :].tolist()
    # The run of the whole axis needs no copy before the concatenation.
    runs = [*_runs(before), range(n), *_runs(after)]
    if axis < x.ndim - 1 or len(runs) > _MAX_RUNS:
        return bind(gather_p, x, convert(sources), axis=axis)
    return concatenate([_run_of(x, axis, run) for run in runs], axis)


def _runs(sources: Sequence[int]) -> list[Sequence[int]]:
    """Split indices into runs with a step of -1, 0 or 1."""
    steps = [b - a for a, b in pairwise(sources)]
    runs, start = [], 0
    while start < len(sources):
        stop = start + 1
        if stop < len(sources) and abs(steps[start]) <= 1:
            while stop < len(sources) and steps[stop - 1] == steps[start]:
                stop += 1
        runs.append(sources[start:stop])
        start = stop
    return runs


def _run_of(x: Tensor, axis: int, run: Sequence[int]) -> Tensor:
    """Return the elements of x with the indices of a run."""
    first, last = run[0], run[-1]
    if first <= last:
        y = slice_axis(x, axis, first, last + 1)
    else:
        y = flip(slice_axis(x, axis, last, first + 1), axis)
    if len(run) == y.shape[axis]:
        return y
    return broadcast_to(y, (*x.shape[:axis], len(run), *x.shape[axis + 1 :]))
