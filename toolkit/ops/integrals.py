"""Integrals without a closed form: Dawson's, Fresnel's, exponential and dilogarithm.

All of them are elementwise and compute in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.ir import Primitive
from toolkit.ops.elementwise import equal, floor, greater, isinf, less, sign, where
from toolkit.ops.numeric import absolute, logical_not
from toolkit.ops.quadrature import EULER, bind_float, in_float64, polynomial
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import cos, exp, log, log1p, sin
from toolkit.type_aliases import TensorLike

# Rybicki, "Dawson's integral and the sampling theorem", Computers in Physics 3 (1989).
_DAWSON_STEP = 0.25
_DAWSON_NODES: list[float] = np.arange(-27.0, 28.0, 2.0).tolist()
_DAWSON_SERIES = [(-2.0) ** k / math.prod(range(1, 2 * k + 2, 2)) for k in range(26)]


def _dawsn(x: Tensor) -> Tensor:
    is_far, is_infinite = greater(absolute(x), 1), isinf(x)
    near = where(is_far, 0.0, x)
    series = near * polynomial(_DAWSON_SERIES, near * near)
    far = where(is_far & logical_not(is_infinite), x, 2.0)
    center = 2 * floor(far / (2 * _DAWSON_STEP) + 0.5)
    offset = far - center * _DAWSON_STEP
    y = convert(0.0, "float64")
    for node in _DAWSON_NODES:
        distance = offset - node * _DAWSON_STEP
        y = y + exp(-distance * distance) / (node + center)
    y = y / math.sqrt(math.pi)
    return where(is_infinite, 0.0, where(is_far, y, series))


dawsn_p: Primitive = in_float64("dawsn", _dawsn)


@operation
def dawsn(x: TensorLike) -> Tensor:
    """Compute Dawson's integral exp(-x ** 2) * integral of exp(t ** 2) from 0 to x.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        Rybicki, Dawson's Integral and the Sampling Theorem (1989),
            doi:10.1063/1.4822832

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.dawsn([0.0, 1.0]), 4))
        [0.     0.5381]
    """
    return bind_float(dawsn_p, x)


_EXPINT_BORDER = 40.0
_EXPINT_SERIES = [_EXPINT_BORDER**k / (k * math.factorial(k)) for k in range(1, 131)]
_EXPINT_TAIL = [math.factorial(k) / _EXPINT_BORDER**k for k in range(41)]


def _expint(x: Tensor) -> Tensor:
    is_valid = greater(x, 0)
    is_far = greater(x, _EXPINT_BORDER)
    near = where(is_valid & logical_not(is_far), x, 1.0)
    ratio = near / _EXPINT_BORDER
    series = EULER + log(near)
    series = series + ratio * polynomial(_EXPINT_SERIES, ratio)
    far = where(is_far & logical_not(isinf(x)), x, _EXPINT_BORDER)
    half = exp(far * 0.5)  # exp(x) overflows first
    tail = half * (polynomial(_EXPINT_TAIL, _EXPINT_BORDER / far) / far) * half
    tail = where(isinf(x), math.inf, tail)
    y = where(is_far, tail, series)
    return where(is_valid, y, where(equal(x, 0), -math.inf, math.nan))


def _expint_slope(x: Tensor) -> Tensor:
    finite = where(isinf(x), 1.0, x)
    half = exp(finite * 0.5)  # exp(x) overflows first
    slope = where(isinf(x), x, half / finite * half)
    return where(less(x, 0), math.nan, slope)


expint_p: Primitive = in_float64("expint", _expint, derivative=_expint_slope)


@operation
def expint(x: TensorLike) -> Tensor:
    """Compute the exponential integral: the integral of exp(t) / t from -inf to x.

    Args:
        x: positive numbers of any shape. The result is -inf at 0 and NaN below.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/6.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.expint([1.0, 2.0]), 4))
        [1.8951 4.9542]
    """
    return bind_float(expint_p, x)


_FRESNEL_BORDER = 1.2
_FRESNEL_NODES: list[float] = (np.arange(46) * 0.11).tolist()
_FRESNEL_WEIGHTS = [0.11 * math.exp(-math.pi / 2 * x**2) for x in _FRESNEL_NODES]
_FRESNEL_WEIGHTS[0] /= 2


def _fresnel_series(first: int) -> list[float]:
    """Return the coefficients of x ** (4 k) in the power series of an integral."""
    return [
        (-1) ** k * (math.pi / 2) ** n / (math.factorial(n) * (2 * n + 1))
        for k in range(14)
        for n in (2 * k + first,)
    ]


def _fresnel_angle(x: Tensor) -> Tensor:
    """Return pi / 2 * x ** 2 in [0, 2 * pi] for a finite x."""
    quarters = x * x  # of a full rotation; multiples of 4 have no effect
    return (quarters - 4 * floor(quarters / 4)) * (math.pi / 2)


def _fresnel(is_sine: bool, x: Tensor) -> Tensor:
    """Return the integral of sin or cos of pi / 2 * t ** 2 from 0 to x."""
    size = absolute(x)
    is_far, is_infinite = greater(size, _FRESNEL_BORDER), isinf(x)
    near = where(is_far, 0.0, size)
    series = polynomial(_fresnel_series(int(is_sine)), near**4)
    series = series * (near**3 if is_sine else near)
    far = where(is_far & logical_not(is_infinite), size, _FRESNEL_BORDER)
    fourth = (1 / far) ** 4
    # Both integrals have these terms.
    terms = [
        weight / (1 + node**4 * fourth)
        for node, weight in zip(_FRESNEL_NODES, _FRESNEL_WEIGHTS, strict=True)
    ]
    squares = [term * node**2 for node, term in zip(_FRESNEL_NODES, terms, strict=True)]
    factor = math.sqrt(2) / math.pi / far
    f = sum(terms[1:], terms[0]) * factor
    g = sum(squares[2:], squares[1]) * factor / (far * far)
    angle = _fresnel_angle(far)
    if is_sine:
        y = 0.5 - f * cos(angle) - g * sin(angle)
    else:
        y = 0.5 + f * sin(angle) - g * cos(angle)
    return sign(x) * where(is_infinite, 0.5, where(is_far, y, series))


def _fresnel_slope(wave: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the integrand; at infinity 0, because the integral is constant there."""
    is_infinite = isinf(x)
    slope = wave(_fresnel_angle(where(is_infinite, 0.0, x)))
    return where(is_infinite, 0.0, slope)


