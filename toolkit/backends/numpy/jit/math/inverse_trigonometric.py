"""arctan, arctan2, arcsin and arccos, by odd polynomials near 0."""

from __future__ import annotations

from toolkit.backends.numpy.jit.math.trigonometric import half_pi
from toolkit.backends.numpy.jit.math.vector import (
    Vector,
    absolute,
    copysign,
    fma,
    polynomial,
)

# Above this number, arcsin(x) uses the arcsine of a smaller number. The border is so
# large that twice the error of that arcsine is below one unit in the last place.
_BORDER = 0.55

# Minimax for the relative errors of arctan on [0, 1] and arcsin on [0, 0.55], found by
# a Remez exchange in 250-bit arithmetic and rounded: 2**-27.2 and 2**-28.3 (float32),
# 2**-54.0 and 2**-55.2 (float64). The float32 coefficients of arctan are rounded so
# that arctan(1) is the number nearest to pi/4.
# (arctan(t) / t - 1) / z, in z = t**2
_ARCTANGENT = {
    "float32": (
        -0.333333,
        0.19998546,
        -0.14264241,
        0.109521866,
        -0.0840345,
        0.05795761,
        -0.031177856,
        0.010914607,
        -0.0017936223,
    ),
    "float64": (
        -0.3333333333333307,
        0.1999999999995146,
        -0.14285714282575115,
        0.11111111007026059,
        -0.0909090700298587,
        0.07692279839191452,
        -0.06666404056508005,
        0.05880527807171227,
        -0.052535185161846805,
        0.04722322083190694,
        -0.04219178586904275,
        0.03664190309249825,
        -0.02990384568208124,
        0.021984837212886726,
        -0.013900544619730894,
        0.007196492106944774,
        -0.002884912713860289,
        0.0008313198132227093,
        -0.0001521604242186497,
        1.322503138813415e-05,
    ),
}
# (arcsin(t) / t - 1) / z, in z = t**2
_ARCSINE = {
    "float32": (
        0.1666664,
        0.07501601,
        0.044315305,
        0.03341235,
        0.008678002,
        0.04517452,
    ),
    "float64": (
        0.16666666666668417,
        0.07499999999551547,
        0.04464285754425903,
        0.030381926381423292,
        0.022372637251738058,
        0.017344661520376153,
        0.014057101134549202,
        0.01082762647512301,
        0.013712397702887485,
        -0.006444618953035844,
        0.04437303361526172,
        -0.05047996680690161,
        0.04960379557681484,
    ),
}


def arctan(x: Vector) -> Vector:
    """Return arctan(x), as pi/2 - arctan(1 / x) for large numbers."""
    a = absolute(x)
    steep = a > 1.0
    angle = _of_slope((1.0 / a).where(steep, a))
    high, low = half_pi(x.value.dtype)
    return copysign((high - (angle - low)).where(steep, angle), x)


def arctan2(y: Vector, x: Vector) -> Vector:
    """Return the angle of the point (x, y), in (-pi, pi].

    The arctangent of the smaller over the larger coordinate is added to a multiple of
    pi/2, or subtracted. The multiple is the direction of the larger coordinate.
    """
    a, b = absolute(y), absolute(x)
    steep = a > b
    smaller, larger = b.where(steep, a), a.where(steep, b)
    # The slope of two zeros is 0, and the slope of two infinities is 1.
    of_equal = x.constant(1.0).where(smaller > 0.0, smaller)
    slope = of_equal.where(smaller.equals(larger), smaller / larger)
    angle = _of_slope(slope)
    is_negative = x.bits() < 0  # includes -0
    angle = (-angle).where(steep ^ is_negative, angle)
    quarters = x.constant(2.0).where(is_negative, 0.0)
    quarters = x.constant(1.0).where(steep, quarters)
    high, low = half_pi(x.value.dtype)
    return copysign(fma(quarters, high, fma(quarters, low, angle)), y)


def _of_slope(t: Vector) -> Vector:
    """Return arctan(t) for 0 <= t <= 1."""
    z = t * t
    return fma(t * z, polynomial(z, _ARCTANGENT[t.value.dtype]), t)


def arcsin(x: Vector) -> Vector:
    """Return arcsin(x), as pi/2 - 2 * arcsin(sqrt((1 - x) / 2)) near 1."""
    far, angle = _arcsine(absolute(x))
    high, low = half_pi(x.value.dtype)
    return copysign((high - (angle + angle - low)).where(far, angle), x)


def arccos(x: Vector) -> Vector:
    """Return arccos(x), as pi/2 - arcsin(x), or twice an arcsine near 1."""
    far, angle = _arcsine(absolute(x))
    high, low = half_pi(x.value.dtype)
    # Near -1 the result is pi - 2 * angle = 2 * (pi/2 - angle).
    complement = high - (angle.where(far, copysign(angle, x)) - low)
    complement = (complement + complement).where(far, complement)
    return (angle + angle).where(far & (x > 0.0), complement)


def _arcsine(a: Vector) -> tuple[Vector, Vector]:
    """Return whether a > border, and arcsin(a), or arcsin(sqrt((1 - a) / 2))."""
    far = a > _BORDER
    half = (1.0 - a) * 0.5
    t = half.intrinsic("sqrt").where(far, a)
    z = half.where(far, a * a)
    return far, fma(t * z, polynomial(z, _ARCSINE[a.value.dtype]), t)
