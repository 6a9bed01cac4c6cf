"""Elementwise primitives of arithmetic, rounding and comparison, one row each.

A row contains the scalar rule, from which every backend generates code, and the
gradient. Rules use `g` for the incoming gradient, `y` for the result, `x` and so on for
the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit.core.convert import convert, floating, operands, to_float
from toolkit.core.tensor import Tensor, bind
from toolkit.dtypes import is_complex, real_type
from toolkit.errors import ArgumentError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ir.scalars import Rule
from toolkit.ops.checks import broadcast_shapes, known_values, stand_in, unknown_extent
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike


def elementwise(
    name: str,
    scalar: Rule,
    vjp: Any = None,
    result: str | Callable[[str], str] | None = None,
) -> Primitive:
    """Declare an elementwise primitive.

    Args:
        name: name of the primitive, and of its scalar function.
        scalar: the rule for one element, in the scalar vocabulary.
        vjp: as for every primitive.
        result: the dtype of the output, or a function of the last input's dtype.
    """

    def spec(*inputs: Spec) -> Spec:
        dtype = inputs[-1].dtype
        if result is not None:
            dtype = result(dtype) if callable(result) else result
        if len(inputs) == 1:
            return inputs[0].with_dtype(dtype)
        return Spec(broadcast_shapes(name, *(x.shape for x in inputs)), dtype)

    rules = {"vjp": vjp, "scalar": scalar, "axes": "...->..."}
    return primitive(name, Kind.ELEMENTWISE, spec, **rules)


# --- one input, any number ------------------------------------------------------------

negative_p: Primitive = elementwise(
    "negative", lambda s, x: s.negative(x), lambda g, y, x: -g
)
abs_p: Primitive = elementwise(
    "abs",
    lambda s, x: s.abs(x),
    lambda g, y, x: g * (y / where(y == 0, 1, x) if is_complex(x.dtype) else sign(x)),
    result=real_type,
)
sign_p: Primitive = elementwise("sign", lambda s, x: s.sign(x))
floor_p: Primitive = elementwise("floor", lambda s, x: s.floor(x))
ceil_p: Primitive = elementwise("ceil", lambda s, x: s.ceil(x))
round_p: Primitive = elementwise("round", lambda s, x: s.round(x))
trunc_p: Primitive = elementwise("trunc", lambda s, x: s.trunc(x))
stop_gradient_p: Primitive = elementwise("stop_gradient", lambda s, x: x)
isnan_p: Primitive = elementwise("isnan", lambda s, x: s.isnan(x), result="bool")
isinf_p: Primitive = elementwise("isinf", lambda s, x: s.isinf(x), result="bool")
isfinite_p: Primitive = elementwise(
    "isfinite", lambda s, x: s.isfinite(x), result="bool"
)
logical_not_p: Primitive = elementwise(
    "logical_not", lambda s, x: s.logical_not(x), result="bool"
)


# --- two inputs -----------------------------------------------------------------------


def _share_of_ties(g: Tensor, y: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """Return the gradient of the selected input; half for each if they are equal."""
    return where(equal(x, y), where(equal(other, y), 0.5 * g, g), zero_like(g))


def zero_like(g: Tensor) -> Tensor:
    """Return a zero that broadcasts with `g`."""
    return convert(0, g.dtype)


add_p: Primitive = elementwise(
    "add", lambda s, a, b: s.add(a, b), (lambda g, y, a, b: g, lambda g, y, a, b: g)
)
subtract_p: Primitive = elementwise(
    "subtract",
    lambda s, a, b: s.subtract(a, b),
    (lambda g, y, a, b: g, lambda g, y, a, b: -g),
)
multiply_p: Primitive = elementwise(
    "multiply",
    lambda s, a, b: s.multiply(a, b),
    (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a),
)
divide_p: Primitive = elementwise(
    "divide",
    lambda s, a, b: s.divide(a, b),
    (lambda g, y, a, b: g / b, lambda g, y, a, b: -g * y / b),
)
floor_divide_p: Primitive = elementwise(
    "floor_divide", lambda s, a, b: s.floor_divide(a, b)
)
gcd_p: Primitive = elementwise("gcd", lambda s, a, b: s.gcd(a, b))
remainder_p: Primitive = elementwise(
    "remainder",
    lambda s, a, b: s.remainder(a, b),
    (lambda g, y, a, b: g, lambda g, y, a, b: -g * floor(a / b)),
)
maximum_p: Primitive = elementwise(
    "maximum",
    lambda s, a, b: s.maximum(a, b),
    (
        lambda g, y, a, b: _share_of_ties(g, y, a, b),
        lambda g, y, a, b: _share_of_ties(g, y, b, a),
    ),
)
minimum_p: Primitive = elementwise(
    "minimum",
    lambda s, a, b: s.minimum(a, b),
    (
        lambda g, y, a, b: _share_of_ties(g, y, a, b),
        lambda g, y, a, b: _share_of_ties(g, y, b, a),
    ),
)
equal_p: Primitive = elementwise("equal", lambda s, a, b: s.equal(a, b), result="bool")
not_equal_p: Primitive = elementwise(
    "not_equal", lambda s, a, b: s.not_equal(a, b), result="bool"
)
less_p: Primitive = elementwise("less", lambda s, a, b: s.less(a, b), result="bool")
less_equal_p: Primitive = elementwise(
    "less_equal", lambda s, a, b: s.less_equal(a, b), result="bool"
)
logical_and_p: Primitive = elementwise(
    "logical_and", lambda s, a, b: s.logical_and(a, b), result="bool"
)
logical_or_p: Primitive = elementwise(
    "logical_or", lambda s, a, b: s.logical_or(a, b), result="bool"
)
logical_xor_p: Primitive = elementwise(
    "logical_xor", lambda s, a, b: s.logical_xor(a, b), result="bool"
)

where_p: Primitive = elementwise(
    "where",
    lambda s, c, a, b: s.select(c, a, b),
    (
        None,
        lambda g, y, c, a, b: where(c, g, zero_like(g)),
        lambda g, y, c, a, b: where(c, zero_like(g), g),
    ),
)


# --- public functions -----------------------------------------------------------------


@operation
def floor(x: TensorLike) -> Tensor:
    """Return the largest integer <= x, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.floor([1.7, -1.7]))
        [ 1. -2.]
    """
    return bind(floor_p, to_float(x))


@operation
def ceil(x: TensorLike) -> Tensor:
    """Return the smallest integer >= x, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.ceil([1.2, -1.2]))
        [ 2. -1.]
    """
    return bind(ceil_p, to_float(x))


@operation
def isnan(x: TensorLike) -> Tensor:
    """Return whether numbers are NaN, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A boolean tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.isnan([1.0, float("nan")]))
        [False  True]
    """
    return bind(isnan_p, convert(x))


@operation
def isinf(x: TensorLike) -> Tensor:
    """Return whether numbers are plus or minus infinity, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A boolean tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.isinf([1.0, float("-inf")]))
        [False  True]
    """
    return bind(isinf_p, convert(x))


@operation
def isfinite(x: TensorLike) -> Tensor:
    """Return whether numbers are neither infinite nor NaN, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A boolean tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.isfinite([1.0, float("inf"), float("nan")]))
        [ True False False]
    """
    return bind(isfinite_p, convert(x))


@operation
def add(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute x1 + x2, elementwise.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.add([1, 2], [10, 20]))
        [11 22]
    """
    return bind(add_p, *operands(x1, x2)[0])


