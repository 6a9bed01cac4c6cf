"""Bessel functions of orders 0 and 1, elementwise, computed in float64.

Below a threshold they are sums over nodes of an integral over a period, for which the
trapezoidal rule is exact up to rounding. Above it they are asymptotic series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.ops.elementwise import equal, greater, isinf, less, sign, where
from toolkit.ops.numeric import absolute, logical_not
from toolkit.ops.quadrature import EULER, doubles, integrate, polynomial
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import arccosh, cos, cosh, exp, log, sin, sqrt
from toolkit.type_aliases import Array, TensorLike

_BORDER = 25.0
_NODES = 40  # nodes in a quarter of a period
_K_BORDER = 2.0  # below, K is a power series
_K_STEPS = 36


def _quarter() -> tuple[Array, Array]:
    """Return angles in [0, pi / 2], and weights for the mean over a period."""
    weights = np.full(_NODES + 1, 1 / _NODES)
    weights[[0, -1]] /= 2
    return np.arange(_NODES + 1) * (np.pi / 2 / _NODES), weights


_ANGLES, _WEIGHTS = _quarter()
_SIN, _COS = np.sin(_ANGLES), np.cos(_ANGLES)
_SIN_SQUARED = _WEIGHTS * _SIN**2
# The sum of (-1) ** k * cos(2 k angle) / k: Neumann's series of Y in the functions J.
_ORDERS = np.arange(1, _NODES)
_NEUMANN = np.cos(2 * np.outer(_ANGLES, _ORDERS)) @ ((-1.0) ** _ORDERS / _ORDERS)


def _hankel(order: int) -> list[float]:
    """Return the coefficients of the asymptotic series in 1 / x."""
    terms, mu = [1.0], 4 * order * order
    for k in range(1, 26):
        terms.append(terms[-1] * (mu - (2 * k - 1) ** 2) / (8 * k))
    return terms


_TERMS = {order: _hankel(order) for order in (0, 1)}


def _split(x: Tensor, border: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return which numbers are above a threshold, and safe arguments for both sides."""
    is_far = greater(x, border)
    return is_far, where(is_far, border, x), where(is_far, x, border)


# --- modified functions I ---------------------------------------------------------


def _scaled_i(order: int, x: Tensor) -> Tensor:
    """Return exp(-x) * I(x) for x >= 0."""
    is_far, near, far = _split(x, _BORDER)
    signs = [t * (-1) ** k for k, t in enumerate(_TERMS[order])]
    tail = polynomial(signs, 1 / far) / sqrt(2 * math.pi * far)
    # Both halves of the period: angles a and pi - a.
    cosines = np.concatenate([_COS, -_COS[:-1]])
    weights = _WEIGHTS if order == 0 else 2 * _SIN_SQUARED
    weights = weights.copy()
    weights[-1] *= 2  # pi / 2 is in both halves
    weights = np.concatenate([weights, weights[:-1]]) / 2
    y = integrate(lambda c, x: exp(x * (c - 1)), cosines, weights, near)
    return where(is_far, tail, y if order == 0 else near / 2 * y)


@operation
def i0e(x: TensorLike) -> Tensor:
    """Compute exp(-abs(x)) * i0(x), elementwise, without overflow.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.i0e([0.0, 1.0]), 4))
        [1.     0.4658]
    """
    (x,), dtype = doubles(x)
    return convert(_scaled_i(0, absolute(x)), dtype)


@operation
def i1e(x: TensorLike) -> Tensor:
    """Compute exp(-abs(x)) * i1(x), elementwise, without overflow.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.i1e([0.0, 1.0]), 4))
        [0.     0.2079]
    """
    (x,), dtype = doubles(x)
    return convert(sign(x) * _scaled_i(1, absolute(x)), dtype)


