"""Checks of arguments of public functions: axes, shapes, known values."""

from __future__ import annotations

import math
from operator import index
from typing import Any, cast

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
from toolkit.ir.extents import Extent
from toolkit.ops.symbolic import Probe

Shape = tuple[int, ...]


def extents_of(shape: Any) -> Shape:
    """Return a shape as a tuple of integers; it may be a tensor, or contain tensors."""
    if hasattr(shape, "__array__"):
        shape = np.asarray(shape).tolist()
    return (_extent(shape),) if is_int(shape) else tuple(map(_extent, shape))


def extent_of(n: Any) -> int:
    """Return an extent as an integer; a free extent stays free."""
    return cast(int, n) if isinstance(n, Extent) else index(n)


def _extent(n: Any) -> int:
    if isinstance(n, Extent):
        return cast(int, n)
    if isinstance(n, (float, np.floating)) and not float(n).is_integer():
        raise ArgumentTypeError(
            f"expected whole numbers in a shape or an order of axes; received {n}"
        )
    if n is None:
        raise ArgumentTypeError(
            "expected whole numbers in a shape; received None, an unknown extent, "
            "such as the batch size of a functional model. The `call` of a layer "
            "knows this extent"
        )
    return int(n)


def broadcast_shapes(op: str, *shapes: Shape) -> Shape:
    """Return the broadcast shape of `shapes`, or raise a ShapeError with `op`."""
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for extents in zip(*padded, strict=True):
        wide = [n for n in extents if n != 1]
        if any(n != wide[0] for n in wide[1:]):
            text = " and ".join(str(tuple(shape)) for shape in shapes)
            raise ShapeError(
                f"{op}: shapes {text} cannot be broadcast together"
                f"{_fix_of_broadcast(shapes)}"
            )
        result.append(wide[0] if wide else 1)
    return tuple(result)


def _fix_of_broadcast(shapes: tuple[Shape, ...]) -> str:
    """Return the axis whose extents differ, and the likely fix, for a message."""
    if len(shapes) != 2:
        return ""
    short, long = sorted(map(tuple, shapes), key=len)
    missing = len(long) - len(short)
    if short and missing and short == long[: len(short)]:
        axes = tuple(range(-missing, 0)) if missing > 1 else -1
        return f"; ops.expand_dims(x, {axes}) appends the missing axes of {short}"
    tail = long[missing:]
    axis = next(i for i in range(len(short)) if 1 != short[i] != tail[i] != 1)
    extents = f"{shapes[0][axis - len(short)]} and {shapes[1][axis - len(short)]}"
    return (
        f": along axis {axis - len(short)} the extents are {extents}, and they must be "
        "equal, or one of them 1"
    )


# The largest divisor that a message suggests; a search for more could take hours.
_MAX_DIVISOR = 10_000


def fix_of_target(size: int, target: Shape) -> str:
    """Return a shape like `target` that has `size` elements, for a message.

    Args:
        size: the number of elements.
        target: the requested shape, possibly with -1.
    """
    if isinstance(state.trace, Probe) and size % state.trace.extent == 0:
        return ""  # the number depends on an unknown extent
    for i in range(len(target)):
        remaining = [*target[:i], *target[i + 1 :]]
        others = math.prod(n for n in remaining if n != -1)
        if others and target[i] != -1 and size % others == 0:
            extent = -1 if -1 in remaining else size // others
            shape = (*target[:i], extent, *target[i + 1 :])
            if shape.count(-1) < 2:
                return f"; did you mean {shape}?"
    largest = min(target[-1], size, _MAX_DIVISOR) if target else 0
    divisors = [n for n in range(2, largest + 1) if size % n == 0]
    if len(target) == 2 and divisors:
        return f"; did you mean {(size // divisors[-1], divisors[-1])}?"
    return f"; choose extents whose product is {size}"


def normalize_axis(op: str, axis: int, ndim: int) -> int:
    """Return one axis as a non-negative integer."""
    if type(axis) is not int:
        axis = _check_axis(op, axis)
    if not -ndim <= axis < ndim:
        raise ArgumentError(
            f"{op}: axis {axis} is out of bounds: expected one in [{-ndim}, {ndim})"
        )
    return axis % ndim


def _check_axis(op: str, axis: Any) -> int:
    """Return an integer of another type, such as a NumPy integer, as an `int`."""
    try:
        return index(axis)
    except TypeError:
        raise ArgumentTypeError(
            f"{op}: expected an integer as an axis; received {axis!r}"
        ) from None


def only_axis(op: str, axis: Any) -> int | None:
    """Return an axis that may also be a tuple of one."""
    if not isinstance(axis, (tuple, list)):
        return axis
    if len(axis) != 1:
        raise ArgumentError(f"{op}: expected one axis; received {axis}")
    return axis[0]


def normalize_axes(op: str, axis: Any, ndim: int) -> Shape:
    """Return the axes as sorted, non-negative integers; None means all axes."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    return tuple(sorted({normalize_axis(op, a, ndim) for a in axes}))


def check_integers(op: str, dtype: str, expected: str = "integers") -> None:
    """Raise a DTypeError unless the dtype is an integer dtype.

    Symbols are not checked: `Input` creates floats if no dtype is given, and only the
    later data of the model matters.
    """
    if not is_integer(dtype) and not isinstance(state.trace, Probe):
        raise DTypeError(f"{op}: expected {expected}; received {dtype}")


def reduced_shape(shape: Shape, axes: Shape, keepdims: bool) -> Shape:
    """Return the shape after the reduction of `axes`."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def is_empty(shape: Shape, axes: Shape) -> bool:
    """Return whether there are no elements to reduce over `axes`."""
    return 0 in (shape[a] for a in axes)


def known_values(op: str, x: Tensor, advice: str) -> Any:
    """Return the data of `x` in NumPy, for results whose shape depends on it."""
    values = x.static_value()
    if values is None:
        raise TraceError(
            f"{op}: the shape of the result depends on values, but tensors have no "
            f"values in a traced function; {advice}"
        )
    return values


def unknown_extent(x: Tensor) -> int | None:
    """Return the placeholder of an extent that depends on x, in shape inference."""
    trace = state.trace
    if not isinstance(trace, Probe) or x.static_value() is not None:
        return None
    trace.probed = True
    return trace.extent


def is_unknown(extent: int) -> bool:
    """Return whether an extent is a placeholder of shape inference."""
    return isinstance(state.trace, Probe) and state.trace.extent == extent > 1


def stand_in(shape: Shape, dtype: str) -> Tensor:
    """Return a tensor with a shape and dtype only, for unknown extents."""
    return state.trace.placeholder(Spec(shape, dtype))  # type: ignore[union-attr]
