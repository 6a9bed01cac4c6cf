"""floor_divide and remainder of floats, bitwise equal to NumPy.

|x| = q * |y| + r with an integer q and 0 <= r < |y|. If q is small, the integer part of
the rounded quotient is q or q + 1. x - q * y is then representable, and a fused
multiply-add computes it exactly. Larger quotients are divided in steps. The rest of
each step is less than y times a power of two. r is always exact, and later operations
round like NumPy.
"""

from __future__ import annotations

import math

from toolkit.backends.numpy.jit.math.rare_lanes import loop_over_lanes, select_rare
from toolkit.backends.numpy.jit.math.rounding import rounded
from toolkit.backends.numpy.jit.math.vector import (
    Vector,
    absolute,
    copysign,
    exact_fma,
    fma,
    power_of_two,
)
from toolkit.backends.numpy.jit.processor import current


def floor_divide(x: Vector, y: Vector) -> Vector:
    """Return the largest integer up to x / y."""
    return _divide(x, y)[0]


def remainder(x: Vector, y: Vector) -> Vector:
    """Return x - floor(x / y) * y, with the sign of y."""
    return _divide(x, y)[1]


def _divide(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    """Return the quotient and the remainder."""
    a, b = absolute(x), absolute(y)
    quotient = a / b
    q, r = _integer_part(quotient, a, b)
    r = a.where(a < b, r)  # r is NaN for an infinite y
    signs = x.bits() ^ y.bits()
    differ = signs < 0
    sign = signs.convert("bitcast", x.value.dtype)
    floor = copysign((q + 1.0).where(differ & (r > 0.0), q), sign)
    # NumPy returns NaN for both results of an infinite x, unless the divisor is 0.
    floor = x.constant(math.nan).where(a.equals(math.inf) & (b > 0.0), floor)
    # Below this limit, NumPy's quotient is exact, too, independent of rounding.
    limit = 2.0 ** (x.format.mantissa - 1)
    large = (quotient > limit) & (b > 0.0) & (a < math.inf)

    def divided_in_steps() -> tuple[Vector, Vector]:
        remainder = _large_remainder(a.where(large, 0.0), b)
        below = differ & (remainder > 0.0)
        return _rounded_quotient(x, y, remainder, below), remainder

    floor, r = select_rare(large, (floor, r), divided_in_steps)
    return floor, copysign((b - r).where(differ & (r > 0.0), r), y)


def _integer_part(quotient: Vector, a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """Return the integer part of a / b for a small quotient, and the rest."""
    q = rounded("trunc", quotient)
    r = _difference(a, q, b)
    above = r < 0.0
    return (q - 1.0).where(above, q), (r + b).where(above, r)


def _difference(a: Vector, q: Vector, b: Vector) -> Vector:
    """Return a - q * b, which must be representable."""
    if current().has_fma:
        return fma(q, -b, a)
    # Near the largest number, splitting into halves would overflow.
    scale = a.constant(2.0**-a.format.mantissa)
    scale = scale.where(b > 2.0 ** (a.format.bias // 2), 1.0)
    return exact_fma(q, b * -scale, a * scale) / scale


def _large_remainder(a: Vector, b: Vector) -> Vector:
    """Return a - q * b for any integer q."""
    exponent = _exponent(b)
    step_bits = a.format.mantissa - 1  # bits of a step's quotient, minus one

    def step(r: Vector) -> tuple[list[Vector], Vector]:
        raised = (_exponent(r) - exponent - step_bits).intrinsic("smax", 0)
        # 2**raised can be out of range; b * 2**raised is below r and representable.
        half, dtype = raised >> 1, a.value.dtype
        divisor = b * power_of_two(half, dtype) * power_of_two(raised - half, dtype)
        _, remainder = _integer_part(r / divisor, r, divisor)
        return [remainder], b <= remainder

    return loop_over_lanes([a], step)[0]


def _exponent(x: Vector) -> Vector:
    """Return the biased exponent of x >= 0, below 1 if x is denormal."""
    layout = x.format
    scale = layout.mantissa + 1
    denormal = x < layout.tiny
    bits = (x * 2.0**scale).where(denormal, x).bits() >> layout.mantissa
    return (bits - scale).where(denormal, bits)


def _rounded_quotient(x: Vector, y: Vector, remainder: Vector, below: Vector) -> Vector:
    """Return NumPy's quotient from the rest, rounded to an integer or a half."""
    quotient = (x - copysign(remainder, x)) / y
    return rounded("floor", (quotient - 1.0).where(below, quotient))
