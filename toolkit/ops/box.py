"""Boxes of a tensor at computed positions: `slice` and `slice_update`."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ShapeError
from toolkit.ir import Kind, Primitive, Spec, letters, primitive
from toolkit.ops.creation import zeros
from toolkit.ops.index import as_indices, columns_of
from toolkit.ops.shape import reshape, slice_p
from toolkit.ops.symbolic import operation

Shape = tuple[int, ...]


def _box_spec(op: str, x: Spec, sizes: Shape, starts: Sequence[Any]) -> None:
    """Check that a box of `sizes` fits inside x."""
    fits = len(starts) == len(sizes) == x.ndim and builtins.all(
        0 <= size <= n for size, n in zip(sizes, x.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"{op}: a box of shape {sizes} with {len(starts)} starts does not fit into "
            f"shape {x.shape}"
        )


def _dynamic_slice_spec(x: Spec, *starts: Spec, sizes: Shape) -> Spec:
    _box_spec("slice", x, sizes, starts)
    return x.with_shape(sizes)


def _dynamic_update_spec(x: Spec, update: Spec, *starts: Spec) -> Spec:
    _box_spec("slice_update", x, update.shape, starts)
    return x


def _dynamic_slice_vjp(
    g: Tensor, y: Tensor, x: Tensor, *starts: Tensor, sizes: Shape
) -> tuple[Any, ...]:
    dx = bind(dynamic_update_slice_p, zeros(x.shape, g.dtype), g, *starts)
    return dx, *(None for _ in starts)


def _dynamic_update_vjp(
    g: Tensor, y: Tensor, x: Tensor, update: Tensor, *starts: Tensor
) -> tuple[Any, ...]:
    dx = bind(dynamic_update_slice_p, g, zeros(update.shape, g.dtype), *starts)
    du = bind(dynamic_slice_p, g, *starts, sizes=update.shape)
    return dx, du, *(None for _ in starts)


def _box_axes(shape: Shape, sizes: Shape, rule: str) -> str:
    """Return the axis rule: an axis that the box fills may be split."""
    pairs = zip(shape, sizes, letters(len(shape)), strict=True)
    return rule.format("".join(a if n == size else "_" for n, size, a in pairs))


dynamic_slice_p: Primitive = primitive(
    "dynamic_slice",
    Kind.INDEX,
    _dynamic_slice_spec,
    vjp=_dynamic_slice_vjp,
    axes=lambda x, *starts, sizes: _box_axes(x.shape, sizes, "{0},->{0}"),
)
dynamic_update_slice_p: Primitive = primitive(
    "dynamic_update_slice",
    Kind.INDEX,
    _dynamic_update_spec,
    vjp=_dynamic_update_vjp,
    axes=lambda x, update, *starts: _box_axes(x.shape, update.shape, "{0},{0},->{0}"),
)


def _starts(op: str, start_indices: Any, ndim: int) -> list[Any]:
    """Return the starts of a box:

    Python integers unchanged, all else as 0-d tensors.
    """
    if isinstance(start_indices, np.ndarray):
        start_indices = start_indices.tolist()
    elif not isinstance(start_indices, (list, tuple)):
        start_indices = columns_of(as_indices(op, start_indices))
    if len(start_indices) != ndim:
        raise ShapeError(
            f"{op}: the number of dimensions in `start_indices` must match the number "
            f"of dimensions in `inputs`; received {len(start_indices)} and {ndim}"
        )
    return [
        start if isinstance(start, int) else reshape(as_indices(op, start), ())
        for start in start_indices
    ]


@operation
def slice(inputs: Any, start_indices: Any, shape: Any) -> Tensor:
    """Return the box of a tensor that starts at indices.

    Args:
        inputs: a tensor with n axes.
        start_indices: n integers, which may be tensors. Starts are limited so that the
            box fits.
        shape: the shape of the result. -1 means all elements after a start, which must
            be an integer.

    Returns:
        A tensor of shape `shape` with the dtype of `inputs`.

    Raises:
        ShapeError: `shape` does not have n extents.

    Example:
        >>> from toolkit import ops
        >>> print(ops.slice([[1, 2, 3], [4, 5, 6]], [0, 1], [2, 2]))
        [[2 3]
         [5 6]]
    """
    inputs = convert(inputs)
    starts = _starts("slice", start_indices, inputs.ndim)
    if len(shape) != inputs.ndim:
        raise ShapeError(
            "slice: the number of dimensions in `inputs` must match the number of "
            f"dimensions in `shape`; received {inputs.shape} and {tuple(shape)}"
        )
    sizes = tuple(
        n - int(start) if size == -1 else int(size)
        for size, start, n in zip(shape, starts, inputs.shape, strict=True)
    )
    if not builtins.all(isinstance(start, int) for start in starts):
        starts = [convert(start) for start in starts]
        return bind(dynamic_slice_p, inputs, *starts, sizes=sizes)
    _box_spec("slice", inputs.spec, sizes, starts)
    firsts = tuple(
        min(max(start, 0), n - size)
        for start, size, n in zip(starts, sizes, inputs.shape, strict=True)
    )
    stops = tuple(map(operator.add, firsts, sizes))
    return bind(slice_p, inputs, start=firsts, stop=stops, step=(1,) * inputs.ndim)


@operation
def slice_update(inputs: Any, start_indices: Any, updates: Any) -> Tensor:
    """Return a copy of a tensor in which a box is replaced.

    Args:
        inputs: a tensor with n axes.
        start_indices: n integers, which may be tensors. Starts are limited so that the
            box fits.
        updates: a tensor with n axes, not larger than `inputs` along any axis.

    Returns:
        A tensor with the shape and dtype of `inputs`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.slice_update([1, 2, 3, 4], [1], [20, 30]))
        [ 1 20 30  4]
    """
    inputs = convert(inputs)
    updates = convert(updates, inputs.dtype)
    starts = map(convert, _starts("slice_update", start_indices, inputs.ndim))
    return bind(dynamic_update_slice_p, inputs, updates, *starts)
