"""The error function and its inverse."""

from __future__ import annotations

import math

from toolkit.backends.array import special
from toolkit.backends.numpy.jit.math.exponential import exp_of_moderate
from toolkit.backends.numpy.jit.math.logarithm import log
from toolkit.backends.numpy.jit.math.rare_lanes import select_rare
from toolkit.backends.numpy.jit.math.vector import (
    Vector,
    absolute,
    copysign,
    exact_fma,
    fma,
    polynomial,
)
from toolkit.definitions.records import record


@record
class _Constants:
    """The constants of one dtype."""

    border: float  # between the two polynomials
    saturated: float  # erf is 1 from this number up
    near: tuple[float, ...]  # erf(a) / a - 1, in a**2
    far: tuple[float, ...]  # log(1 - erf(a)), in a - 1


# Minimax for the relative error of erf, found by a Remez exchange in 250-bit arithmetic
# and rounded: 2**-30.1 and 2**-26.4 (float32), 2**-56.0 and 2**-54.3 (float64).
_CONSTANTS = {
    "float32": _Constants(
        border=0.925,
        saturated=4.0,
        near=(
            0.12837917,
            -0.3761263,
            0.11283626,
            -0.02685573,
            0.0051923925,
            -0.0008049515,
            7.9950485e-05,
        ),
        far=(
            -1.8496056,
            -2.6389668,
            -0.84309345,
            -0.041672684,
            0.010275702,
            -0.002162464,
            0.0002841336,
        ),
    ),
    "float64": _Constants(
        border=1.0,
        saturated=6.0,
        near=(
            0.12837916709551256,
            -0.37612638903183343,
            0.11283791670936949,
            -0.02686617064195836,
            0.005223977596723349,
            -0.000854832548406003,
            0.00012055280457607435,
            -1.4924464673578319e-05,
            1.6444135918651353e-06,
            -1.6183858034116595e-07,
            1.3616033975101458e-08,
            -7.606407419553015e-10,
        ),
        far=(
            -1.849605509933248,
            -2.6389675142347797,
            -0.8431072563601948,
            -0.04156109799776313,
            0.010033824810840329,
            -0.0019778985424708318,
            0.0002373044985290309,
            2.6331584611458675e-05,
            -2.727100750575821e-05,
            9.776045399780468e-06,
            -2.2418664225301398e-06,
            2.88816515226389e-07,
            1.1419831917591189e-08,
            -1.4883708309739947e-08,
            3.4006747907925445e-09,
            -3.854992912486367e-10,
            1.85586133822004e-11,
        ),
    ),
}


def erf(x: Vector) -> Vector:
    """Return erf(x): an odd polynomial near 0, otherwise 1 - e**polynomial."""
    numbers = _CONSTANTS[x.value.dtype]
    a = absolute(x).at_most(numbers.saturated)
    near = fma(a, polynomial(a * a, numbers.near), a)
    far = 1.0 - exp_of_moderate(polynomial(a - 1.0, numbers.far))
    return copysign(far.where(a > numbers.border, near), x)


@record
class _RationalFunction:
    """A rational function: the quotient of two polynomials."""

    top: tuple[float, ...]
    bottom: tuple[float, ...]


# For z = x**2 and r = sqrt(-log((1 - |x|) / 2)): (erfinv(x) / x - sqrt(pi) / 2) / z in
# 0.7225 - z, and r - erfinv(|x|) in r - 1.6. The float32 constants are fitted by
# weighted least squares in 160 bits, with weights that level the relative error of
# erfinv, and rounded: 2**-27.2 and 2**-28.6, up to the last number before 1.
_CENTRE = {
    "float32": _RationalFunction(
        top=(0.4308725, 1.5409915, 1.0922142, 0.03582755),
        bottom=(1.0, 5.0825176, 6.971119, 2.281107),
    ),
    "float64": _RationalFunction(special.CENTRE_TOP, special.CENTRE_BOTTOM),
}
_TAIL = {
    "float32": _RationalFunction(
        top=(0.59347796, 0.38453236, 0.048862986, 0.00029026874),
        bottom=(1.0, 0.9976662, 0.28462684, 0.02026927),
    ),
    "float64": _RationalFunction(special.TAIL_TOP, special.TAIL_BOTTOM),
}
_FAR = _RationalFunction(
    special.FAR_TOP, special.FAR_BOTTOM
)  # the same in r - 5, for r > 5


def erfinv(x: Vector) -> Vector:
    """Return erfinv(x): odd up to 0.85, otherwise a function of log(1 - |x|)."""
    dtype = x.value.dtype
    a = absolute(x)
    z = a * a
    tail = a > 0.85
    square = -log((1.0 - a) * 0.5)
    r = square.intrinsic("sqrt")
    # r can have a larger unit in the last place than the result.
    correction = exact_fma(-r, r, square) / (r + r)
    u, v = special.CENTRE - z, r - 1.6
    near, far = _CENTRE[dtype], _TAIL[dtype]
    top = polynomial(v, far.top).where(tail, polynomial(u, near.top))
    bottom = polynomial(v, far.bottom).where(tail, polynomial(u, near.bottom))
    quotient = top / bottom
    centre = fma(a, fma(z, quotient, special.HALF_SQRT_PI - 1.0), a)
    y = (r - (quotient - correction)).where(tail, centre)
    if dtype == "float64":  # in float32, only 1 is so close to 1

        def far_values() -> list[Vector]:
            w = r - 5.0
            quotient = polynomial(w, _FAR.top) / polynomial(w, _FAR.bottom)
            return [r - (quotient - correction)]

        (y,) = select_rare(r > 5.0, [y], far_values)
    return copysign(x.constant(math.inf).where(a.equals(1.0), y), x)
