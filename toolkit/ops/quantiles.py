"""Inverses of the complementary error function and of the normal distribution."""

from __future__ import annotations

import math
from typing import Any

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.ops.elementwise import equal, greater, less, where
from toolkit.ops.numeric import logical_not, stop_gradient
from toolkit.ops.quadrature import doubles
from toolkit.ops.special import scaled_erfc
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import erfinv, log, sqrt
from toolkit.type_aliases import TensorLike

# A rational approximation of the normal quantile with an error below 4.5e-4: Abramowitz
# and Stegun, Handbook of Mathematical Functions, 26.2.23.
_TOP = (2.515517, 0.802853, 0.010328)
_BOTTOM = (1.0, 1.432788, 0.189269, 0.001308)
_NEWTON_STEPS = 3  # each doubles the number of digits


def _tail(y: Tensor) -> Tensor:
    """Return the x > 0 with erfc(x) = y for 0 < y <= 0.5."""
    goal = log(y)
    t = sqrt(-2 * (goal - math.log(2)))
    top = (_TOP[2] * t + _TOP[1]) * t + _TOP[0]
    bottom = ((_BOTTOM[3] * t + _BOTTOM[2]) * t + _BOTTOM[1]) * t + _BOTTOM[0]
    x = stop_gradient((t - top / bottom) * math.sqrt(0.5))
    for _ in range(_NEWTON_STEPS):
        scaled = scaled_erfc(x)
        excess = log(scaled) - x * x - goal
        x = x + excess * scaled * (math.sqrt(math.pi) / 2)
    return x


def _inverse(y: Tensor, complement: Tensor) -> Tensor:
    """Return the x with erfc(x) = y for y in [0, 2]; rest is 2 - y."""
    is_right, is_left = less(y, 0.5), less(complement, 0.5)
    smaller = where(is_left, complement, y)
    is_end = equal(smaller, 0)
    is_tail = (is_right | is_left) & logical_not(is_end)
    tail = where(is_end, math.inf, _tail(where(is_tail, smaller, 0.25)))
    center = erfinv(where(is_right | is_left, 0.0, (complement - y) / 2))
    return where(is_right, tail, where(is_left, -tail, center))


@operation
def erfcinv(x: TensorLike) -> Tensor:
    """Compute the inverse of `erfc`, elementwise.

    Args:
        x: numbers in [0, 2], of any shape; all other numbers give NaN.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/7.17

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.erfc(ops.erfcinv([0.1, 1.5])), 4))
        [0.1 1.5]
    """
    (x,), dtype = doubles(x)
    is_valid = logical_not(less(x, 0)) & logical_not(greater(x, 2)) & equal(x, x)
    inner = where(is_valid, x, 1.0)
    return convert(where(is_valid, _inverse(inner, 2 - inner), math.nan), dtype)


@operation
def ndtri(p: Any) -> Tensor:
    """Compute the quantiles of the standard normal distribution, elementwise.

    Args:
        p: probabilities in [0, 1], of any shape; all other numbers give NaN.

    Returns:
        A tensor with the shape of `p`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/7.17

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.ndtri([0.5, 0.975]), 4))
        [0.   1.96]
    """
    (p,), dtype = doubles(p)
    is_valid = logical_not(less(p, 0)) & logical_not(greater(p, 1)) & equal(p, p)
    inner = where(is_valid, p, 0.5)
    y = math.sqrt(2) * _inverse(2 * (1 - inner), 2 * inner)
    return convert(where(is_valid, y, math.nan), dtype)
