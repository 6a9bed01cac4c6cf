"""Maximum and minimum whose gradient goes to the first of two equal values.

toolkit's functions give half of the gradient to each value.
"""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.arguments import fitting
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.core.convert import convert, operands
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.dtypes import INEXACT
from toolkit.ir import Primitive
from toolkit.ops.elementwise import maximum_p, minimum_p
from toolkit.ops.shape import sum_to
from toolkit.type_aliases import TensorLike


def _define_extreme(name: str, record: Primitive, first: Any) -> Primitive:
    """Define a composite of a primitive with a gradient by the comparison `first`."""

    def vjp(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        zero = convert(0, g.dtype)
        to_first = first(a, b)
        to_a, to_b = ops.where(to_first, g, zero), ops.where(to_first, zero, g)
        return sum_to(to_a, a.shape), sum_to(to_b, b.shape)

    return decomposable(name, lambda a, b: bind(record, a, b), vjp)


first_maximum_p: Primitive = _define_extreme(
    "first_maximum", maximum_p, ops.greater_equal
)
first_minimum_p: Primitive = _define_extreme("first_minimum", minimum_p, ops.less_equal)


def _bind_extreme(
    x: TensorLike, y: TensorLike, composite: Primitive, plain: Primitive
) -> Tensor:
    (x, y), dtype = operands(x, y)
    return bind(composite if dtype in INEXACT else plain, x, y)


def maximum(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return the larger of x and y, elementwise; NaN if either is.

    The gradient goes to x where they are equal.
    """
    return _bind_extreme(x, y, first_maximum_p, maximum_p)


def minimum(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return the smaller of x and y, elementwise; NaN if either is.

    The gradient goes to x where they are equal.
    """
    return _bind_extreme(x, y, first_minimum_p, minimum_p)


def clip_by_value(
    t: TensorLike, clip_value_min: Any, clip_value_max: Any, name: str | None = None
) -> Tensor:
    """Clip t to the bounds.

    If the lower bound is above the upper one, the result is the lower bound. At a bound
    the gradient is the gradient of t.
    """
    t = convert(t)
    low, high = (
        convert(fitting(bound, t.dtype, "clip_by_value"), t.dtype)
        for bound in (clip_value_min, clip_value_max)
    )
    return maximum(minimum(t, high), low)


make_operations(__name__)