@operation
def subtract(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute x1 - x2, elementwise.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.subtract([10, 20], [1, 2]))
        [ 9 18]
    """
    return bind(subtract_p, *operands(x1, x2)[0])


@operation
def multiply(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute x1 * x2, elementwise.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.multiply([1, 2], [10, 20]))
        [10 40]
    """
    return bind(multiply_p, *operands(x1, x2)[0])


@operation
def maximum(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the larger of two numbers, elementwise; NaN if one of them is NaN.

    If both are equal, each receives one half of the gradient.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.maximum([1, 9], [5, 5]))
        [5 9]
    """
    return bind(maximum_p, *operands(x1, x2)[0])


@operation
def minimum(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the smaller of two numbers, elementwise; NaN if one of them is NaN.

    If both are equal, each receives one half of the gradient.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.minimum([1, 9], [5, 5]))
        [1 5]
    """
    return bind(minimum_p, *operands(x1, x2)[0])


@operation
def equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 == x2, elementwise.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.equal([1, 2], [1, 5]))
        [ True False]
    """
    return bind(equal_p, *operands(x1, x2)[0])


@operation
def not_equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 != x2, elementwise.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.not_equal([1, 2], [1, 5]))
        [False  True]
    """
    return bind(not_equal_p, *operands(x1, x2)[0])