fresnel_sin_p: Primitive = in_float64(
    "fresnel_sin", partial(_fresnel, True), derivative=partial(_fresnel_slope, sin)
)
fresnel_cos_p: Primitive = in_float64(
    "fresnel_cos", partial(_fresnel, False), derivative=partial(_fresnel_slope, cos)
)


@operation
def fresnel_sin(x: TensorLike) -> Tensor:
    """Compute the integral of sin(pi / 2 * t ** 2) from 0 to x, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/7.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.fresnel_sin([0.0, 1.0]), 4))
        [0.     0.4383]
    """
    return bind_float(fresnel_sin_p, x)


@operation
def fresnel_cos(x: TensorLike) -> Tensor:
    """Compute the integral of cos(pi / 2 * t ** 2) from 0 to x, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/7.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.fresnel_cos([0.0, 1.0]), 4))
        [0.     0.7799]
    """
    return bind_float(fresnel_cos_p, x)


# B[2 k] / (2 k + 1)!, with Bernoulli numbers B: the dilogarithm in -log(1 - z).
_DILOG = [
    *(1 / 36, -1 / 3600, 1 / 211680, -1 / 10886400, 1 / 526901760),
    *(-691 / 2730 / math.factorial(13), 7 / 6 / math.factorial(15)),
    *(-3617 / 510 / math.factorial(17), 43867 / 798 / math.factorial(19)),
    -174611 / 330 / math.factorial(21),
]


def _spence(x: Tensor) -> Tensor:
    is_zero, is_infinite, is_large = equal(x, 0), isinf(x), greater(x, 1.5)
    large = where(is_large & logical_not(is_infinite), x, 2.0)
    inner = where(is_large, 1 / large, where(is_zero, 1.0, x))
    is_small = less(inner, 0.5)
    small = where(is_small & greater(inner, 0), inner, 0.25)
    u = -log1p(where(is_small, -small, where(is_small, 1.0, inner) - 1))
    y = u - u * u / 4 + u * u * u * polynomial(_DILOG, u * u)
    y = where(is_small, math.pi**2 / 6 - log(small) * log1p(-small) - y, y)
    y = where(is_large, -0.5 * log(large) ** 2 - y, y)
    y = where(is_infinite, -math.inf, where(is_zero, math.pi**2 / 6, y))
    return where(less(x, 0), math.nan, y)


# -log(x) / (x - 1) in powers of 1 - x.
_SPENCE_SLOPE = [-1 / k for k in range(1, 10)]


def _spence_slope(x: Tensor) -> Tensor:
    is_near = less(absolute(x - 1), 0.01)
    near = polynomial(_SPENCE_SLOPE, where(is_near, 1 - x, 0.0))
    far = where(is_near | isinf(x), 2.0, x)
    return where(is_near, near, where(isinf(x), 0.0, log(far) / (1 - far)))


spence_p: Primitive = in_float64("spence", _spence, derivative=_spence_slope)


@operation
def spence(x: TensorLike) -> Tensor:
    """Compute the integral of -log(t) / (t - 1) from 1 to x, elementwise.

    It is the dilogarithm of 1 - x.

    Args:
        x: numbers >= 0 of any shape; all other numbers give NaN.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/25.12

    Example:
        >>> from toolkit import ops
        >>> round(float(ops.spence(0.0)), 4)  # pi ** 2 / 6
        1.6449
    """
    return bind_float(spence_p, x)
