"""floor_divide and remainder of floats, to the bit as NumPy's.

|x| = q * |y| + r with a whole number q and 0 <= r < |y|. As long as q is small, the
rounded quotient has q or q + 1 as its whole part, and x - q * y is a number of the
dtype: a fused multiply-add has it without an error. What is larger is divided in
steps, each of which leaves less than y times a power of two. r is always exact; what
is rounded behind it is rounded as NumPy does.
"""

from __future__ import annotations

import math

from toolkit.backends.numpy.jit.math.rare import repeated, unless
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
    """The largest whole number up to x / y."""
    return _divided(x, y)[0]


def remainder(x: Vector, y: Vector) -> Vector:
    """x - floor(x / y) * y, with the sign of y."""
    return _divided(x, y)[1]


def _divided(x: Vector, y: Vector) -> tuple[Vector, Vector]:
    """The quotient and the remainder."""
    a, b = absolute(x), absolute(y)
    quotient = a / b
    q, r = _whole_part(quotient, a, b)
    r = a.where(a < b, r)  # which an infinite y would make NaN
    signs = x.bits() ^ y.bits()
    differ = signs < 0
    sign = signs.convert("bitcast", x.value.dtype)
    floor = copysign((q + 1.0).where(differ & (r > 0.0), q), sign)
    # NumPy's remainder is NaN, and so the quotient, but where the divisor is 0.
    floor = x.constant(math.nan).where(a.equals(math.inf) & (b > 0.0), floor)
    # Below, NumPy's quotient is the whole number, too, however it rounds.
    limit = 2.0 ** (x.format.mantissa - 1)
    large = (quotient > limit) & (b > 0.0) & (a < math.inf)

    def divided_in_steps() -> tuple[Vector, Vector]:
        rest = _rest_of_large(a.where(large, 0.0), b)
        below = differ & (rest > 0.0)
        return _rounded_quotient(x, y, rest, below), rest

    floor, r = unless(large, (floor, r), divided_in_steps)
    return floor, copysign((b - r).where(differ & (r > 0.0), r), y)


def _whole_part(quotient: Vector, a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """The whole part of a / b, from a small rounded quotient, and the rest."""
    q = rounded("trunc", quotient)
    r = _difference(a, q, b)
    above = r < 0.0
    return (q - 1.0).where(above, q), (r + b).where(above, r)


def _difference(a: Vector, q: Vector, b: Vector) -> Vector:
    """a - q * b, where that is a number of the dtype."""
    if current().has_fma:
        return fma(q, -b, a)
    # Numbers near the largest one have no halves.
    scale = a.constant(2.0**-a.format.mantissa)
    scale = scale.where(b > 2.0 ** (a.format.bias // 2), 1.0)
    return exact_fma(q, b * -scale, a * scale) / scale


def _rest_of_large(a: Vector, b: Vector) -> Vector:
    """a - q * b, however large q is."""
    exponent = _exponent(b)
    most = a.format.mantissa - 1  # bits of a step's quotient, but one

    def step(r: Vector) -> tuple[Vector, Vector]:
        raised = (_exponent(r) - exponent - most).intrinsic("smax", 0)
        # 2**raised may be no number of the dtype; b * 2**raised is one, below r.
        half, dtype = raised >> 1, a.value.dtype
        divisor = b * power_of_two(half, dtype) * power_of_two(raised - half, dtype)
        _, rest = _whole_part(r / divisor, r, divisor)
        return rest, b <= rest

    return repeated(a, step)


def _exponent(x: Vector) -> Vector:
    """The biased exponent of x >= 0, below 1 where x is denormal."""
    layout = x.format
    scale = layout.mantissa + 1
    denormal = x < layout.tiny
    bits = (x * 2.0**scale).where(denormal, x).bits() >> layout.mantissa
    return (bits - scale).where(denormal, bits)


def _rounded_quotient(x: Vector, y: Vector, rest: Vector, below: Vector) -> Vector:
    """What NumPy makes of the rest: a quotient that is rounded to whole or half."""
    quotient = (x - copysign(rest, x)) / y
    return rounded("floor", (quotient - 1.0).where(below, quotient))
