"""The gamma function and related functions: logarithm, derivatives, zeta.

All of them compute in float64 and return the dtype of their arguments. They consist of
differentiable operations, so each has derivatives of any order.
"""

from __future__ import annotations

import math
from typing import Any

from toolkit.arguments import is_real
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, bind
from toolkit.ir import Primitive
from toolkit.ops.elementwise import (
    equal,
    floor,
    greater,
    greater_equal,
    isinf,
    isnan,
    less,
    minimum,
    where,
)
from toolkit.ops.numeric import absolute, logical_not
from toolkit.ops.quadrature import (
    bind_float,
    chebyshev,
    in_float64,
    polynomial,
)
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import cos, exp, log, sin
from toolkit.type_aliases import TensorLike

INF, NAN = math.inf, math.nan
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_STIRLING_BORDER = 8.0  # the series below is exact in float64 from this value

# Bernoulli numbers B[2], B[4], ..., B[24].
_BERNOULLI = [
    *(1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510),
    *(43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730),
]

# Chebyshev coefficients on [1, 2], computed with 50 digits.
# The remainder is below 1e-17.
# Of lgamma(x) / ((x - 1) * (x - 2)):
_LOG_GAMMA = [
    *(0.49141539302938714, -0.07611416167043585, 0.008432324965932778),
    *(-0.001079493726328608, 0.00014900748003692963, -2.1512399888556784e-05),
    *(3.1979329860862186e-06, -4.851693012139927e-07, 7.47148782116316e-08),
    *(-1.1638296700170518e-08, 1.829400437118668e-09, -2.8969180607129607e-10),
    *(4.61570140620909e-11, -7.392810230497983e-12, 1.1894280008333085e-12),
    *(-1.9212068676522805e-13, 3.113975526387164e-14, -5.0628432984486114e-15),
    *(8.254150281631144e-16, -1.3490578987574844e-16, 2.209876116782623e-17),
    -3.6274129549239766e-18,
]
# Coefficients of digamma(x) / (x - r), where r = _ROOT + _ROOT_REST is the positive
# root of digamma:
_DIGAMMA = [
    *(0.983570260441567, -0.2270640863346444, 0.03336889902393011),
    *(-0.005320077271596548, 0.0008788656937820505, -0.00014773492650606044),
    *(2.5060543468359146e-05, -4.2721034029993324e-06, 7.302769272465923e-07),
    *(-1.2502886813559594e-07, 2.1425009322359472e-08, -3.673295918565179e-09),
    *(6.299717236108931e-10, -1.080593028883266e-10, 1.853735192053638e-11),
    *(-3.18023536582553e-12, 5.456147570322795e-13, -9.360993131036438e-14),
    *(1.606064636295075e-14, -2.7555431377438815e-15, 4.727736178601912e-16),
    *(-8.11148420346509e-17, 1.391707769474154e-17, -2.3877902081188625e-18),
]
_ROOT, _ROOT_REST = 1.4616321449683622, 9.549995429965697e-17


def _stirling_series(x: Tensor) -> Tensor:
    """Return lgamma(x) - ((x - 1/2) * log(x) - x + log(2 pi) / 2) for x >= 8."""
    series = [b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(_BERNOULLI)]
    inverse = 1 / x
    return polynomial(series, inverse * inverse) * inverse


def _positive_lgamma(x: Tensor) -> Tensor:
    """Return lgamma(x) for x > 0."""
    is_large = greater_equal(x, _STIRLING_BORDER)
    large = where(is_large, x, _STIRLING_BORDER)
    y = where(is_large, 1.5, x)
    is_small = less(y, 1)
    factor = where(is_small, y, 1.0)
    for _ in range(int(_STIRLING_BORDER) - 2):
        is_above = greater_equal(y, 2)
        y = where(is_above, y - 1, y)
        factor = where(is_above, factor * y, factor)
    logarithm = log(where(is_large, large, factor))
    far = (large - 0.5) * (logarithm - 1) + (_HALF_LOG_2PI - 0.5)
    near = lgamma_from_1(where(is_small, y, y - 1))
    near = near + where(is_small, -logarithm, logarithm)
    return where(is_large, far + _stirling_series(large), near)


def stirling_rest(x: Tensor) -> Tensor:
    """Return lgamma(x) - ((x - 1/2) * log(x) - x + log(2 pi) / 2) for x > 0."""
    is_large = greater_equal(x, _STIRLING_BORDER)
    small = where(is_large, 1.0, x)
    near = _positive_lgamma(small) - (small - 0.5) * log(small) + small - _HALF_LOG_2PI
    return where(is_large, _stirling_series(where(is_large, x, _STIRLING_BORDER)), near)


