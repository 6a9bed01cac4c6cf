"""Indexing as in NumPy: x[1, :, None, ..., mask], for tensors and symbols."""

from __future__ import annotations

import math
from operator import index
from typing import Any, NamedTuple, cast

import numpy as np

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, ArgumentTypeError, OutOfRangeError, ShapeError
from toolkit.ir.extents import Extent, has_extent, range_length
from toolkit.ops.checks import broadcast_shapes
from toolkit.ops.elementwise import nonzero
from toolkit.ops.index import as_indices, flat_indices, gather_p
from toolkit.ops.shape import broadcast_to, moveaxis, reshape, slice_axis, slice_p
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


@operation
def get_item(x: TensorLike, key: Any) -> Tensor:
    """Return x[key], as in NumPy.

    Args:
        x: tensor of any shape.
        key: an integer, a slice, None, Ellipsis, an array of integers or booleans, or a
            tuple of them. A list with slices, None or Ellipsis counts as a tuple.
            Integers may be tensors. Boolean arrays need values: they are not possible
            inside a traced function.

    Returns:
        A tensor with the dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> ops.get_item([[1, 2], [3, 4]], (slice(None), 0)).tolist()
        [1, 3]
    """
    x = convert(x)
    if type(key) is int and x.shape:  # fast path for the most frequent case
        i = _position(x, 0, key)
        return reshape(slice_axis(x, 0, i, i + 1), x.shape[1:])
    if isinstance(key, list) and any(isinstance(k, _NO_NUMBERS) for k in key):
        key = tuple(key)
    items = _expanded(x, key if isinstance(key, tuple) else (key,))
    plan = _plan(x, items)
    y = x
    if not plan.is_full:
        y = bind(slice_p, y, start=plan.start, stop=plan.stop, step=plan.step)
    if y.shape != plan.shape:
        y = reshape(y, plan.shape)
    return _gathered(y, plan) if plan.arrays else y


_NO_NUMBERS = (slice, type(None), type(Ellipsis))


class _Mask:
    """The indices along the i-th axis of a boolean array."""

    def __init__(self, shape: tuple[int, ...], i: int, positions: Any) -> None:
        self.extent = shape[i]
        self.index = convert(positions, "int32")


def _expanded(x: Tensor, key: tuple[Any, ...]) -> list[Any]:
    """Return the key with masks as index arrays and slices for all other axes."""
    items: list[Any] = []
    for item in key:
        if item is None or isinstance(item, (int, np.integer, slice)):
            if isinstance(item, (bool, np.bool_)):
                raise ArgumentError("indexing: a single boolean is not an index")
            items.append(item)
        elif item is Ellipsis:
            if any(other is Ellipsis for other in items):
                raise ArgumentError("indexing: expected at most one Ellipsis")
            items.append(item)
        else:
            items += _arrays(item)
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > x.ndim:
        raise ShapeError(
            f"indexing: received {used} indices for a tensor with {x.ndim} axes "
            f"(shape {x.shape})"
        )
    full_slices = [slice(None)] * (x.ndim - used)
    position = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    if position is None:
        return items + full_slices
    return items[:position] + full_slices + items[position + 1 :]


def _arrays(item: Any) -> list[Any]:
    """Return an array in a key as integer tensors; a mask of n axes becomes n."""
    try:
        index = convert(item)
    except (TypeError, ArgumentError):
        raise ArgumentTypeError(
            "indexing: expected integers, slices, None, Ellipsis or arrays; "
            f"received {item!r}"
        ) from None
    if index.dtype != "bool":
        return [as_indices("indexing", index)]
    if index.ndim == 0:
        raise ArgumentError("indexing: a single boolean is not an index")
    return [_Mask(index.shape, i, indices) for i, indices in enumerate(nonzero(index))]