@operation
def i1(x: TensorLike) -> Tensor:
    """Compute the modified Bessel function of the first kind of order 1, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.i1([0.0, 1.0, -1.0]), 4))
        [ 0.      0.5652 -0.5652]
    """
    (x,), dtype = doubles(x)
    size = absolute(x)
    finite = where(isinf(x), 1.0, size)
    half = exp(finite * 0.5)  # exp(x) overflows first
    y = sign(x) * (half * _scaled_i(1, finite) * half)
    return convert(where(isinf(x), x, y), dtype)


# --- modified functions K ---------------------------------------------------------


def _k_series(order: int, x: Tensor) -> Tensor:
    """Return K(x) for 0 < x <= 2 by its power series."""
    square = x * x / 4
    facts = [1 / math.factorial(k) ** 2 for k in range(18)]
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, 19))])
    logarithm = log(x / 2) + EULER
    if order == 0:
        i = polynomial(facts, square)
        series = polynomial(
            [f * h for f, h in zip(facts, harmonic, strict=False)], square
        )
        return series - logarithm * i
    facts = [f / (k + 1) for k, f in enumerate(facts)]
    means = [(harmonic[k] + harmonic[k + 1]) / 2 for k in range(18)]
    i = polynomial(facts, square) * (x / 2)
    series = polynomial([f * m for f, m in zip(facts, means, strict=True)], square)
    return 1 / x + logarithm * i - x / 2 * series


def _scaled_k(order: int, x: Tensor) -> Tensor:
    """Return exp(x) * K(x) for x > 0."""
    is_far, inner, far = _split(x, _BORDER)
    tail = polynomial(_TERMS[order], 1 / far) * sqrt(math.pi / 2 / far)
    is_small = less(inner, _K_BORDER)
    small, middle = where(is_small, inner, 1.0), where(is_small, _K_BORDER, inner)
    series = exp(small) * _k_series(order, small)
    # The integral of exp(-x (cosh(t) - 1)) * cosh(order * t), up to exp(-40).
    step = arccosh(1 + 40 / middle) / _K_STEPS
    weights = np.ones(_K_STEPS + 1)
    weights[0] = 0.5

    def integrand(k: Tensor, x: Tensor, step: Tensor) -> Tensor:
        level = cosh(k * step)
        y = exp(-x * (level - 1))
        return y if order == 0 else y * level

    steps = np.arange(_K_STEPS + 1.0)
    y = integrate(integrand, steps, weights, middle, step) * step
    return where(is_far, tail, where(is_small, series, y))


def _k(order: int, x: TensorLike, is_scaled: bool) -> Tensor:
    (x,), dtype = doubles(x)
    is_valid = greater(x, 0) | logical_not(equal(x, x))
    inner = where(is_valid, x, 1.0)
    y = _scaled_k(order, inner)
    if not is_scaled:
        y = y * exp(-inner)
    return convert(where(is_valid, y, math.inf), dtype)


@operation
def bessel_k0(x: TensorLike) -> Tensor:
    """Compute the modified Bessel function of the second kind of order 0.

    Args:
        x: positive numbers of any shape; all other numbers give infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_k0([1.0, 2.0]), 4))
        [0.421  0.1139]
    """
    return _k(0, x, False)


@operation
def bessel_k0e(x: TensorLike) -> Tensor:
    """Compute exp(x) * bessel_k0(x), elementwise, without underflow.

    Args:
        x: positive numbers of any shape; all other numbers give infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_k0e([1.0, 2.0]), 4))
        [1.1445 0.8416]
    """
    return _k(0, x, True)


@operation
def bessel_k1(x: TensorLike) -> Tensor:
    """Compute the modified Bessel function of the second kind of order 1.

    Args:
        x: positive numbers of any shape; all other numbers give infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_k1([1.0, 2.0]), 4))
        [0.6019 0.1399]
    """
    return _k(1, x, False)


@operation
def bessel_k1e(x: TensorLike) -> Tensor:
    """Compute exp(x) * bessel_k1(x), elementwise, without underflow.

    Args:
        x: positive numbers of any shape; all other numbers give infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_k1e([1.0, 2.0]), 4))
        [1.6362 1.0335]
    """
    return _k(1, x, True)


