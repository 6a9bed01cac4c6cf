"""exp, exp2, expm1, and functions of them: sigmoid and tanh.

exp(x) = 2**n * exp(r) with n the integer nearest to x / log(2) and r = x - n * log(2),
|r| <= log(2) / 2. r is computed in two steps (Cody and Waite). With a fused
multiply-add the first step, x - n * high, is exact. Without it, `high` is short enough
that the product is exact, too.
"""

from __future__ import annotations

import math

from toolkit.backends.numpy.jit.math.logarithm import LOG_2, log_2_of
from toolkit.backends.numpy.jit.math.tables import (
    exp2_parts,
    exp_parts,
    has_tables,
    in_registers,
    precise_exp,
    reaches,
    reciprocal,
    scaled,
)
from toolkit.backends.numpy.jit.math.vector import (
    Vector,
    absolute,
    copysign,
    fma,
    polynomial,
    power_of_two,
)
from toolkit.definitions.records import record

INVERSE_LOG_2 = 1.4426950408889634  # 1 / log(2)
# The logarithm of the largest power of two whose reciprocal is a normal number.
_LARGEST_NORMAL_EXP = {"float32": 87.33654, "float64": 708.3964185322641}
TANH_BORDER = 0.55  # between tanh's polynomial and its quotient


@record
class _Constants:
    """The constants of one dtype."""

    coefficients: tuple[float, ...]  # of (exp(r) - 1 - r) / r**2
    underflow: float  # exp is 0 from this number down
    overflow: float  # exp is infinite from this number up
    lowest_exponent: float  # exp2 is 0 below this number
    moderate: float  # exp(x) and exp(-x) are normal numbers up to this number
    minus_one: float  # expm1 is -1 from this number down
    saturated: float  # tanh is 1 from this number up
    tanh: tuple[float, ...]  # (tanh(a) / a - 1) / a**2 in a**2, for a <= TANH_BORDER


# The coefficients are minimax for the relative errors of expm1 (|r| <= 0.35) and tanh,
# found by a Remez exchange in 250-bit arithmetic and rounded: 2**-28.7 and 2**-29.7
# (float32), 2**-59.4 and 2**-55.5 (float64).
_CONSTANTS = {
    "float32": _Constants(
        coefficients=(
            0.5,
            0.16666666,
            0.041666348,
            0.0083333915,
            0.0013941652,
            0.00019845957,
        ),
        underflow=-104.0,
        overflow=89.0,
        lowest_exponent=-150.0,
        moderate=87.0,
        minus_one=-18.0,
        saturated=10.0,
        tanh=(-0.33333316, 0.13332544, -0.053847548, 0.021050714, -0.006242849),
    ),
    "float64": _Constants(
        coefficients=(
            0.5,
            0.16666666666666677,
            0.04166666666666649,
            0.008333333333320737,
            0.0013888888888968294,
            0.0001984126988868614,
            2.480158716485597e-05,
            2.755724136649029e-06,
            2.7557405861781056e-07,
            2.5110110724672295e-08,
            2.0875339505896554e-09,
        ),
        underflow=-746.0,
        overflow=710.0,
        lowest_exponent=-1075.0,
        moderate=708.0,
        minus_one=-38.0,
        saturated=20.0,
        tanh=(
            -0.33333333333332316,
            0.1333333333316893,
            -0.05396825387616273,
            0.021869485976420133,
            -0.00886319452243973,
            0.003591719826051102,
            -0.0014532173203318291,
            0.000579138521825476,
            -0.0002103046428734665,
            5.1022906380696124e-05,
        ),
    ),
}


def exp(x: Vector, low: Vector | None = None) -> Vector:
    """Return e**x, or e**(x + low) for a low that is small compared with 1.

    Denormal results are rounded once.
    """
    limits = _CONSTANTS[x.value.dtype]
    # An underflow takes a hundred times as long as the selection of 0, and masked
    # values of attention are far below the limit.
    if has_tables(x):
        return in_registers(_exp_by_table, x, *([] if low is None else [low]))
    vanishes = x < limits.underflow
    x = x.constant(0.0).where(vanishes, x).at_most(limits.overflow)
    return x.constant(0.0).where(vanishes, _exp_in_range(x, low))


def exp2(x: Vector) -> Vector:
    """Return 2**x; denormal results are rounded once."""
    limits = _CONSTANTS[x.value.dtype]
    if has_tables(x):
        return in_registers(_exp2_by_table, x)
    vanishes = x < limits.lowest_exponent
    x = x.constant(0.0).where(vanishes, x).at_most(x.format.bias + 1.0)
    shifted = x + x.format.shift
    n = shifted - x.format.shift
    # 2**f = exp(r) for r = f * log(2), with an exact f = x - n.
    f = x - n
    log_2, log_2_low = LOG_2[x.value.dtype]
    scales = [math.log(2) ** (k + 2) for k in range(len(limits.coefficients))]
    tail = [c * s for c, s in zip(limits.coefficients, scales, strict=True)]
    y = fma(f, log_2, fma(f * f, polynomial(f, tail), f * log_2_low))
    return x.constant(0.0).where(vanishes, _scaled(n, shifted, y))


