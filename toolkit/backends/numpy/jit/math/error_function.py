"""The error function."""

from __future__ import annotations

from toolkit.backends.numpy.jit.math.exponential import exp_of_moderate
from toolkit.backends.numpy.jit.math.vector import (
    Vector,
    absolute,
    copysign,
    fma,
    polynomial,
)
from toolkit.definitions.records import record


@record
class _Constants:
    """The numbers of one dtype."""

    border: float  # between the two polynomials
    saturated: float  # erf is 1 from here up
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
    """An odd polynomial near 0, 1 - e**polynomial further out."""
    numbers = _CONSTANTS[x.value.dtype]
    a = absolute(x).at_most(numbers.saturated)
    near = fma(a, polynomial(a * a, numbers.near), a)
    far = 1.0 - exp_of_moderate(polynomial(a - 1.0, numbers.far))
    return copysign(far.where(a > numbers.border, near), x)