class _Plan(NamedTuple):
    """Plan: slice x, reshape it to `shape`, gather along the axes of `arrays`."""

    start: tuple[int, ...]
    stop: tuple[int, ...]
    step: tuple[int, ...]
    shape: tuple[int, ...]
    arrays: dict[int, Tensor]  # axis after the reshape -> indices
    together: bool  # whether the index arrays are adjacent in the key
    is_full: bool  # whether the slice takes all elements


def _plan(x: Tensor, items: list[Any]) -> _Plan:
    bounds: list[tuple[int, int, int]] = []
    shape: list[int] = []
    arrays: dict[int, Tensor] = {}
    positions = []  # indices of integers and arrays in the key
    for position, item in enumerate(items):
        axis = len(bounds)
        if item is None:
            shape.append(1)
        elif isinstance(item, slice):
            bound = _bounds(item, x.shape[axis])
            count = range_length(*bound)
            # In the primitive, from -1 to -1 backwards means all elements, not none.
            bounds.append(bound if count else (0, 0, 1))
            shape.append(count)
        elif isinstance(item, (int, np.integer)) or type(item) is Extent:
            number = cast(int, item) if isinstance(item, Extent) else int(item)
            i = _position(x, axis, number)
            bounds.append((i, i + 1, 1))
            positions.append(position)
        else:
            arrays[len(shape)] = _checked(x, axis, item)
            bounds.append((0, x.shape[axis], 1))
            shape.append(x.shape[axis])
            positions.append(position)
    together = not positions or positions[-1] - positions[0] < len(positions)
    is_full = all(b == (0, n, 1) for b, n in zip(bounds, x.shape, strict=True))
    start, stop, step = zip(*bounds, strict=True) if bounds else ((), (), ())
    return _Plan(start, stop, step, tuple(shape), arrays, together, is_full)


def _bounds(item: slice, n: int) -> tuple[int, int, int]:
    """Return start, stop and step of a slice, as `slice.indices`, also of extents."""
    if not has_extent((item.start, item.stop, item.step, n)):
        return item.indices(n)
    step = 1 if item.step is None else index(item.step)
    first, last = (0, n) if step > 0 else (-1, n - 1)

    def clip(position: int | None, default: int) -> int:
        if position is None:
            return default
        position = position if type(position) is Extent else index(position)
        position = position + n if position < 0 else position
        return min(max(position, first), last)

    ends = (first, last) if step > 0 else (last, first)
    start, stop = map(clip, (item.start, item.stop), ends)
    return start, stop, step


def _position(x: Tensor, axis: int, i: int) -> int:
    n = x.shape[axis]
    if not -n <= i < n:
        raise OutOfRangeError(
            f"index {i} is out of range for axis {axis} with {n} elements "
            f"(shape {x.shape})"
        )
    return i % n


def _checked(x: Tensor, axis: int, item: Any) -> Tensor:
    if not isinstance(item, _Mask):
        return item
    if item.extent != x.shape[axis]:
        raise OutOfRangeError(
            f"boolean index: axis {axis} has {x.shape[axis]} elements, the index "
            f"{item.extent}"
        )
    return item.index


def _gathered(x: Tensor, plan: _Plan) -> Tensor:
    """Index x by arrays along some axes; their broadcast shape replaces those axes.

    The new axes are at the first array if all arrays and integers of the key are
    adjacent, else first.
    """
    axes = sorted(plan.arrays)
    common = broadcast_shapes("indexing", *(plan.arrays[a].shape for a in axes))
    columns = [broadcast_to(plan.arrays[axis], common) for axis in axes]
    first = axes[0] if plan.together else 0
    targets = list(range(first, first + len(axes)))
    x = x if axes == targets else moveaxis(x, axes, targets)
    extents = x.shape[first : first + len(axes)]
    flat = (*x.shape[:first], math.prod(extents), *x.shape[first + len(axes) :])
    return bind(gather_p, reshape(x, flat), flat_indices(columns, extents), axis=first)