def _exp_by_table(x: Vector, low: Vector | None = None) -> Vector:
    """Return e**(x + low) for a register."""
    limits = _CONSTANTS[x.value.dtype]
    remains = reaches(x, limits.underflow)
    return scaled(*exp_parts(x.at_most(limits.overflow), low), remains)


def _exp2_by_table(x: Vector) -> Vector:
    """Return 2**x for a register."""
    remains = reaches(x, _CONSTANTS[x.value.dtype].lowest_exponent)
    return scaled(*exp2_parts(x.at_most(x.format.bias + 1.0)), remains)


def _exp_in_range(x: Vector, low: Vector | None) -> Vector:
    """Return e**(x + low) for nonzero results."""
    return _scaled(*_reduce_argument(x, low))


def _scaled(n: Vector, shifted: Vector, y: Vector) -> Vector:
    """Return 2**n * (1 + y), for n with the lowest bits of `shifted`."""
    # 2**n can be out of range even if the result is a normal number. Two factors with
    # half the exponent are in range, and only the last product rounds.
    dtype = n.value.dtype
    half = fma(n, 0.5, n.format.shift).bits()
    first = power_of_two(half, dtype)
    second = power_of_two(shifted.bits() - half, dtype)
    return (y + 1.0) * first * second


def exp_of_moderate(x: Vector) -> Vector:
    """Return e**x if 2**n is a normal number: |x| <= `moderate`."""
    if has_tables(x):
        return in_registers(lambda x: scaled(*exp_parts(x)), x)
    n, shifted, y = _reduce_argument(x)
    return (y + 1.0) * power_of_two(shifted.bits(), x.value.dtype)


def quarter_of_exp(x: Vector) -> Vector:
    """Return e**x / 4 for x >= 0, finite if e**x / 2 is finite."""
    if has_tables(x):
        return in_registers(lambda x: precise_exp(x, -2.0), x)
    _, shifted, y = _reduce_argument(x)
    return (y + 1.0) * power_of_two(shifted.bits() - 2, x.value.dtype)


def expm1(x: Vector) -> Vector:
    """Return e**x - 1, precise near 0."""
    limits = _CONSTANTS[x.value.dtype]
    n, shifted, y = _reduce_argument(
        x.at_least(limits.minus_one).at_most(limits.overflow)
    )
    # 2**n (y + 1) - 1, with 2**(n - 1) because 2**n can overflow before the result.
    half = power_of_two(shifted.bits() - 1, x.value.dtype)
    far = fma(y, half, half - 0.5)
    # y loses the sign of 0.
    return copysign(y.where(n.equals(0.0), far + far), x)


def sigmoid(x: Vector) -> Vector:
    """Return 1 / (1 + e**-x); denormal results are 0, because 2**n is infinite."""
    numbers = _CONSTANTS[x.value.dtype]
    if has_tables(x):
        return in_registers(_sigmoid_by_table, x)
    # Above this limit, 1 + e**-x rounds to 1.
    _, shifted, y = _reduce_argument(
        -x.at_most(numbers.moderate).at_least(-numbers.overflow)
    )
    return 1.0 / ((y + 1.0) * power_of_two(shifted.bits(), x.value.dtype) + 1.0)


def _sigmoid_by_table(x: Vector) -> Vector:
    """Return 1 / (1 + e**-x) for a register."""
    limit = _LARGEST_NORMAL_EXP[x.value.dtype]
    quotient = reciprocal(precise_exp(-x.at_most(limit).at_least(-limit)) + 1.0)
    return x.constant(0.0).where(x < -limit, quotient)


def tanh(x: Vector) -> Vector:
    """Return tanh(x): an odd polynomial near 0, otherwise 1 - 2 / (e**2x + 1)."""
    numbers = _CONSTANTS[x.value.dtype]
    a = absolute(x).at_most(numbers.saturated)
    z = a * a
    near = fma(a * z, polynomial(z, numbers.tanh), a)
    divisor = exp_of_moderate(a + a) + 1.0
    if has_tables(x):
        far = fma(in_registers(reciprocal, divisor), -2.0, 1.0)
    else:
        far = 1.0 - 2.0 / divisor
    return copysign(far.where(a > TANH_BORDER, near), x)


def _reduce_argument(
    x: Vector, low: Vector | None = None
) -> tuple[Vector, Vector, Vector]:
    """Return n, n in the lowest bits, and e**r - 1; x + low = n * log(2) + r."""
    log_2, log_2_low = log_2_of(x.value.dtype)
    shifted = fma(x, INVERSE_LOG_2, x.format.shift)
    n = shifted - x.format.shift
    high = fma(n, -log_2, x)
    low = n * -log_2_low if low is None else fma(n, -log_2_low, low)
    # `low` is added to the smaller term, so that it rounds less.
    r = high + low
    coefficients = _CONSTANTS[x.value.dtype].coefficients
    return n, shifted, high + fma(r * r, polynomial(r, coefficients), low)
