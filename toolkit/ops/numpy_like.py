"""Elementwise functions of NumPy, composed of primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert, floating, operands, tensors
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.ops.checks import check_integers
from toolkit.ops.creation import zeros_like
from toolkit.ops.elementwise import (
    arctan2,
    divide,
    equal,
    exp,
    greater,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    maximum,
    minimum,
    power,
    sign,
    sin,
    sqrt,
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
    """Return whether |x1 - x2| <= atol + rtol * |x2|, elementwise.

    Infinities of the same sign are close; NaNs are close if `equal_nan`.
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
    """Return whether all elements are close, as defined by `isclose`."""
    return all(isclose(x1, x2, rtol, atol, equal_nan))


@operation
def isposinf(x: TensorLike) -> Tensor:
    """Return whether x is plus infinity, elementwise."""
    x = convert(x)
    return logical_and(isinf(x), greater(x, 0))


@operation
def isneginf(x: TensorLike) -> Tensor:
    """Return whether x is minus infinity, elementwise."""
    x = convert(x)
    return logical_and(isinf(x), less(x, 0))


@operation
def signbit(x: TensorLike) -> Tensor:
    """Return whether x is negative, or minus zero; false for NaN."""
    x = convert(x)
    if not dtypes.is_float(x.dtype):
        return less(convert(x, "int32") if x.dtype == "bool" else x, 0)
    # The angle of the point (x, 0) is pi for negative x, and for minus zero.
    return greater(arctan2(zeros_like(x), x), 1.0)


@operation
def heaviside(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return 0 where x1 < 0, x2 where x1 is 0, 1 where x1 > 0."""
    x1, x2 = floating(*tensors(x1, x2))
    step = where(less(x1, 0), zero_like(x1), where(isnan(x1), x1, 1.0))
    return where(equal(x1, 0), x2, convert(step, x1.dtype))


@operation
def select(
    condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0
) -> Tensor:
    """Return the choice of the first true condition, elementwise; else `default`."""
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
    """Compute 2 ** x, elementwise."""
    (x,) = floating(x)
    return power(convert(2, x.dtype), x)


@operation
def log2(x: TensorLike) -> Tensor:
    """Compute the logarithm to base 2, elementwise."""
    return log(x) / math.log(2)


@operation
def log10(x: TensorLike) -> Tensor:
    """Compute the logarithm to base 10, elementwise."""
    return log(x) / math.log(10)


@operation
def logaddexp(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute log(exp(x1) + exp(x2)), elementwise, without overflow."""
    x1, x2 = floating(*tensors(x1, x2))
    same = logical_and(isinf(x1), equal(x1, x2))  # their difference is NaN
    difference = where(same, zero_like(x1), x1 - x2)
    return maximum(x1, x2) + log1p(exp(-absolute(difference)))


@operation
def logaddexp2(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute log2(2 ** x1 + 2 ** x2), elementwise, without overflow."""
    x1, x2 = floating(*tensors(x1, x2))
    base = math.log(2)
    return logaddexp(x1 * base, x2 * base) / base


@operation
def cbrt(x: TensorLike) -> Tensor:
    """Compute the cube root, elementwise; negative for negative x."""
    (x,) = floating(x)
    return sign(x) * power(absolute(x), 1 / 3)


@operation
def hypot(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute sqrt(x1 ** 2 + x2 ** 2), elementwise, without overflow of the squares."""
    x1, x2 = floating(*tensors(x1, x2))
    scale = stop_gradient(maximum(absolute(x1), absolute(x2)))
    odd = logical_or(equal(scale, 0), isinf(scale))
    scale = where(odd, 1.0, scale)
    a, b = x1 / scale, x2 / scale
    return scale * sqrt(a * a + b * b)


@operation
def ldexp(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute x1 * 2 ** x2, elementwise, with integers x2."""
    (x1,), x2 = floating(x1), convert(x2)
    check_integers(
        "ldexp", x2.dtype if x2.dtype != "bool" else "int32", "integer exponents"
    )
    # In two steps, because 2 ** x2 may overflow although the product does not.
    half = x2 // 2
    return x1 * exp2(convert(half, x1.dtype)) * exp2(convert(x2 - half, x1.dtype))


@operation
def sinc(x: TensorLike) -> Tensor:
    """Compute sin(pi * x) / (pi * x), elementwise; 1 at 0."""
    (x,) = floating(x)
    dtype = x.dtype
    # the range of float16 ends at 20,000 pi
    x = convert(x, dtypes.result_type(dtype, "float32"))
    angle = where(equal(x, 0), 1.0, x) * math.pi
    return convert(where(equal(x, 0), 1.0, sin(angle) / angle), dtype)


# --- angles ---------------------------------------------------------------------------


@operation
def deg2rad(x: TensorLike) -> Tensor:
    """Convert degrees to radians, elementwise."""
    return floating(x)[0] * (math.pi / 180)


@operation
def rad2deg(x: TensorLike) -> Tensor:
    """Convert radians to degrees, elementwise."""
    return floating(x)[0] * (180 / math.pi)


# --- quotients and remainders ---------------------------------------------------------


@operation
def divide_no_nan(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute x1 / x2, elementwise; 0 where x2 is 0."""
    x1, x2 = floating(x1, x2)
    is_zero = equal(x2, 0)
    return where(is_zero, zero_like(x1), divide(x1, where(is_zero, 1.0, x2)))


@operation
def fmod(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the remainder of x1 / x2, elementwise, with the sign of x1."""
    (x1, x2), dtype = operands(x1, x2)
    if dtype == "bool":
        x1, x2 = convert(x1, "int32"), convert(x2, "int32")
    remainder = mod(absolute(x1), absolute(x2))
    return where(less(x1, 0), -remainder, remainder)


def _bits(dtype: str) -> int:
    return 8 * dtypes.itemsize(dtype)


@operation
def gcd(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the greatest common divisor of integers, elementwise."""
    (x1, x2), dtype = operands(x1, x2)
    check_integers("gcd", dtype)
    a, b = absolute(x1), absolute(x2)
    # Euclid's algorithm needs the most steps for adjacent Fibonacci numbers: one for
    # each power of the golden ratio. After these steps b is 0 everywhere.
    for _ in range(math.ceil(_bits(dtype) * math.log(2, 1.618)) + 1):
        a, b = where(equal(b, 0), a, b), where(equal(b, 0), b, mod(a, b))
    return a


@operation
def lcm(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the least common multiple of integers, elementwise."""
    (x1, x2), _ = operands(x1, x2)
    return absolute(x1) // maximum(gcd(x1, x2), 1) * absolute(x2)


# --- NaNs and infinities --------------------------------------------------------------


@operation
def fmax(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the larger of x1 and x2, elementwise; NaN only if both are NaN."""
    return _without_nan(maximum, x1, x2)


@operation
def fmin(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the smaller of x1 and x2, elementwise; NaN only if both are NaN."""
    return _without_nan(minimum, x1, x2)


def _without_nan(extremum: Any, x1: TensorLike, x2: TensorLike) -> Tensor:
    (x1, x2), _ = operands(x1, x2)
    return extremum(where(isnan(x1), x2, x1), where(isnan(x2), x1, x2))


@operation
def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN and infinities in x by finite numbers.

    Args:
        x: a tensor.
        nan: replacement of NaN.
        posinf: replacement of plus infinity; the largest finite number if None.
        neginf: replacement of minus infinity; the smallest finite number if None.
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
    """Compute the absolute value in floating point, elementwise."""
    return absolute(floating(x)[0])
