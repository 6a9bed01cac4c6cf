"""Elementwise functions of NumPy, composed of primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert, floating, operands, tensors, to_float
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError
from toolkit.ops.bits import left_shift, view
from toolkit.ops.checks import check_integers
from toolkit.ops.elementwise import (
    divide,
    equal,
    gcd_p,
    greater,
    isinf,
    isnan,
    less,
    less_equal,
    maximum,
    minimum,
    sign,
    where,
    zero_like,
)
from toolkit.ops.numeric import (
    absolute,
    logical_and,
    logical_not,
    logical_or,
    mod,
    stop_gradient,
)
from toolkit.ops.reduce import all
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import (
    cbrt_p,
    exp,
    exp2_p,
    log,
    log1p,
    log2_p,
    power,
    sqrt,
)
from toolkit.type_aliases import TensorLike

# --- comparing and classifying --------------------------------------------------------


@operation
def isclose(
    x1: TensorLike,
    x2: TensorLike,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    """Return whether abs(x1 - x2) <= atol + rtol * abs(x2), elementwise.

    Infinities are close if they have the same sign.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.
        rtol: the relative tolerance.
        atol: the absolute tolerance.
        equal_nan: whether two NaNs are close.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.isclose([1.0, 2.0], [1.000001, 2.1]))
        [ True False]
    """
    x1, x2 = floating(x1, x2)
    finite = logical_not(logical_or(isinf(x1), isinf(x2)))
    near = less_equal(absolute(x1 - x2), atol + rtol * absolute(x2))
    close = logical_or(logical_and(finite, near), equal(x1, x2))
    if equal_nan:
        close = logical_or(close, logical_and(isnan(x1), isnan(x2)))
    return close


@operation
def allclose(
    x1: TensorLike,
    x2: TensorLike,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    """Return whether all elements of two tensors are close, as defined by `isclose`.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.
        rtol: the relative tolerance.
        atol: the absolute tolerance.
        equal_nan: whether two NaNs are close.

    Returns:
        A boolean scalar.

    Example:
        >>> from toolkit import ops
        >>> print(ops.allclose([1.0, 2.0], [1.000001, 2.0]))
        True
    """
    return all(isclose(x1, x2, rtol, atol, equal_nan))


@operation
def isposinf(x: TensorLike) -> Tensor:
    """Return whether numbers are plus infinity, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A boolean tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.isposinf([1.0, float("inf"), float("-inf")]))
        [False  True False]
    """
    x = convert(x)
    return logical_and(isinf(x), greater(x, 0))


@operation
def isneginf(x: TensorLike) -> Tensor:
    """Return whether numbers are minus infinity, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A boolean tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.isneginf([1.0, float("inf"), float("-inf")]))
        [False False  True]
    """
    x = convert(x)
    return logical_and(isinf(x), less(x, 0))


@operation
def signbit(x: TensorLike) -> Tensor:
    """Return whether numbers are negative or minus zero, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A boolean tensor with the shape of `x`: the sign bit, also of NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.signbit([-1.0, -0.0, 0.0]))
        [ True  True False]
    """
    x = convert(x)
    if not dtypes.is_float(x.dtype):
        return less(convert(x, "int32") if x.dtype == "bool" else x, 0)
    return less(view(x, f"int{8 * dtypes.itemsize(x.dtype)}"), 0)


@operation
def heaviside(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the step function: 0 for x1 < 0, x2 for x1 = 0, and 1 for x1 > 0.

    Args:
        x1: the first operand, of any shape.
        x2: the values at 0; the shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of both
        operands. NaN stays NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.heaviside([-2.0, 0.0, 3.0], 0.5))
        [0.  0.5 1. ]
    """
    x1, x2 = floating(*tensors(x1, x2))
    step = where(less(x1, 0), zero_like(x1), where(isnan(x1), x1, 1.0))
    return where(equal(x1, 0), x2, convert(step, x1.dtype))


