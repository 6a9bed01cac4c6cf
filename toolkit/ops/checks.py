"""What the public functions check first: axes, shapes, and whether values are known."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from toolkit.arguments import is_int
from toolkit.core.tensor import Tensor, state
from toolkit.dtypes import is_integer
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    ShapeError,
    TraceError,
)
from toolkit.ir import Spec
from toolkit.ops.symbolic import Probe

Shape = tuple[int, ...]


def extents_of(shape: Any) -> Shape:
    """A shape as a tuple of integers; it may be a tensor, or hold some."""
    if hasattr(shape, "__array__"):
        shape = np.asarray(shape).tolist()
    return (int(shape),) if is_int(shape) else tuple(map(_extent, shape))


def _extent(n: Any) -> int:
    if isinstance(n, (float, np.floating)) and not float(n).is_integer():
        raise ArgumentTypeError(
            f"expected whole numbers in a shape or an order of axes; received {n}"
        )
    if n is None:
        raise ArgumentTypeError(
            "expected whole numbers in a shape; received None, an extent that is not "
            "known here, as that of the batch while a functional model is made: it is "
            "known in the `call` of a layer"
        )
    return int(n)


def broadcast_shapes(op: str, *shapes: Shape) -> Shape:
    """The shape that `shapes` broadcast to; a ShapeError naming `op` if they do not."""
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for extents in zip(*padded, strict=True):
        distinct = {n for n in extents if n != 1}
        if len(distinct) > 1:
            text = " and ".join(str(tuple(shape)) for shape in shapes)
            raise ShapeError(f"{op}: shapes {text} cannot be broadcast together")
        result.append(distinct.pop() if distinct else 1)
    return tuple(result)


def normalize_axis(op: str, axis: int, ndim: int) -> int:
    """One axis as a non-negative integer."""
    if type(axis) is not int:
        axis = _whole(op, axis)
    if not -ndim <= axis < ndim:
        raise ArgumentError(
            f"{op}: axis {axis} is out of bounds: expected one in [{-ndim}, {ndim})"
        )
    return axis % ndim


def _whole(op: str, axis: Any) -> int:
    """What is no `int`, such as an integer of NumPy, as one."""
    try:
        return index(axis)
    except TypeError:
        raise ArgumentTypeError(
            f"{op}: expected an integer as an axis; received {axis!r}"
        ) from None


def only_axis(op: str, axis: Any) -> int | None:
    """An axis that may also be given as a tuple of one."""
    if not isinstance(axis, (tuple, list)):
        return axis
    if len(axis) != 1:
        raise ArgumentError(f"{op}: expected one axis; received {axis}")
    return axis[0]


def normalize_axes(op: str, axis: Any, ndim: int) -> Shape:
    """The axes as sorted, non-negative integers; None means all of them."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    return tuple(sorted({normalize_axis(op, a, ndim) for a in axes}))


def check_integers(op: str, dtype: str, what: str = "integers") -> None:
    """A DTypeError unless the dtype is one of integers.

    Symbols are excused: `Input` makes floats where no dtype is given, and what matters
    is the data that the model will be called with.
    """
    if not is_integer(dtype) and not isinstance(state.trace, Probe):
        raise DTypeError(f"{op}: expected {what}; received {dtype}")


def reduced_shape(shape: Shape, axes: Shape, keepdims: bool) -> Shape:
    """The shape that is left when `axes` are reduced."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def is_empty(shape: Shape, axes: Shape) -> bool:
    """Whether there is nothing to reduce over `axes`."""
    return 0 in (shape[a] for a in axes)


def known_values(op: str, x: Tensor, advice: str) -> Any:
    """The data of `x` as a NumPy array, for results whose shape depends on it."""
    values = x.known()
    if values is None:
        raise TraceError(
            f"{op}: the shape of the result depends on values, which a tensor inside a "
            f"traced function does not have; {advice}"
        )
    return values


def unknown_extent(x: Tensor) -> int | None:
    """What stands for an extent that depends on x, if only shapes are asked for."""
    trace = state.trace
    if not isinstance(trace, Probe) or x.known() is not None:
        return None
    trace.probed = True
    return trace.extent


def is_unknown(extent: int) -> bool:
    """Whether an extent stands for an unknown one, as only shapes are asked for."""
    return isinstance(state.trace, Probe) and state.trace.extent == extent > 1


def stand_in(shape: Shape, dtype: str) -> Tensor:
    """What has a shape and dtype only, where `unknown_extent` gave an extent."""
    return state.trace.placeholder(Spec(shape, dtype))  # type: ignore[union-attr]
