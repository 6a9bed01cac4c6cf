"""Incomplete gamma and beta functions, by quadrature in float64.

The integrands are positive, so their sums keep the relative accuracy.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.ir import Primitive
from toolkit.ops.elementwise import (
    equal,
    greater,
    greater_equal,
    isinf,
    less,
    less_equal,
    maximum,
    minimum,
    where,
)
from toolkit.ops.gamma import lgamma_from_1, stirling_rest
from toolkit.ops.numeric import logical_not
from toolkit.ops.quadrature import (
    bind_float,
    bind_integral,
    doubles,
    expm1_plus,
    in_float64,
    log1p_minus,
    log_ratio_minus,
    tail_integral,
)
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import exp, expm1, log, log1p, sqrt
from toolkit.type_aliases import TensorLike

# Below this x the complement of igamma has a power series without large terms.
_SERIES_BORDER = 1.1
_SERIES_TERMS = 24


def _gamma_density(a: Tensor, x: Tensor) -> Tensor:
    """Return x ** a * exp(-x) / gamma(a) for a, x > 0."""
    power = a * log_ratio_minus(x, a, x - a) - stirling_rest(a)
    return sqrt(a / (2 * math.pi)) * exp(power)


def _lower_integrand(node: Tensor, a: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    s = node / scale
    return exp(-(a - x) * s - x * expm1_plus(s))


def _upper_integrand(node: Tensor, a: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    v = node / scale
    return exp(-(x - a + 1) * v + (a - 1) * log1p_minus(v))


lower_integral_p: Primitive = tail_integral("igamma_integral", _lower_integrand)
upper_integral_p: Primitive = tail_integral("igammac_integral", _upper_integrand)


lower_ratio_p: Primitive = decomposable(
    "igamma_ratio",
    lambda a, x, scale: bind_integral(lower_integral_p, a, x, scale) / scale,
    scalar=lambda s, a, x, scale: s.igamma_ratio(a, x, scale),
)
upper_ratio_p: Primitive = decomposable(
    "igammac_ratio",
    lambda a, x, scale: bind_integral(upper_integral_p, a, x, scale) / scale,
    scalar=lambda s, a, x, scale: s.igammac_ratio(a, x, scale),
)


def _lower(a: Tensor, x: Tensor) -> Tensor:
    """Return igamma(a, x) where x is not much larger than a."""
    scale = minimum(a, maximum(a - x, 0.0) + sqrt(x))
    return _gamma_density(a, x) * bind(lower_ratio_p, a, x, scale)


def _upper(a: Tensor, x: Tensor) -> Tensor:
    """Return igammac(a, x) where x is at least a and at least 1."""
    scale = minimum(x, (x - a + 1) + sqrt(a))
    return _gamma_density(a, x) * bind(upper_ratio_p, a, x, scale)


def _upper_near_0(a: Tensor, x: Tensor) -> Tensor:
    """Return igammac(a, x) for a < 1 and x <= 1.1, by its power series in x."""
    log_power = a * log(x) - lgamma_from_1(a)
    term, total = convert(1.0, "float64"), convert(0.0, "float64")
    for n in range(1, _SERIES_TERMS):
        term = term * (-x / n)
        total = total + term / (a + n)
    return -expm1(log_power) - exp(log_power) * a * total


def _both_parts(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return igamma and igammac for finite a, x > 0."""
    is_lower = less_equal(x, maximum(a, _SERIES_BORDER))
    lower = _lower(where(is_lower, a, 1.0), where(is_lower, x, 1.0))
    upper = _upper(where(is_lower, 1.0, a), where(is_lower, 2.0, x))
    is_near = is_lower & less(a, 1) & greater(lower, 0.5)
    near = _upper_near_0(where(is_near, a, 0.5), where(is_near, x, 0.5))
    lower = where(is_near, 1 - near, lower)
    upper_of_lower = where(is_near, near, 1 - lower)
    return where(is_lower, lower, 1 - upper), where(is_lower, upper_of_lower, upper)


def _incomplete_gamma(is_upper: bool, a: Tensor, x: Tensor) -> Tensor:
    is_inner = (
        greater(a, 0) & greater(x, 0) & logical_not(isinf(a)) & logical_not(isinf(x))
    )
    lower_and_upper = _both_parts(where(is_inner, a, 1.0), where(is_inner, x, 1.0))
    # At 0 the derivative with respect to x is 1 where a is 1.
    at_0 = where(equal(a, 1), where(is_inner, 0.0, x), 0.0)
    low, high = (1 - at_0, 0.0) if is_upper else (at_0, 1.0)
    is_valid = greater(a, 0) & greater_equal(x, 0) & logical_not(isinf(a) & isinf(x))
    y = where(is_inner, lower_and_upper[is_upper], where(isinf(x), high, low))
    return where(is_valid, y, math.nan)


