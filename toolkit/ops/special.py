"""Special functions, composed of primitives."""

from __future__ import annotations

import math

from toolkit import dtypes
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.ir import Primitive
from toolkit.ops.bessel import i1
from toolkit.ops.elementwise import equal, greater, isinf, less, minimum, where
from toolkit.ops.numeric import absolute
from toolkit.ops.quadrature import chebyshev, polynomial
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import cos, exp, sin, sqrt
from toolkit.type_aliases import TensorLike


def _widened(x: TensorLike) -> tuple[Tensor, str]:
    """Return x in at least float32, and its dtype."""
    (x,) = floating(x)
    return convert(x, dtypes.result_type(x.dtype, "float32")), x.dtype


# The power series of I0 below the threshold, the asymptotic series above it: with this
# number of terms both are exact to the last bits of float64 there. The bases of powers
# are at most 1, so that no power overflows, also not in gradients.
_I0_BORDER = 20.0
_I0_SERIES = [(_I0_BORDER / 2) ** (2 * k) / math.factorial(k) ** 2 for k in range(40)]
_I0_TAIL = [
    math.prod((2 * j - 1) ** 2 for j in range(1, k + 1))
    / (math.factorial(k) * (8 * _I0_BORDER) ** k)
    for k in range(26)
]


def _i0(x: Tensor) -> Tensor:
    x, dtype = _widened(x)
    size = absolute(x)
    is_far = greater(size, _I0_BORDER)
    # Not `minimum`: at a tie its gradient is half. Not `size`: its second derivative at
    # 0 is 0, and the second derivative of the series is 1/2.
    near = where(is_far, _I0_BORDER, x)
    far = where(is_far, size, _I0_BORDER)
    series = polynomial(_I0_SERIES, (near / _I0_BORDER) ** 2)
    tail = polynomial(_I0_TAIL, _I0_BORDER / far) * (64 / sqrt(2 * math.pi * far))
    # exp(x / 2) twice, because exp(x) overflows first. Both are scaled down, because
    # the gradient of the tail is their product, and the gradient of each is half of the
    # gradient of both.
    first, second = (exp(far * 0.5) * 0.125 for _ in range(2))
    y = where(is_far, first * tail * second, series)
    return convert(where(isinf(size), size, y), dtype)


def _i0_vjp(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return g * i1(x)


i0_p: Primitive = decomposable("i0", _i0, _i0_vjp)


@operation
def i0(x: TensorLike) -> Tensor:
    """Compute the modified Bessel function of the first kind of order 0, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.i0([0.0, 1.0, -1.0]), 4))
        [1.     1.2661 1.2661]
    """
    return bind(i0_p, *floating(x))


# Chebyshev coefficients, computed for this file with 40 digits, of the function (1 +
# 2x) * exp(x * x) * erfc(x) of t = (x - 4) / (x + 4) for x >= 0. The remainder is below
# 1e-17.
_ERFC = [
    1.1774832005374487,
    -0.007260796620301901,
    -0.081265123236185,
    0.06009212804122225,
    -0.02875393558027666,
    0.01059566336347286,
    -0.003136927294554264,
    0.0007456494372536184,
    -0.0001369696503010054,
    1.7183861600300937e-05,
    -7.158364623450346e-07,
    -2.4261399442449534e-07,
    5.5765709395703566e-08,
    -2.1057869513809494e-09,
    -1.1717889351884957e-09,
    1.9098355172456688e-10,
    1.408871764208813e-11,
    -6.901108320480815e-12,
    9.167958364111294e-14,
    2.1454508286554553e-13,
    -1.4716575027010623e-14,
    -6.668675118770408e-15,
    7.504598509880083e-16,
    2.22009300666632e-16,
    -3.1704898956330886e-17,
]


def scaled_erfc(x: Tensor) -> Tensor:
    """Return exp(x * x) * erfc(x) for x >= 0."""
    return chebyshev(_ERFC, (x - 4) / (x + 4)) / (1 + 2 * x)


def _erfc(x: Tensor) -> Tensor:
    x, dtype = _widened(x)
    right = absolute(x)
    scaled = scaled_erfc(right)
    # Above 27 the square would overflow, although exp of its negative is 0.
    tail = scaled * exp(-(minimum(right, 27.0) ** 2))
    tail = where(greater(right, 27.0), 0.0, tail)
    return convert(where(less(x, 0), 2.0 - tail, tail), dtype)


def _erfc_vjp(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    wide, dtype = _widened(x)
    # Beyond 28 the slope is 0, and so are all later derivatives.
    near = where(greater(absolute(wide), 28.0), 28.0, wide)
    slope = exp(-(near * near)) * (-2 / math.sqrt(math.pi))
    return convert(convert(g, wide.dtype) * slope, dtype)


erfc_p: Primitive = decomposable("erfc", _erfc, _erfc_vjp)


@operation
def erfc(x: TensorLike) -> Tensor:
    """Compute 1 - erf(x), elementwise; it is exact also where erf(x) is almost 1.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/7.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.erfc([0.0, 1.0]), 4))
        [1.     0.1573]
    """
    return bind(erfc_p, *floating(x))


# Below this angle the derivative of sin(a) / a is a power series: the difference of
# cos(a) and sin(a) / a, which are both 1 at 0, has few correct bits. The next term is
# below the last bit of float64.
_SINC_BORDER = 0.5
_SINC_SLOPE = [(-1) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(1, 9)]


def _sinc(x: Tensor) -> Tensor:
    x, dtype = _widened(x)  # the range of float16 ends at 20,000 pi
    is_zero = equal(x, 0)
    angle = where(is_zero, 1.0, x) * math.pi
    return convert(where(is_zero, 1.0, sin(angle) / angle), dtype)


def _sinc_grad(g: Tensor, x: Tensor) -> Tensor:
    wide, dtype = _widened(x)
    angle = wide * math.pi
    is_near = less(absolute(angle), _SINC_BORDER)
    near, far = where(is_near, angle, 0.0), where(is_near, 1.0, angle)
    series = near * polynomial(_SINC_SLOPE, near * near)
    slope = where(is_near, series, (cos(far) - sin(far) / far) / far) * math.pi
    return convert(convert(g, wide.dtype) * slope, dtype)


sinc_grad_p: Primitive = decomposable("sinc_grad", _sinc_grad)
sinc_p: Primitive = decomposable("sinc", _sinc, lambda g, y, x: bind(sinc_grad_p, g, x))


@operation
def sinc(x: TensorLike) -> Tensor:
    """Compute sin(pi * x) / (pi * x), elementwise; the value at 0 is 1.

    Args:
        x: numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.sinc([0.0, 0.5, 1.5]), 4))
        [ 1.      0.6366 -0.2122]
    """
    (x,) = floating(x)
    return bind(sinc_p, x)
