"""Slices, masked selection, and padding of tensors."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.arguments import extents, refuse
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import TensorLike


def pad(
    tensor: TensorLike,
    paddings: TensorLike,
    mode: str = "CONSTANT",
    constant_values: TensorLike = 0,
    name: str | None = None,
) -> Tensor:
    """Pad a tensor with a constant, or with its reflected or symmetric values."""
    widths = [tuple(map(int, pair)) for pair in np.asarray(paddings)]
    shape, kind = tuple(convert(tensor).shape), mode.upper()
    if kind not in ("CONSTANT", "REFLECT", "SYMMETRIC"):
        raise ArgumentError(
            f"pad: expected CONSTANT, REFLECT or SYMMETRIC as mode; received {mode!r}"
        )
    if len(widths) != len(shape):
        raise ShapeError(
            f"pad: expected a pair of paddings for each axis of shape {shape}; "
            f"received {widths}"
        )
    if kind != "CONSTANT":
        edge = int(kind == "REFLECT")  # the edge element is not repeated
        if any(builtins.max(w) > n - edge for w, n in zip(widths, shape, strict=True)):
            raise ArgumentError(
                f"pad: expected paddings within shape {shape} for {kind}; received "
                f"{widths}"
            )
        return ops.pad(tensor, widths, mode.lower())
    return ops.pad(tensor, widths, constant_values=constant_values)


def slice(
    input_: TensorLike, begin: TensorLike, size: TensorLike, name: str | None = None
) -> Tensor:
    """Return a slice from `begin` with a size; -1 takes all remaining elements."""
    x, begin, size = convert(input_), extents(begin), extents(size)
    pairs = list(zip(begin, size, x.shape, strict=True))
    if any(b < 0 or s < -1 or b + builtins.max(s, 0) > n for b, s, n in pairs):
        raise ArgumentError(
            f"slice: expected a slice within shape {tuple(x.shape)}; received "
            f"begin={begin}, size={size}"
        )
    return x[tuple(builtins.slice(b, n if s == -1 else b + s) for b, s, n in pairs)]


def strided_slice(
    input_: TensorLike,
    begin: TensorLike,
    end: Any,
    strides: int | Sequence[int] | None = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return x[begin:end:strides]; the bits of a mask change the meaning of an item.

    Args:
        input_: the tensor.
        begin, end, strides: integers for the first axes; steps of 1 if None.
        begin_mask, end_mask: no bound.
        ellipsis_mask: `...`
        new_axis_mask: a new axis.
        shrink_axis_mask: only the element at begin.
        var: only None.
    """
    refuse("strided_slice", var=(var, None))
    begin, end = extents(begin), extents(end)
    steps = (1,) * len(begin) if strides is None else extents(strides)
    key: list[Any] = []
    for i, (b, e, step) in enumerate(zip(begin, end, steps, strict=True)):
        bit = 1 << i
        if ellipsis_mask & bit:
            key.append(...)
        elif new_axis_mask & bit:
            key.append(None)
        elif shrink_axis_mask & bit:
            key.append(b)
        else:
            low, high = (
                (None if begin_mask & bit else b),
                (None if end_mask & bit else e),
            )
            key.append(builtins.slice(low, high, step))
    return convert(input_)[tuple(key)]


def boolean_mask(
    tensor: Any, mask: Any, axis: int | None = None, name: str | None = None
) -> Tensor:
    """Select the parts of a tensor where a mask over its axes, from `axis` on, is
    true."""
    tensor, mask, axis = convert(tensor), np.asarray(mask, bool), int(axis or 0)
    before, after = tensor.shape[:axis], tensor.shape[axis + mask.ndim :]
    if tensor.shape[axis : axis + mask.ndim] != mask.shape:
        raise ShapeError(
            f"boolean_mask: expected a mask of the extents of {tuple(tensor.shape)} "
            f"from axis {axis} on; received {mask.shape}"
        )
    flat = ops.reshape(tensor, (*before, mask.size, *after))
    return ops.take(flat, np.flatnonzero(mask), axis)


make_operations(__name__)