igamma_p: Primitive = in_float64("igamma", partial(_incomplete_gamma, False))
igammac_p: Primitive = in_float64("igammac", partial(_incomplete_gamma, True))


@operation
def igamma(a: TensorLike, x: TensorLike) -> Tensor:
    """Compute the regularized lower incomplete gamma function, elementwise.

    It is the integral of t ** (a - 1) * exp(-t) / gamma(a) from 0 to x.

    Args:
        a: positive numbers of any shape; all other numbers give NaN.
        x: numbers >= 0, which broadcast with `a`; all other numbers give NaN.

    Returns:
        A tensor with the broadcast shape and the common floating dtype, with elements
        in [0, 1].

    Reference:
        DLMF, https://dlmf.nist.gov/8.2

    Example:
        >>> from toolkit import ops
        >>> round(float(ops.igamma(1.0, 2.0)), 4)  # 1 - exp(-2)
        0.8647
    """
    return bind_float(igamma_p, a, x)


@operation
def igammac(a: TensorLike, x: TensorLike) -> Tensor:
    """Compute 1 - igamma(a, x), elementwise, without cancellation.

    Args:
        a: positive numbers of any shape; all other numbers give NaN.
        x: numbers >= 0, which broadcast with `a`; all other numbers give NaN.

    Returns:
        A tensor with the broadcast shape and the common floating dtype, with elements
        in [0, 1].

    Reference:
        DLMF, https://dlmf.nist.gov/8.2

    Example:
        >>> from toolkit import ops
        >>> round(float(ops.igammac(1.0, 2.0)), 4)  # exp(-2)
        0.1353
    """
    return bind_float(igammac_p, a, x)


def _beta_density(a: Tensor, b: Tensor, x: Tensor, complement: Tensor) -> Tensor:
    """Return x ** a * rest ** b / beta(a, b); rest is 1 - x."""
    total = a + b
    mean = a / total
    power = a * log_ratio_minus(x, mean, x - mean)
    power = power + b * log_ratio_minus(complement, b / total, mean - x)
    power = power + stirling_rest(total) - stirling_rest(a) - stirling_rest(b)
    return sqrt(a / total * b / (2 * math.pi)) * exp(power)


def _beta_integrand(
    node: Tensor, a: Tensor, b: Tensor, ratio: Tensor, slope: Tensor, scale: Tensor
) -> Tensor:
    s = node / scale
    growth = -ratio * expm1(-s)
    stable = (b - 1) * (log1p_minus(growth) - ratio * expm1_plus(s)) - slope * s
    direct = (b - 1) * log1p(growth) - a * s
    return exp(where(greater(b, 2), stable, direct))


beta_integral_p: Primitive = tail_integral("betainc_integral", _beta_integrand)


def _left_beta(a: Tensor, b: Tensor, x: Tensor, complement: Tensor) -> Tensor:
    """Return betainc(a, b, x) for x up to the mean a / (a + b); rest is 1 - x."""
    ratio = x / complement
    slope = a - (b - 1) * ratio
    scale = minimum(a, maximum(slope, 0.0) + sqrt(b * ratio * (1 + ratio)))

    y = bind_integral(beta_integral_p, a, b, ratio, slope, scale)
    return _beta_density(a, b, x, complement) * y / (scale * complement)


@operation
def betainc(a: Any, b: Any, x: Any) -> Tensor:
    """Compute the regularized incomplete beta function, elementwise.

    It is the integral of t ** (a - 1) * (1 - t) ** (b - 1) / beta(a, b) from 0 to x.

    Args:
        a: positive numbers of any shape; all other numbers give NaN.
        b: positive numbers, which broadcast with `a`; all other numbers give NaN.
        x: numbers in [0, 1], which broadcast with `a`; all other numbers give NaN.

    Returns:
        A tensor with the broadcast shape and the common floating dtype, with elements
        in [0, 1].

    Reference:
        DLMF, https://dlmf.nist.gov/8.17

    Example:
        >>> from toolkit import ops
        >>> round(float(ops.betainc(2.0, 1.0, 0.5)), 4)  # 0.5 ** 2
        0.25
    """
    (a, b, x), dtype = doubles(a, b, x)
    is_valid = greater(a, 0) & greater(b, 0) & logical_not(isinf(a + b))
    is_valid = is_valid & greater_equal(x, 0) & less_equal(x, 1)
    is_inner = is_valid & greater(x, 0) & less(x, 1)
    a, b, inner = (where(is_inner, v, 0.5) for v in (a, b, x))
    is_right = greater(inner, a / (a + b))
    near, far = where(is_right, b, a), where(is_right, a, b)
    lower = where(is_right, 1 - inner, inner)
    y = _left_beta(near, far, lower, where(is_right, inner, 1 - inner))
    y = where(is_inner, where(is_right, 1 - y, y), greater(x, 0.5))
    return convert(where(is_valid, y, math.nan), dtype)
