"""sinh, cosh, arcsinh, arccosh and arctanh; tanh is in exponential.py."""

from __future__ import annotations

import math

from toolkit.backends.numpy.jit.math.exponential import quarter_of_exp
from toolkit.backends.numpy.jit.math.logarithm import LOG_2, log, log1p
from toolkit.backends.numpy.jit.math.tables import (
    has_tables,
    in_registers,
    reciprocal,
    square_root,
)
from toolkit.backends.numpy.jit.math.vector import (
    Vector,
    absolute,
    copysign,
    fma,
    polynomial,
)

# sinh and cosh are infinite from this number up.
_OVERFLOW = {"float32": 90.0, "float64": 711.0}
# Minimax for the relative errors of sinh on [0, 1] and arctanh on [0, 0.5], found by a
# Remez exchange in 250-bit arithmetic and rounded: 2**-27.5 and 2**-27.7 (float32),
# 2**-56.6 and 2**-56.3 (float64).
# (sinh(a) / a - 1) / z, in z = a**2
_SINE = {
    "float32": (0.16666667, 0.00833335, 0.0001983616, 2.816951e-06),
    "float64": (
        0.16666666666666669,
        0.008333333333333148,
        0.00019841269841431873,
        2.7557319157071903e-06,
        2.505212313671912e-08,
        1.605725976900731e-10,
        7.758748793256272e-13,
    ),
}
# (arctanh(a) / a - 1) / z, in z = a**2
_INVERSE_TANGENT = {
    "float32": (
        0.33333302,
        0.20002519,
        0.14222762,
        0.1182373,
        0.051358227,
        0.1766912,
    ),
    "float64": (
        0.3333333333333399,
        0.19999999999795115,
        0.14285714308034733,
        0.11111109888612128,
        0.0909094848565451,
        0.07691494750388966,
        0.06677944405868654,
        0.05774395500041405,
        0.059824099286463255,
        0.014564529652234393,
        0.1449285400448366,
        -0.1528954917944898,
        0.22477680659457294,
    ),
}


def sinh(x: Vector) -> Vector:
    """Return sinh(x): an odd polynomial up to 1, otherwise (e**x - e**-x) / 2."""
    a = absolute(x).at_most(_OVERFLOW[x.value.dtype])
    z = a * a
    near = fma(a * z, polynomial(z, _SINE[x.value.dtype]), a)
    quarter = quarter_of_exp(a)
    far = _twice_plus_eighth_of_inverse(quarter, -1.0)
    return copysign(far.where(a > 1.0, near), x)


def cosh(x: Vector) -> Vector:
    """Return (e**x + e**-x) / 2."""
    quarter = quarter_of_exp(absolute(x).at_most(_OVERFLOW[x.value.dtype]))
    return _twice_plus_eighth_of_inverse(quarter, 1.0)


def _twice_plus_eighth_of_inverse(x: Vector, sign: float) -> Vector:
    """Return 2 * x + sign / (8 * x)."""
    if has_tables(x):
        return fma(in_registers(reciprocal, x), 0.125 * sign, x + x)
    return (x + x) + 0.125 * sign / x


def arcsinh(x: Vector) -> Vector:
    """Return log1p(a + (sqrt(1 + a**2) - 1)) for a = |x|, with the sign of x."""
    a = absolute(x)
    # The second, smaller term, without a difference of close numbers.
    square = fma(a, a, 1.0)
    if has_tables(x):
        term = in_registers(_reduced_root, a, square)
    else:
        term = a * (a / (square.intrinsic("sqrt") + 1.0))
    return copysign(_log1p_of_sum(a, term, a), x)


def arccosh(x: Vector) -> Vector:
    """Return log1p((x - 1) + sqrt(x**2 - 1)); NaN below 1."""
    v = x - 1.0
    square = fma(v, v, v + v)
    if has_tables(x):
        root = in_registers(square_root, square).where(square > 0.0, square)
    else:
        root = square.intrinsic("sqrt")
    return x.constant(math.nan).where(x < 1.0, _log1p_of_sum(root, v, x))


def _reduced_root(a: Vector, square: Vector) -> Vector:
    """Return sqrt(1 + a**2) - 1 for square = 1 + a**2, which is not overflown."""
    return a * a * reciprocal(square_root(square) + 1.0)


def _log1p_of_sum(larger: Vector, smaller: Vector, x: Vector) -> Vector:
    """Return log(1 + larger + smaller), which is log(2 * x) for large x."""
    large = x > 2.0 ** (x.format.mantissa + 1)  # x + 1 rounds to x
    total = larger + smaller
    correction = x.constant(0.0).where(large, (larger - total) + smaller)
    result = log1p(x.where(large, total), correction)
    return (result + LOG_2[x.value.dtype][0]).where(large, result)


def arctanh(x: Vector) -> Vector:
    """Return arctanh(x): an odd polynomial up to 1/2, otherwise a logarithm."""
    a = absolute(x)
    z = a * a
    near = fma(a * z, polynomial(z, _INVERSE_TANGENT[x.value.dtype]), a)
    far = log((a + 1.0) / (1.0 - a)) * 0.5
    return copysign(far.where(a > 0.5, near), x)
