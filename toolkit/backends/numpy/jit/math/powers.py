"""power: e**(y * log(x)), with enough bits in the logarithm for every y.

Numbers with extended precision are unevaluated sums: a name with _low is the rounding
error of the name without it.
"""

from __future__ import annotations

import math

from toolkit.backends.numpy.jit.math.exponential import exp
from toolkit.backends.numpy.jit.math.logarithm import LOG_2, split
from toolkit.backends.numpy.jit.math.rounding import rounded
from toolkit.backends.numpy.jit.math.vector import (
    Vector,
    absolute,
    copysign,
    exact_fma,
    fma,
    polynomial,
)
from toolkit.backends.numpy.jit.processor import current

_TWO_THIRDS = {
    "float32": (0.6666666865348816, -1.9868215517249155e-08),
    "float64": (0.6666666666666666, 3.700743415417188e-17),
}

# ((2 * atanh(s) / s - 2) / z - 2/3) / z in z = s**2 for |s| <= 0.1718, minimax for
# atanh's relative error, found by a Remez exchange in 250-bit arithmetic and rounded:
# 2**-36.8 and 2**-66.3.
_SERIES = {
    "float32": (0.40000153, 0.28547072, 0.234204),
    "float64": (
        0.40000000000002295,
        0.2857142857007969,
        0.22222222523685425,
        0.1818178402077707,
        0.15386774014033253,
        0.132564135440413,
        0.13200216149850755,
    ),
}
# For cbrt: the sum of the bits of t and a third of the bits of a, without the dropped
# low bits, and the number of these. Then t is about a**(-1/3), and h = a * t**3 is
# between 0.70 and 0.831. The polynomial of h**(-1/3) is minimax for the relative error
# there, found by a Remez exchange in 200-bit arithmetic and rounded: 2**-20 and
# 2**-29.5.
_CUBE_ROOT = {
    "float32": (
        (5542161, 8),
        (1.8921225, -1.8602708, 1.3917931, -0.42467856),
    ),
    "float64": (
        (1430047949, 32),
        (
            2.1864019323882635,
            -3.5835764610379064,
            5.366209836004698,
            -4.918213051524543,
            2.4749058225460807,
            -0.5257997360849205,
        ),
    ),
}
_OUT_OF_RANGE = 800.0  # e to this power overflows, to its negative it underflows


def power(x: Vector, y: Vector) -> Vector:
    """Return x**y with the special cases of C's pow."""
    a = absolute(x)
    magnitude = _magnitude(a, y)
    is_integer = rounded("trunc", y).equals(y)  # true for infinities
    half = y * 0.5
    even = rounded("trunc", half).equals(half)
    result = copysign(magnitude, x).where(is_integer & ~even, magnitude)
    undefined = (x < 0.0) & (x > -math.inf) & ~is_integer
    result = x.constant(math.nan).where(undefined, result)
    # 1 for every value of the other operand, including NaN and infinity.
    one = y.equals(0.0) | x.equals(1.0)
    one = one | (a.equals(1.0) & absolute(y).equals(math.inf))
    return x.constant(1.0).where(one, result)


def cbrt(x: Vector) -> Vector:
    """Return the cube root: a * t**2 for t near |x|**(-1/3), and a step of Newton."""
    layout, dtype = x.format, x.value.dtype
    magnitude = absolute(x)
    # A multiple of 3, so that the root of the scale is a power of two.
    exponent = 3 * (layout.mantissa // 3 + 1)
    is_small = magnitude < layout.tiny * 8.0
    a = (magnitude * 2.0**exponent).where(is_small, magnitude)
    (offset, dropped), coefficients = _CUBE_ROOT[dtype]
    # 2**mantissa with the upper bits of `a` in its lowest bits is a float.
    large = 2.0**layout.mantissa
    upper = (a.bits() >> dropped) | x.constant(large).bits()
    third = fma(upper.convert("bitcast", dtype) - large, -1.0 / 3.0, large + offset)
    t = (third.bits() << dropped).convert("bitcast", dtype)
    t = t * polynomial(a * t * t * t, coefficients)
    square = t * t
    y = a * square
    # Without a fused multiply-add, the cube of the largest root overflows.
    scale = 1.0 if current().has_fma else 0.5
    z = y * scale
    error = fma(z * z, z, -(a * scale**3))
    y = fma(error, square * (-1.0 / 3.0 / scale**3), y)
    y = (y * 2.0 ** (-exponent // 3)).where(is_small, y)
    return copysign(y.where(magnitude < math.inf, x), x)


def _magnitude(a: Vector, y: Vector) -> Vector:
    """Return a**y for a >= 0; NaN if the exponent is 0 * infinity."""
    high, low = _precise_log(a)
    high = high.where(a < math.inf, a)
    high = a.constant(-math.inf).where(a.equals(0.0), high)
    product = y * high
    product_low = fma(y, low, exact_fma(y, high, -product))
    # Outside this range the parts can be infinities with a difference of NaN.
    in_range = absolute(product) < _OUT_OF_RANGE
    return exp(product, product_low.where(in_range, 0.0))


def _precise_log(a: Vector) -> tuple[Vector, Vector]:
    """Return log(a) for finite a > 0, with extended precision."""
    e, m = split(a)
    high, low = _precise_log_near_1(m)
    log_2, log_2_low = LOG_2[a.value.dtype]
    exponent_term = e * log_2
    exponent_term_low = fma(e, log_2_low, exact_fma(e, log_2, -exponent_term))
    # |e| * log(2) is 0 or larger than the other part, so the sum's error is exact.
    total = exponent_term + high
    return total, (exponent_term - total + high) + (exponent_term_low + low)


def _precise_log_near_1(m: Vector) -> tuple[Vector, Vector]:
    """Return log(m) for m between sqrt(1/2) and sqrt(2).

    2 * atanh(s) = 2 * s + s * z * (2/3 + z * series(z)) with s = (m - 1) / (m + 1) and
    z = s**2.
    """
    two_thirds, two_thirds_low = _TWO_THIRDS[m.value.dtype]
    f = m - 1.0
    divisor = m + 1.0
    divisor_low = m - (divisor - 1.0)
    inverse = 1.0 / divisor
    s = f * inverse
    s_low = fma(s, -divisor_low, exact_fma(-s, divisor, f)) * inverse
    z = s * s
    z_low = exact_fma(s, s, -z) + (s + s) * s_low
    small = z * polynomial(z, _SERIES[m.value.dtype])
    factor = small + two_thirds
    factor_low = (two_thirds - factor + small) + two_thirds_low
    cube = s * z
    cube_low = fma(s, z_low, fma(s_low, z, exact_fma(s, z, -cube)))
    term = cube * factor
    term_low = exact_fma(cube, factor, -term)
    term_low = fma(cube, factor_low, fma(cube_low, factor, term_low))
    twice = s + s
    high = twice + term
    return high, (twice - high + term) + (s_low + s_low + term_low)