@operation
def less(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 < x2, elementwise.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.less([1, 2, 3], 2))
        [ True False False]
    """
    return bind(less_p, *operands(x1, x2)[0])


@operation
def less_equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 <= x2, elementwise.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.less_equal([1, 2, 3], 2))
        [ True  True False]
    """
    return bind(less_equal_p, *operands(x1, x2)[0])


@operation
def sign(x: Any) -> Tensor:
    """Return the sign of numbers, elementwise: -1, 0 or 1.

    Args:
        x: numbers of any shape.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.sign([-3.0, 0.0, 5.0]))
        [-1.  0.  1.]
    """
    x = convert(x)
    return x if x.dtype == "bool" else bind(sign_p, x)


@operation
def greater(x1: Any, x2: Any) -> Tensor:
    """Return whether x1 > x2, elementwise.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.greater([1, 2, 3], 2))
        [False False  True]
    """
    (x1, x2), _ = operands(x1, x2)
    return bind(less_p, x2, x1)


@operation
def greater_equal(x1: Any, x2: Any) -> Tensor:
    """Return whether x1 >= x2, elementwise.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.greater_equal([1, 2, 3], 2))
        [False  True  True]
    """
    (x1, x2), _ = operands(x1, x2)
    return bind(less_equal_p, x2, x1)


@operation
def divide(x1: Any, x2: Any) -> Tensor:
    """Compute x1 / x2, elementwise, in floating point.

    Args:
        x1: the dividend, of any shape.
        x2: the divisor; its shape broadcasts with the shape of `x1`. A division by 0
            gives an infinity or NaN.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of both
        operands. Integers give floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.divide([3, 10], [2, 4]))
        [1.5 2.5]
    """
    return bind(divide_p, *floating(x1, x2))


true_divide = divide


@operation
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """Return x1 where a condition is true, and x2 elsewhere.

    Args:
        condition: a boolean tensor, which broadcasts with `x1` and `x2`.
        x1: the values for true. None for both `x1` and `x2` means the result of
            `nonzero(condition)`.
        x2: the values for false.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Raises:
        ArgumentError: only one of `x1` and `x2` is None.

    Example:
        >>> from toolkit import ops
        >>> print(ops.where([True, False, True], [1, 2, 3], 0))
        [1 0 3]
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise ArgumentError(
            "where: `x1` and `x2` either both should be `None`, or neither"
        )
    (x1, x2), _ = operands(x1, x2)
    return bind(where_p, convert(condition, "bool"), x1, x2)


@operation
def nonzero(x: Any) -> tuple[Tensor, ...]:
    """Return the indices of the elements that are not zero.

    Their number depends on the values, which must be available. Inside a traced
    function they are not.

    Args:
        x: numbers of any shape.

    Returns:
        A tuple of one int32 tensor of shape (n,) for each axis.

    Example:
        >>> from toolkit import ops
        >>> [i.tolist() for i in ops.nonzero([[0, 5], [7, 0]])]
        [[0, 1], [1, 0]]
    """
    x = convert(x)
    extent = unknown_extent(x)
    if extent is not None:
        return tuple(stand_in((extent,), "int32") for _ in x.shape)
    values = known_values("nonzero", x, "use where(condition, x1, x2) instead")
    return tuple(
        convert(indices, "int32") for indices in np.nonzero(np.atleast_1d(values))
    )