def lgamma_from_1(x: Tensor) -> Tensor:
    """Return lgamma(1 + x) for x in [0, 1], exact also for tiny x."""
    return x * (x - 1) * chebyshev(_LOG_GAMMA, 2 * x - 1)


def _lgamma(x: Tensor) -> Tensor:
    is_left = less(x, 0)
    right = where(is_left, 1 - x, x)
    y = _positive_lgamma(where(isinf(right), 1.0, right))
    fraction = where(is_left, x - floor(x + 0.5), 0.5)
    reflected = math.log(math.pi) - log(absolute(sin(math.pi * fraction))) - y
    return where(isinf(x), INF, where(is_left, reflected, y))


def _positive_digamma(x: Tensor) -> Tensor:
    """Return digamma(x) for x > 0."""
    is_large = greater_equal(x, _STIRLING_BORDER)
    large = where(is_large, x, _STIRLING_BORDER)
    inverse = 1 / large
    square = inverse * inverse
    series = [b / (2 * k + 2) for k, b in enumerate(_BERNOULLI)]
    far = log(large) - 0.5 * inverse - polynomial(series, square) * square
    y = where(is_large, 1.5, x)
    is_small = less(y, 1)
    shift = where(is_small, -1 / where(is_small, y, 1.0), 0.0)
    y = where(is_small, y + 1, y)
    for _ in range(int(_STIRLING_BORDER) - 2):
        is_above = greater_equal(y, 2)
        y = where(is_above, y - 1, y)
        shift = where(is_above, shift + 1 / y, shift)
    near = ((y - _ROOT) - _ROOT_REST) * chebyshev(_DIGAMMA, 2 * y - 3)
    return where(is_large, far, near + shift)


def _is_pole(x: Tensor) -> Tensor:
    """Return whether x is 0 or a negative integer."""
    return equal(x, floor(x)) & logical_not(greater(x, 0))


def _digamma(x: Tensor) -> Tensor:
    is_left = less(x, 0)
    y = _positive_digamma(where(is_left, 1 - x, x))
    fraction = where(is_left, x - floor(x + 0.5), 0.5)
    angle = math.pi * fraction
    y = where(is_left, y - math.pi * cos(angle) / sin(angle), y)
    return where(_is_pole(x), NAN, y)


def _positive_trigamma(x: Tensor) -> Tensor:
    """Return the derivative of digamma for x > 0."""
    is_large = greater_equal(x, _STIRLING_BORDER)
    large = where(is_large, x, x + _STIRLING_BORDER)
    inverse = 1 / large
    square = inverse * inverse
    series = polynomial(_BERNOULLI, square) * square * inverse
    # The sum of 1 / (x + k) ** 2 for 8 numbers k, with one division for each pair.
    small = where(is_large, 1.0, x)
    shift = convert(0.0, x.dtype)
    for k in range(0, int(_STIRLING_BORDER), 2):
        y, z = small + k, small + (k + 1)
        product = y * z
        shift = shift + (y * y + z * z) / (product * product)
    far = inverse + 0.5 * square + series
    return where(is_large, far, far + shift)


def _trigamma(x: Tensor) -> Tensor:
    is_left = less(x, 0)
    y = _positive_trigamma(where(is_left, 1 - x, x))
    fraction = where(is_left, x - floor(x + 0.5), 0.5)
    slope = math.pi / sin(math.pi * fraction)
    y = where(is_left, slope * slope - y, y)
    return where(isinf(x), where(is_left, NAN, 0.0), where(_is_pole(x), INF, y))


trigamma_p: Primitive = in_float64(
    "trigamma", _trigamma, derivative=lambda x: polygamma(2, x)
)
digamma_p: Primitive = in_float64(
    "digamma", _digamma, derivative=lambda x: bind(trigamma_p, x)
)


def _lgamma_slope(x: Tensor) -> Tensor:
    """Return the derivative of lgamma, which is infinite at 0."""
    return where(equal(x, 0), -1 / x, bind(digamma_p, x))


lgamma_p: Primitive = in_float64("lgamma", _lgamma, derivative=_lgamma_slope)


@operation
def lgamma(x: TensorLike) -> Tensor:
    """Compute the logarithm of abs(gamma(x)), elementwise.

    Args:
        x: real numbers of any shape. The result is infinite at 0 and at negative
            integers.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/5.2

    Example:
        >>> from toolkit import ops
        >>> round(float(ops.exp(ops.lgamma(5.0))), 3)  # gamma(5) = 4!
        24.0
    """
    return bind_float(lgamma_p, x)