@operation
def select(
    condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0
) -> Tensor:
    """Return the choice of the first true condition, elementwise.

    Args:
        condlist: a sequence of boolean tensors, which broadcast with the choices.
        choicelist: a sequence of tensors, one for each condition.
        default: the value where no condition is true.

    Returns:
        A tensor with the broadcast shape and the common dtype of the choices.

    Raises:
        ArgumentError: the numbers of conditions and choices differ, or are 0.

    Example:
        >>> from toolkit import ops
        >>> x = ops.array([1, 5, 9])
        >>> print(ops.select([x < 3, x < 7], [x, 10 * x], default=-1))
        [ 1 50 -1]
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(
            "select: expected equal numbers of conditions and choices; received "
            f"{len(condlist)} and {len(choicelist)}"
        )
    *choices, y = operands(*choicelist, default)[0]
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        y = where(condition, choice, y)
    return y


# --- powers and logarithms ------------------------------------------------------------


@operation
def exp2(x: TensorLike) -> Tensor:
    """Compute 2 ** x, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.exp2([0.0, 3.0, -1.0]), 4))
        [1.  8.  0.5]
    """
    (x,) = floating(x)
    if dtypes.is_complex(x.dtype):
        return power(convert(2, x.dtype), x)
    return bind(exp2_p, x)


@operation
def log2(x: TensorLike) -> Tensor:
    """Compute the logarithm to base 2, elementwise.

    Args:
        x: numbers of any shape. Negative numbers give NaN, and 0 gives -inf.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.log2([1.0, 8.0]), 4))
        [0. 3.]
    """
    x = to_float(x)
    return log(x) / math.log(2) if dtypes.is_complex(x.dtype) else bind(log2_p, x)


@operation
def log10(x: TensorLike) -> Tensor:
    """Compute the logarithm to base 10, elementwise.

    Args:
        x: numbers of any shape. Negative numbers give NaN, and 0 gives -inf.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.log10([1.0, 1000.0]), 4))
        [0. 3.]
    """
    return log(x) / math.log(10)


@operation
def logaddexp(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute log(exp(x1) + exp(x2)), elementwise, without overflow.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of both
        operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.logaddexp([0.0, 100.0], [0.0, 100.0]), 4))
        [  0.6931 100.6931]
    """
    x1, x2 = floating(*tensors(x1, x2))
    same = logical_and(isinf(x1), equal(x1, x2))  # their difference is NaN
    difference = where(same, zero_like(x1), x1 - x2)
    return maximum(x1, x2) + log1p(exp(-absolute(difference)))


@operation
def logaddexp2(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute log2(2 ** x1 + 2 ** x2), elementwise, without overflow.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of both
        operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.logaddexp2([3.0, 10.0], [3.0, 10.0]), 4))
        [ 4. 11.]
    """
    x1, x2 = floating(*tensors(x1, x2))
    base = math.log(2)
    return logaddexp(x1 * base, x2 * base) / base


@operation
def cbrt(x: TensorLike) -> Tensor:
    """Compute the cube root, elementwise; it is negative for negative numbers.

    Args:
        x: numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.cbrt([8.0, -27.0]), 4))
        [ 2. -3.]
    """
    x = to_float(x)
    if dtypes.is_complex(x.dtype):
        return sign(x) * power(absolute(x), 1 / 3)
    return bind(cbrt_p, x)


@operation
def hypot(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute sqrt(x1 ** 2 + x2 ** 2), elementwise; the squares do not overflow.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of both
        operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.hypot([3.0, 5.0], [4.0, 12.0]), 4))
        [ 5. 13.]
    """
    x1, x2 = floating(*tensors(x1, x2))
    scale = stop_gradient(maximum(absolute(x1), absolute(x2)))
    odd = logical_or(equal(scale, 0), isinf(scale))
    scale = where(odd, 1.0, scale)
    a, b = x1 / scale, x2 / scale
    return scale * sqrt(a * a + b * b)


@operation
def ldexp(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute x1 * 2 ** x2, elementwise.

    Args:
        x1: numbers of any shape.
        x2: the exponents, integers; the shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the floating dtype of `x1`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.ldexp([1.0, 3.0], [4, -1]))
        [16.   1.5]
    """
    (x1,), x2 = floating(x1), convert(x2)
    check_integers(
        "ldexp", x2.dtype if x2.dtype != "bool" else "int32", "integer exponents"
    )
    if x2.dtype == "uint64":
        x2 = minimum(x2, 4 * _MAX_EXPONENT)
    wide = x2.dtype in ("int64", "uint32", "uint64")
    n = convert(x2, "int64" if wide else "int32")
    if x1.dtype == "float64":
        return _ldexp64(x1, n)
    # The factors of all finite results are normal numbers of float64.
    factor = _power_of_two(_clip(n, -_MAX_SHIFT, _MAX_SHIFT))
    return convert(convert(x1, "float64") * factor, x1.dtype)


# In this range, 2 ** n is a normal number of float64.
_MIN_EXPONENT, _MAX_EXPONENT = -1022, 1023
# The product of a nonzero float32 and 2 ** n is infinite for larger n, and 0 for
# smaller n than -_MAX_SHIFT.
_MAX_SHIFT = 300


def _clip(n: Tensor, low: int, high: int) -> Tensor:
    """Return integers limited to [low, high]."""
    return minimum(maximum(n, low), high)


def _power_of_two(n: Tensor) -> Tensor:
    """Return 2 ** n in float64 for integers that give a normal number."""
    return view(left_shift(convert(n, "int64") - (_MIN_EXPONENT - 1), 52), "float64")


def _ldexp64(x: Tensor, n: Tensor) -> Tensor:
    """Return x * 2 ** n in float64, in three factors, rounded once."""
    n = _clip(n, 3 * _MIN_EXPONENT, 3 * _MAX_EXPONENT)
    for _ in range(2):
        # If this product is rounded, the result is 0: 2 ** 53 shifts its last bit out.
        raised = where(less(n, _MIN_EXPONENT), _MIN_EXPONENT + 53, n)
        exponent = minimum(raised, _MAX_EXPONENT)
        x, n = x * _power_of_two(exponent), n - exponent
    return x * _power_of_two(_clip(n, _MIN_EXPONENT, _MAX_EXPONENT))


# --- angles ---------------------------------------------------------------------------


@operation
def deg2rad(x: TensorLike) -> Tensor:
    """Convert degrees to radians, elementwise: x * pi / 180.

    Args:
        x: angles in degrees, of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.deg2rad([180.0, 90.0]), 4))
        [3.1416 1.5708]
    """
    return floating(x)[0] * (math.pi / 180)


@operation
def rad2deg(x: TensorLike) -> Tensor:
    """Convert radians to degrees, elementwise: x * 180 / pi.

    Args:
        x: angles in radians, of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.rad2deg([3.14159265, 1.57079633]), 3))
        [180.  90.]
    """
    return floating(x)[0] * (180 / math.pi)


# --- quotients and remainders ---------------------------------------------------------


@operation
def divide_no_nan(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute x1 / x2, elementwise; the result is 0 where x2 is 0.

    Args:
        x1: the dividend, of any shape.
        x2: the divisor; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of both
        operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.divide_no_nan([6.0, 5.0], [2.0, 0.0]))
        [3. 0.]
    """
    x1, x2 = floating(x1, x2)
    is_zero = equal(x2, 0)
    return where(is_zero, zero_like(x1), divide(x1, where(is_zero, 1.0, x2)))


