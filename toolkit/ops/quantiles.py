"""Inverses of the complementary error function and of the normal distribution."""

from __future__ import annotations

import math
from typing import Any

from toolkit.core.tensor import Tensor
from toolkit.ir import Primitive
from toolkit.ops.elementwise import equal, greater, less, where
from toolkit.ops.numeric import absolute, logical_not
from toolkit.ops.quadrature import bind_float, in_float64, polynomial
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import exp, log, sqrt
from toolkit.type_aliases import TensorLike

# Coefficients of polynomials in numbers of [-1, 1]. They come from the Chebyshev
# interpolants with 48 nodes, computed with 30 digits. Their error is below 1e-17.
# x / t where erfc(x) = exp(-t ** 2), as a function of (t - 3) / (t + 3). The range of t
# starts at erfc(x) = 0.5 and ends after the least float64.
_LEAST, _LARGEST = math.sqrt(math.log(2)), math.sqrt(746)
_LOW, _HIGH = ((t - 3) / (t + 3) for t in (_LEAST, _LARGEST))
_TAIL = [
    *(0.9329718736583054, 0.13954262244189664, -0.11872106069994183),
    *(0.06528496473027715, -0.02985551202206041, 0.010196119323935772),
    *(-0.0016056123254393456, -0.0013170895391843808, 0.0016639849803293325),
    *(-0.0012150439735727008, 0.0006705969536962608, -0.00028727663394654044),
    *(7.188632386264239e-05, 1.8529585845692242e-05, -4.2597461260141836e-05),
    *(3.670192093954614e-05, -2.3773757056496652e-05, 1.1184434100185494e-05),
    *(-3.056952080785595e-06, 9.978382521876744e-07, -8.930466927682566e-07),
    *(-2.839690198876477e-06, 3.970926649136012e-06, 1.6965525919246494e-06),
    *(-3.1398653679949482e-06, -2.3587318706652925e-06, 2.57134229840308e-06),
    *(1.7576343521874262e-06, -1.3826526703624797e-06, -8.437712737654855e-07),
    *(3.997072197205336e-07, 2.7566362649341055e-07, -5.282701056356334e-08),
    -4.4415343114386106e-08,
]
# erfinv(x) / x for abs(x) <= 0.5, as a function of x ** 2.
_CENTER = [
    *(0.9174083670522701, 0.03356743029704948, 0.0026140273452602476),
    *(0.0002522747551744835, 2.697700101543171e-05, 3.063743625042923e-06),
    *(3.6198638117747397e-07, 4.398277107297447e-08, 5.45663287400155e-09),
    *(6.87947841959413e-10, 8.772059005647084e-11, 1.1316232483758686e-11),
    *(1.568459370995739e-12, 2.0671742197483183e-13),
]


def _tail(y: Tensor) -> Tensor:
    """Return the x > 0 with erfc(x) = y for 0 < y <= 0.5."""
    t = sqrt(-log(y))
    ratio = 1 - 6 / (t + 3)  # (t - 3) / (t + 3)
    position = (ratio - (_LOW + _HIGH) / 2) * (2 / (_HIGH - _LOW))
    return t * polynomial(_TAIL, position)


def _inverse(y: Tensor, complement: Tensor) -> Tensor:
    """Return the x with erfc(x) = y for y in [0, 2]; complement is 2 - y."""
    is_right, is_left = less(y, 0.5), less(complement, 0.5)
    smaller = where(is_left, complement, y)
    is_end = equal(smaller, 0)
    is_tail = (is_right | is_left) & logical_not(is_end)
    tail = where(is_end, math.inf, _tail(where(is_tail, smaller, 0.25)))
    middle = where(is_right | is_left, 0.0, (complement - y) / 2)
    center = middle * polynomial(_CENTER, 8 * (middle * middle) - 1)
    return where(is_right, tail, where(is_left, -tail, center))


def _erfcinv(x: Tensor) -> Tensor:
    is_valid = logical_not(less(x, 0)) & logical_not(greater(x, 2)) & equal(x, x)
    inner = where(is_valid, x, 1.0)
    return where(is_valid, _inverse(inner, 2 - inner), math.nan)


def _ndtri(p: Tensor) -> Tensor:
    is_valid = logical_not(less(p, 0)) & logical_not(greater(p, 1)) & equal(p, p)
    inner = where(is_valid, p, 0.5)
    y = math.sqrt(2) * _inverse(2 * (1 - inner), 2 * inner)
    return where(is_valid, y, math.nan)


def _exp_of_square(y: Tensor, factor: float) -> Tensor:
    """Return factor * exp(y ** 2), and 0 at the ends of the domain and outside."""
    is_inner = less(absolute(y), math.inf)
    inner = where(is_inner, y, 0.0)
    return where(is_inner, factor * exp(inner * inner), 0.0)


erfcinv_p: Primitive = in_float64(
    "erfcinv", _erfcinv, lambda y: _exp_of_square(y, -math.sqrt(math.pi) / 2)
)
ndtri_p: Primitive = in_float64(
    "ndtri",
    _ndtri,
    lambda y: _exp_of_square(y * math.sqrt(0.5), math.sqrt(2 * math.pi)),
)


@operation
def erfcinv(x: TensorLike) -> Tensor:
    """Compute the inverse of `erfc`, elementwise.

    Args:
        x: numbers in [0, 2], of any shape; all other numbers give NaN.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/7.17

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.erfc(ops.erfcinv([0.1, 1.5])), 4))
        [0.1 1.5]
    """
    return bind_float(erfcinv_p, x)


@operation
def ndtri(p: Any) -> Tensor:
    """Compute the quantiles of the standard normal distribution, elementwise.

    Args:
        p: probabilities in [0, 1], of any shape; all other numbers give NaN.

    Returns:
        A tensor with the shape of `p`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/7.17

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.ndtri([0.5, 0.975]), 4))
        [0.   1.96]
    """
    return bind_float(ndtri_p, p)