# --- functions J and Y ------------------------------------------------------------


def _waves(terms: Sequence[float], order: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return J(x) and Y(x) for large x."""
    even = [t * (-1) ** k for k, t in enumerate(terms[0::2])]
    odd = [t * (-1) ** k for k, t in enumerate(terms[1::2])]
    square = 1 / (x * x)
    p, q = polynomial(even, square), polynomial(odd, square) / x
    # cos and sin of x - pi / 4, or of x - 3 pi / 4, without rounding the difference.
    c, s = cos(x), sin(x)
    real, imag = (c + s, s - c) if order == 0 else (s - c, -(c + s))
    scale = 1 / sqrt(math.pi * x)
    return scale * (p * real - q * imag), scale * (p * imag + q * real)


def _j(order: int, x: Tensor) -> Tensor:
    """Return J(x) for x >= 0."""
    is_far, near, far = _split(x, _BORDER)
    if order == 0:
        y = integrate(lambda s, x: cos(x * s), _SIN, _WEIGHTS, near)
    else:
        y = near * integrate(lambda c, x: cos(x * c), _COS, _SIN_SQUARED, near)
    return where(is_far, _waves(_TERMS[order], order, far)[0], y)


def _y(order: int, x: Tensor) -> Tensor:
    """Return Y(x) for x > 0."""
    is_far, near, far = _split(x, _BORDER)
    logarithm = log(near / 2) + EULER
    if order == 0:
        integral = integrate(lambda s, x: cos(x * s), _SIN, _WEIGHTS * _NEUMANN, near)
        y = 2 / math.pi * (logarithm * _j(0, near) - 2 * integral)
    else:
        weights = _WEIGHTS * _NEUMANN * _SIN
        integral = integrate(lambda s, x: sin(x * s), _SIN, weights, near)
        y = logarithm * _j(1, near) - _j(0, near) / near - 2 * integral
        y = 2 / math.pi * y
    return where(is_far, _waves(_TERMS[order], order, far)[1], y)


def _second_kind(order: int, x: TensorLike) -> Tensor:
    (x,), dtype = doubles(x)
    is_valid = greater(x, 0)
    y = _y(order, where(is_valid & logical_not(isinf(x)), x, 1.0))
    y = where(isinf(x), 0.0, y)
    y = where(is_valid, y, where(equal(x, x), -math.inf, math.nan))
    return convert(y, dtype)


@operation
def bessel_j0(x: TensorLike) -> Tensor:
    """Compute the Bessel function of the first kind of order 0, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_j0([0.0, 1.0]), 4))
        [1.     0.7652]
    """
    (x,), dtype = doubles(x)
    y = _j(0, absolute(where(isinf(x), 1.0, x)))
    return convert(where(isinf(x), 0.0, y), dtype)


@operation
def bessel_j1(x: TensorLike) -> Tensor:
    """Compute the Bessel function of the first kind of order 1, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_j1([0.0, 1.0]), 4))
        [0.     0.4401]
    """
    (x,), dtype = doubles(x)
    y = sign(x) * _j(1, absolute(where(isinf(x), 1.0, x)))
    return convert(where(isinf(x), 0.0, y), dtype)


@operation
def bessel_y0(x: TensorLike) -> Tensor:
    """Compute the Bessel function of the second kind of order 0, elementwise.

    Args:
        x: positive numbers of any shape; all other numbers give minus infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_y0([1.0, 2.0]), 4))
        [0.0883 0.5104]
    """
    return _second_kind(0, x)


@operation
def bessel_y1(x: TensorLike) -> Tensor:
    """Compute the Bessel function of the second kind of order 1, elementwise.

    Args:
        x: positive numbers of any shape; all other numbers give minus infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_y1([1.0, 2.0]), 4))
        [-0.7812 -0.107 ]
    """
    return _second_kind(1, x)