@operation
def fmod(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the remainder of x1 / x2, elementwise, with the sign of x1.

    Args:
        x1: the dividend, of any shape.
        x2: the divisor; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.
        Booleans give int32.

    Example:
        >>> from toolkit import ops
        >>> print(ops.fmod([7, -7], 3))
        [ 1 -1]
    """
    (x1, x2), dtype = operands(x1, x2)
    if dtype == "bool":
        x1, x2 = convert(x1, "int32"), convert(x2, "int32")
    remainder = mod(absolute(x1), absolute(x2))
    return where(less(x1, 0), -remainder, remainder)


@operation
def gcd(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the greatest common divisor of integers, elementwise.

    Args:
        x1: integers of any shape.
        x2: integers; the shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.gcd([12, 7], [18, 3]))
        [6 1]
    """
    (x1, x2), dtype = operands(x1, x2)
    check_integers("gcd", dtype)
    return bind(gcd_p, x1, x2)


@operation
def lcm(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the least common multiple of integers, elementwise.

    Args:
        x1: integers of any shape.
        x2: integers; the shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.lcm([4, 7], [6, 3]))
        [12 21]
    """
    (x1, x2), _ = operands(x1, x2)
    return absolute(x1) // maximum(gcd(x1, x2), 1) * absolute(x2)


# --- NaNs and infinities --------------------------------------------------------------


@operation
def fmax(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the larger of two numbers, elementwise; ignore NaN if possible.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands. It is
        NaN only if both operands are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.fmax([1.0, float("nan")], [3.0, 2.0]))
        [3. 2.]
    """
    return _without_nan(maximum, x1, x2)


@operation
def fmin(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the smaller of two numbers, elementwise; ignore NaN if possible.

    Args:
        x1: the first operand, of any shape.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands. It is
        NaN only if both operands are NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.fmin([1.0, float("nan")], [3.0, 2.0]))
        [1. 2.]
    """
    return _without_nan(minimum, x1, x2)


def _without_nan(extremum: Any, x1: TensorLike, x2: TensorLike) -> Tensor:
    (x1, x2), _ = operands(x1, x2)
    return extremum(where(isnan(x1), x2, x1), where(isnan(x2), x1, x2))


@operation
def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN and infinities by finite numbers.

    Args:
        x: numbers of any shape.
        nan: the replacement of NaN.
        posinf: the replacement of plus infinity. None means the largest number of the
            dtype.
        neginf: the replacement of minus infinity. None means the lowest number of the
            dtype.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> x = [1.0, float("nan"), float("inf")]
        >>> print(ops.nan_to_num(x, nan=0.0, posinf=9.0))
        [1. 0. 9.]
    """
    x = convert(x)
    if not dtypes.is_float(x.dtype):
        return x
    limit = dtypes.largest(x.dtype)
    x = where(isnan(x), convert(nan, x.dtype), x)
    high = convert(limit if posinf is None else posinf, x.dtype)
    low = convert(-limit if neginf is None else neginf, x.dtype)
    infinite = isinf(x)
    x = where(logical_and(infinite, greater(x, 0)), high, x)
    return where(logical_and(infinite, less(x, 0)), low, x)


@operation
def fabs(x: TensorLike) -> Tensor:
    """Compute the absolute value, elementwise, in floating point.

    Args:
        x: numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.fabs([-3, 2]))
        [3. 2.]
    """
    return absolute(floating(x)[0])
