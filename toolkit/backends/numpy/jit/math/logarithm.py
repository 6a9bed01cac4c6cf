"""log and log1p.

x = 2**e * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); then
log(x) = e * log(2) + f + tail(f), where tail(f) = log(1 + f) - f is small.
"""

from __future__ import annotations

import math

from toolkit.backends.numpy.jit.math.log_tables import (
    binary_log,
    has_log_tables,
    natural_log,
)
from toolkit.backends.numpy.jit.math.tables import (
    in_registers,
    reciprocal,
)
from toolkit.backends.numpy.jit.math.vector import Vector, fma, polynomial
from toolkit.backends.numpy.jit.processor import current

# log(2) as the nearest number and its rounding error.
LOG_2 = {
    "float32": (0.6931471824645996, -1.9046542121259336e-09),
    "float64": (0.6931471805599453, 2.3190468138462996e-17),
}
# log(2) with a short first part, whose product with an exponent is exact.
_SHORT_LOG_2 = {
    "float32": (0.693145751953125, 1.4286068203094173e-06),
    "float64": (0.6931471803691238, 1.9082149292705877e-10),
}
# 1 / log(2) as the nearest number and its rounding error.
_INVERSE_LOG_2 = {
    "float32": (1.4426950216293335, 1.925963033500011e-08),
    "float64": (1.4426950408889634, 2.0355273740931033e-17),
}
SQUARE_ROOT_HALF_BITS = {"float32": 0x3F3504F3, "float64": 0x3FE6A09E667F3BCD}

# Minimax for the relative error of log(1 + f), found by a Remez exchange in 250-bit
# arithmetic and rounded: 2**-27.2 and 2**-59.5.
# float32: (log(1 + f) - f + f**2 / 2) / f**3
_TAIL_32 = (
    0.3333333,
    -0.25000837,
    0.20001294,
    -0.1662277,
    0.1419968,
    -0.1316413,
    0.1277919,
    -0.07646328,
)
# float64: (2 * atanh(s) / s - 2) / z as a polynomial in z = s**2, s = f / (2 + f)
_TAIL_64 = (
    0.6666666666666735,
    0.3999999999940822,
    0.2857142874412032,
    0.22222198369206478,
    0.18183576149225045,
    0.15313719288510047,
    0.1479953314054281,
)


def log_2_of(dtype: str) -> tuple[float, float]:
    """Return log(2) in two parts; adding n times the first part is exact."""
    return (LOG_2 if current().has_fma else _SHORT_LOG_2)[dtype]


def log(x: Vector) -> Vector:
    """Return the natural logarithm: -inf of 0, NaN of negative numbers."""
    if has_log_tables(x):
        return in_registers(natural_log, x)
    e, m = split(x)
    return _set_special_cases(x, _combine(e, m - 1.0), zero=0.0)


def log1p(x: Vector, low: Vector | None = None) -> Vector:
    """Return log(1 + x), precise near 0: -inf of -1, NaN below.

    With `low`, return log(1 + x + low) for a low that is small compared with x.
    """
    if has_log_tables(x):
        return in_registers(_log1p_by_table, x, *([] if low is None else [low]))
    u = x + 1.0
    e, m = split(u)
    # The rounding error of the sum (Knuth's two-sum), relative to u.
    back = u - 1.0
    rounding_error = (x - back) + (1.0 - (u - back))
    near = e.equals(0.0)
    f = x.where(near, m - 1.0)
    rounding_error = x.constant(0.0).where(near, rounding_error)
    correction = (rounding_error if low is None else rounding_error + low) / u
    # Select x itself for 0, because it can be -0.
    result = x.where(x.equals(0.0), _combine(e, f, correction))
    return _set_special_cases(x, result, zero=-1.0)


def _log1p_by_table(x: Vector, low: Vector | None = None) -> Vector:
    """Return log(1 + x + low) for a register."""
    u = x + 1.0
    back = u - 1.0
    rounding_error = (x - back) + (1.0 - (u - back))
    if low is not None:
        rounding_error = rounding_error + low
    correction = rounding_error * reciprocal(u)
    correction = correction.where((u > 0.0) & (u < math.inf), 0.0)
    # Select x itself for 0, because it can be -0.
    return x.where(x.equals(0.0), natural_log(u) + correction)


def log2(x: Vector) -> Vector:
    """Return the logarithm to base 2: e + log(m) / log(2), exact for powers of two."""
    if has_log_tables(x):
        return in_registers(binary_log, x)
    e, m = split(x)
    f = m - 1.0
    near = f + _tail(f)
    inverse, inverse_low = _INVERSE_LOG_2[x.value.dtype]
    result = fma(near, inverse, fma(near, inverse_low, e))
    return _set_special_cases(x, result, zero=0.0)


def split(x: Vector) -> tuple[Vector, Vector]:
    """Return (e, m), x = 2**e * m, sqrt(1/2) <= m < sqrt(2), for finite x > 0."""
    layout, root = x.format, SQUARE_ROOT_HALF_BITS[x.value.dtype]
    denormal = x < layout.tiny
    scale = layout.mantissa + 1
    normal = (x * 2.0**scale).where(denormal, x)
    one = layout.bias << layout.mantissa
    bits = normal.bits() + (one - root)
    m = (bits & ((1 << layout.mantissa) - 1)) + root
    # 2**mantissa with the biased exponent in its lowest bits is a float.
    large = 2.0**layout.mantissa
    e = (bits >> layout.mantissa) | x.constant(large).bits()
    offset = x.constant(large + layout.bias + scale)
    offset = offset.where(denormal, large + layout.bias)
    dtype = x.value.dtype
    return e.convert("bitcast", dtype) - offset, m.convert("bitcast", dtype)


def _combine(e: Vector, f: Vector, correction: Vector | None = None) -> Vector:
    """Return e * log(2) + log(1 + f) + correction."""
    high, low = log_2_of(f.value.dtype)
    small = fma(e, low, _tail(f))
    if correction is not None:
        small = small + correction
    return fma(e, high, f + small)


def _tail(f: Vector) -> Vector:
    """Return log(1 + f) - f for 1 + f between sqrt(1/2) and sqrt(2)."""
    square = f * f
    if f.value.dtype == "float32":
        return fma(square, -0.5, square * f * polynomial(f, _TAIL_32))
    # log(1 + f) = 2 * atanh(s) = f - s * f + s * z * (...), and s * f is
    # f**2 / 2 - s * f**2 / 2, which uses s only in a smaller term.
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    return fma(s, fma(z, polynomial(z, _TAIL_64), half), -half)


def _set_special_cases(x: Vector, result: Vector, zero: float) -> Vector:
    """Set the results at inf and NaN, at `zero` (-inf), and below it (NaN)."""
    result = result.where(x < math.inf, x)
    invalid = x.constant(-math.inf).where(x.equals(zero), math.nan)
    return invalid.where(x <= zero, result)
