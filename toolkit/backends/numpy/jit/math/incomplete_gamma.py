"""Incomplete gamma functions of doubles, relative to x ** a * exp(-x).

    lower: the sum of x ** n / (a * (a + 1) * ... * (a + n)) over n >= 0
    upper: 1 / (b + (a - 1) / (b + 2 + 2 * (a - 2) / (b + 4 + ...))), b = x + 1 - a

Both need about 9 * sqrt(a) terms where x is near a. For larger a they are integrals
over s > 0, by the trapezoidal rule in u with s = exp(u - exp(-u)).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from toolkit.backends.numpy.jit.math.exponential import exp, expm1
from toolkit.backends.numpy.jit.math.logarithm import log1p
from toolkit.backends.numpy.jit.math.rare_lanes import loop_over_lanes, select_rare
from toolkit.backends.numpy.jit.math.vector import Vector, absolute, fma, polynomial

# From this a on, the integrals take less time. Measured: the time of 94 nodes is the
# time of about 600 terms.
_LARGE = 4000.0
_EPSILON = 2.0**-53
# No lane needs more terms. The limit ends a loop whose last digits alternate.
_MAX_TERMS = 2000.0
# The step in u, with an error of 1e-15, and its first and last numbers of steps.
_STEP, _FIRST, _LAST = 1 / 12, -48.0, 45.0
_EXPM1 = [(-1) ** k / math.factorial(k + 2) for k in range(16)]
_ARTANH = [2 / (2 * k + 3) for k in range(18)]


def igamma_ratio(a: Vector, x: Vector, scale: Vector) -> Vector:
    """Return the lower function for x up to about a.

    Args:
        a, x: positive numbers.
        scale: the scale of s, for large a.
    """
    is_large = a > _LARGE
    small_a, small_x = a.constant(1.0).where(is_large, a), x.where(~is_large, 0.5)

    def step(n: Vector, term: Vector, total: Vector) -> tuple[list[Vector], Vector]:
        for _ in range(4):
            n = n + 1.0
            term = term * (small_x / (small_a + n))
            total = total + term
        return [n, term, total], term > total * _EPSILON

    one = a.constant(1.0)
    *_, total = loop_over_lanes([a.constant(0.0), one, one], step)

    def integrand(s: Vector) -> Vector:
        return exp(-((a - x) * s) - x * _expm1_plus(s))

    return _select_integral(is_large, total / small_a, integrand, scale)


def igammac_ratio(a: Vector, x: Vector, scale: Vector) -> Vector:
    """Return the upper function for x from about max(1, a) on.

    Args:
        a, x: positive numbers.
        scale: the scale of s, for large a.
    """
    is_large = a > _LARGE
    one = a.constant(1.0)
    small_a, small_x = one.where(is_large, a), x.where(~is_large, 2.0)

    # Steed's algorithm: the difference of two convergents by one division.
    def step(
        n: Vector, b: Vector, inverse: Vector, change: Vector, total: Vector
    ) -> tuple[list[Vector], Vector]:
        for _ in range(2):
            numerator = n * (small_a - n)
            n, b = n + 1.0, b + 2.0
            inverse = 1.0 / fma(inverse, numerator, b)
            change = fma(b, inverse, -1.0) * change
            total = total + change
        continues = absolute(change) > total * _EPSILON
        return [n, b, inverse, change, total], continues & (n < _MAX_TERMS)

    b = small_x - small_a + 1.0
    first = 1.0 / b
    *_, total = loop_over_lanes([one, b, first, first, first], step)

    def integrand(v: Vector) -> Vector:
        return exp((a - 1.0) * _log1p_minus(v) - (x - a + 1.0) * v)

    return _select_integral(is_large, total, integrand, scale)


def _select_integral(
    is_large: Vector,
    usual: Vector,
    integrand: Callable[[Vector], Vector],
    scale: Vector,
) -> Vector:
    """Return the integral of a function in the lanes of large a."""

    def step(k: Vector, total: Vector) -> tuple[list[Vector], Vector]:
        u = k * _STEP
        decay = exp(-u)
        node = exp(u - decay)
        weight = node * (decay + 1.0) * _STEP
        total = fma(weight, integrand(node / scale), total)
        k = k + 1.0
        return [k, total], k <= _LAST

    def integral() -> list[Vector]:
        first = scale.constant(_FIRST)
        _, total = loop_over_lanes([first, scale.constant(0.0)], step)
        return [total / scale]

    return select_rare(is_large, [usual], integral)[0]


def _expm1_plus(s: Vector) -> Vector:
    """Return exp(-s) - 1 + s without cancellation, for s >= 0."""
    near = s * s * polynomial(s, _EXPM1)
    return (expm1(-s) + s).where(s > 0.5, near)


def _log1p_minus(v: Vector) -> Vector:
    """Return log(1 + v) - v without cancellation, for v > 0."""
    s = v / (v + 2.0)
    z = s * s
    near = s * (z * polynomial(z, _ARTANH) - v)
    return (log1p(v) - v).where(v > 0.5, near)