@operation
def digamma(x: TensorLike) -> Tensor:
    """Compute the derivative of `lgamma`, elementwise.

    Args:
        x: real numbers of any shape. The result is NaN at 0 and at negative integers.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/5.2

    Example:
        >>> from toolkit import ops
        >>> round(float(ops.digamma(1.0)), 4)  # minus Euler's constant
        -0.5772
    """
    return bind_float(digamma_p, x)


# The number of terms that `zeta` adds directly; the Euler-Maclaurin formula gives the
# rest.
_DIRECT_TERMS = 10
# above, the later terms of zeta are 0 relative to the first ones
_LARGEST_ORDER = 400.0


def _positive_zeta(x: Tensor, q: Tensor) -> Tensor:
    """Return the sum of (q + k) ** -x over k >= 0 for x > 1 and q > 0."""
    y = sum((q + k) ** -x for k in range(1, _DIRECT_TERMS))
    end = q + _DIRECT_TERMS
    order = minimum(x, _LARGEST_ORDER)
    correction, factor = end / (order - 1) + 0.5, order / end
    for k, b in enumerate(_BERNOULLI):
        correction = correction + b / math.factorial(2 * k + 2) * factor
        factor = factor * ((order + 2 * k + 1) / end) * ((order + 2 * k + 2) / end)
    return q**-x + (y + end**-x * correction)


def _zeta(x: Tensor, q: Tensor) -> Tensor:
    is_valid = greater(x, 1)
    order = where(is_valid, x, 2.0)
    is_left, is_whole = less(q, 0), equal(x, floor(x))
    is_pole = equal(q, floor(q)) & logical_not(greater(q, 0))
    # The terms with a negative base are, up to their sign, a finite sum from 1 - f.
    base = where(is_pole, -0.5, q)
    fraction = where(is_left, base - floor(base), 0.5)
    inner = where(is_pole | isinf(q), 0.5, q)
    y = _positive_zeta(order, where(is_left, fraction, inner))
    y = where(isinf(q), 0.0, y)
    finite = _positive_zeta(order, 1 - fraction)
    finite = finite - _positive_zeta(order, where(is_left, 1 - base, 1.5))
    is_even = equal(order, 2 * floor(order / 2))
    y = where(is_left, where(is_even, y + finite, y - finite), y)
    y = where(is_left & logical_not(is_whole), NAN, y)
    y = where(is_pole, where(is_even | equal(q, 0), INF, NAN), y)
    y = where(is_valid, y, where(equal(x, 1), INF, NAN))
    return where(isnan(q), NAN, y)


zeta_p: Primitive = in_float64("zeta", _zeta)


@operation
def zeta(x: TensorLike, q: Any) -> Tensor:
    """Compute the Hurwitz zeta function: the sum of (q + k) ** -x over k >= 0.

    Args:
        x: the exponents, > 1. The result is infinite at 1 and NaN below.
        q: the start of the sum; the shape broadcasts with the shape of `x`. Negative
            numbers need integer exponents. At 0 and at negative integers the result is
            infinite for even exponents.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of `x` and `q`.

    Reference:
        DLMF, https://dlmf.nist.gov/25.11

    Example:
        >>> from toolkit import ops
        >>> round(float(ops.zeta(2.0, 1.0)), 4)  # pi ** 2 / 6
        1.6449
    """
    return bind_float(zeta_p, x, q)


def _polygamma(n: Tensor, x: Tensor) -> Tensor:
    is_valid = equal(n, floor(n)) & greater_equal(n, 0)
    is_higher = is_valid & greater(n, 0)
    order = where(is_higher, n, 1.0)
    sign = where(equal(order, 2 * floor(order / 2)), -1.0, 1.0)
    y = sign * exp(_lgamma(order + 1)) * _zeta(order + 1, x)
    y = where(is_higher, y, _digamma(where(is_higher, 1.0, x)))
    return where(is_valid, y, NAN)


polygamma_p: Primitive = in_float64(
    "polygamma", _polygamma, derivative=lambda n, x: polygamma(n + 1, x)
)


@operation
def polygamma(n: Any, x: TensorLike) -> Tensor:
    """Compute the derivative of order n of `digamma`, elementwise.

    Args:
        n: the orders: integers >= 0, with a float or an integer dtype. All other
            numbers give NaN.
        x: real numbers; the shape broadcasts with the shape of `n`.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of `n` and `x`.

    Reference:
        DLMF, https://dlmf.nist.gov/5.15

    Example:
        >>> from toolkit import ops
        >>> round(float(ops.polygamma(1, 1.0)), 4)  # pi ** 2 / 6
        1.6449
    """
    if is_real(n) and n in (0, 1):
        return bind_float(trigamma_p if n == 1 else digamma_p, x)
    return bind_float(polygamma_p, n, x)
