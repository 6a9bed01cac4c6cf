"""Elementwise primitives of powers, exponentials, angles and the error function.

Each row is as in `elementwise`: a scalar rule and a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from toolkit.core.convert import convert, floating, operands, tensors, to_float
from toolkit.core.tensor import Tensor, bind
from toolkit.dtypes import is_float
from toolkit.ir import Primitive
from toolkit.ops.elementwise import (
    elementwise,
    equal,
    greater,
    where,
    zero_like,
)
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike

# --- primitives -----------------------------------------------------------------------


exp_p: Primitive = elementwise("exp", lambda s, x: s.exp(x), lambda g, y, x: g * y)
exp2_p: Primitive = elementwise(
    "exp2", lambda s, x: s.exp2(x), lambda g, y, x: g * (y * math.log(2))
)
expm1_p: Primitive = elementwise(
    "expm1", lambda s, x: s.expm1(x), lambda g, y, x: g * (y + 1)
)
log_p: Primitive = elementwise("log", lambda s, x: s.log(x), lambda g, y, x: g / x)
log2_p: Primitive = elementwise(
    "log2", lambda s, x: s.log2(x), lambda g, y, x: g / (x * math.log(2))
)
log1p_p: Primitive = elementwise(
    "log1p", lambda s, x: s.log1p(x), lambda g, y, x: g / (x + 1)
)
sqrt_p: Primitive = elementwise(
    "sqrt", lambda s, x: s.sqrt(x), lambda g, y, x: 0.5 * g / y
)
rsqrt_p: Primitive = elementwise(
    "rsqrt",
    lambda s, x: s.divide(s.const(1.0, x), s.sqrt(x)),
    lambda g, y, x: -0.5 * g * y / x,
)
cbrt_p: Primitive = elementwise(
    "cbrt", lambda s, x: s.cbrt(x), lambda g, y, x: g / (3 * y * y)
)
sin_p: Primitive = elementwise("sin", lambda s, x: s.sin(x), lambda g, y, x: g * cos(x))
cos_p: Primitive = elementwise(
    "cos", lambda s, x: s.cos(x), lambda g, y, x: -g * sin(x)
)
tan_p: Primitive = elementwise(
    "tan", lambda s, x: s.tan(x), lambda g, y, x: g * (1 + y * y)
)
arcsin_p: Primitive = elementwise(
    "arcsin", lambda s, x: s.arcsin(x), lambda g, y, x: g * rsqrt(1 - x * x)
)
arccos_p: Primitive = elementwise(
    "arccos", lambda s, x: s.arccos(x), lambda g, y, x: -g * rsqrt(1 - x * x)
)
arctan_p: Primitive = elementwise(
    "arctan", lambda s, x: s.arctan(x), lambda g, y, x: g / (1 + x * x)
)
sinh_p: Primitive = elementwise(
    "sinh", lambda s, x: s.sinh(x), lambda g, y, x: g * cosh(x)
)
cosh_p: Primitive = elementwise(
    "cosh", lambda s, x: s.cosh(x), lambda g, y, x: g * sinh(x)
)
tanh_p: Primitive = elementwise(
    "tanh", lambda s, x: s.tanh(x), lambda g, y, x: g * (1 - y * y)
)
arcsinh_p: Primitive = elementwise(
    "arcsinh", lambda s, x: s.arcsinh(x), lambda g, y, x: g * rsqrt(x * x + 1)
)
arccosh_p: Primitive = elementwise(
    "arccosh",
    lambda s, x: s.arccosh(x),
    lambda g, y, x: g * rsqrt(x - 1) * rsqrt(x + 1),
)
arctanh_p: Primitive = elementwise(
    "arctanh", lambda s, x: s.arctanh(x), lambda g, y, x: g / (1 - x * x)
)
erf_p: Primitive = elementwise(
    "erf",
    lambda s, x: s.erf(x),
    lambda g, y, x: g * (2 / math.sqrt(math.pi)) * exp(-x * x),
)
erfinv_p: Primitive = elementwise(
    "erfinv",
    lambda s, x: s.erfinv(x),
    lambda g, y, x: g * (math.sqrt(math.pi) / 2) * exp(y * y),
)
sigmoid_p: Primitive = elementwise(
    "sigmoid", lambda s, x: s.sigmoid(x), lambda g, y, x: g * y * (1 - y)
)


def _power_vjp_base(g: Tensor, y: Tensor, x: Tensor, p: Tensor) -> Tensor:
    # x ** (p - 1) is infinite at x = 0 for p < 1, but the derivative of x ** 0 is 0.
    return where(equal(p, 0), zero_like(g), g * p * power(x, p - 1))


def _power_vjp_exponent(g: Tensor, y: Tensor, x: Tensor, p: Tensor) -> Tensor:
    # y * log(x), with the limit 0 at x = 0, and no NaN from the branch that is not
    # selected.
    positive = greater(x, 0)
    return where(positive, g * y * log(where(positive, x, x * 0 + 1)), zero_like(g))


power_p: Primitive = elementwise(
    "power", lambda s, a, b: s.power(a, b), (_power_vjp_base, _power_vjp_exponent)
)
arctan2_p: Primitive = elementwise(
    "arctan2",
    lambda s, a, b: s.arctan2(a, b),
    (
        lambda g, y, a, b: g * b / (a * a + b * b),
        lambda g, y, a, b: -g * a / (a * a + b * b),
    ),
)


# --- public functions -----------------------------------------------------------------


@operation
def exp(x: TensorLike) -> Tensor:
    """Compute the exponential function e ** x, elementwise.

    Args:
        x: real or complex numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.exp([0.0, 1.0]), 3))
        [1.    2.718]
    """
    return bind(exp_p, to_float(x))


@operation
def expm1(x: TensorLike) -> Tensor:
    """Compute exp(x) - 1, elementwise; small numbers do not lose precision.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.expm1([0.0, 1.0]), 4))
        [0.     1.7183]
    """
    return bind(expm1_p, to_float(x))


@operation
def log(x: TensorLike) -> Tensor:
    """Compute the natural logarithm, elementwise.

    Args:
        x: numbers of any shape. Negative numbers give NaN, and 0 gives -inf.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.log([1.0, 10.0]), 4))
        [0.     2.3026]
    """
    return bind(log_p, to_float(x))


@operation
def log1p(x: TensorLike) -> Tensor:
    """Compute log(1 + x), elementwise; small numbers do not lose precision.

    Args:
        x: numbers of any shape. Numbers below -1 give NaN, and -1 gives -inf.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.log1p([0.0, 9.0]), 4))
        [0.     2.3026]
    """
    return bind(log1p_p, to_float(x))


@operation
def sqrt(x: TensorLike) -> Tensor:
    """Compute the square root, elementwise.

    Args:
        x: numbers of any shape. Negative numbers give NaN.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.sqrt([0.0, 9.0]))
        [0. 3.]
    """
    return bind(sqrt_p, to_float(x))


@operation
def rsqrt(x: TensorLike) -> Tensor:
    """Compute 1 / sqrt(x), elementwise.

    Args:
        x: numbers of any shape. Negative numbers give NaN, and 0 gives inf.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.rsqrt([1.0, 4.0]))
        [1.  0.5]
    """
    return bind(rsqrt_p, to_float(x))


@operation
def sin(x: TensorLike) -> Tensor:
    """Compute the sine, elementwise.

    Args:
        x: angles in radians, of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.sin([0.0, 1.0, 1.57079633]), 4))
        [0.     0.8415 1.    ]
    """
    return bind(sin_p, to_float(x))


@operation
def cos(x: TensorLike) -> Tensor:
    """Compute the cosine, elementwise.

    Args:
        x: angles in radians, of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.cos([0.0, 1.0, 3.14159265]), 4))
        [ 1.      0.5403 -1.    ]
    """
    return bind(cos_p, to_float(x))


@operation
def tan(x: TensorLike) -> Tensor:
    """Compute the tangent sin(x) / cos(x), elementwise.

    Args:
        x: angles in radians, of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.tan([0.0, 0.78539816]), 4))
        [0. 1.]
    """
    return bind(tan_p, to_float(x))


@operation
def arcsin(x: TensorLike) -> Tensor:
    """Compute the angle with a sine, elementwise.

    Args:
        x: numbers in [-1, 1], of any shape; all other numbers give NaN.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx. The angles are in radians, in [-pi / 2, pi / 2].

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.arcsin([0.0, 1.0]), 4))
        [0.     1.5708]
    """
    return bind(arcsin_p, to_float(x))


@operation
def arccos(x: TensorLike) -> Tensor:
    """Compute the angle with a cosine, elementwise.

    Args:
        x: numbers in [-1, 1], of any shape; all other numbers give NaN.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx. The angles are in radians, in [0, pi].

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.arccos([1.0, 0.0, -1.0]), 4))
        [0.     1.5708 3.1416]
    """
    return bind(arccos_p, to_float(x))


@operation
def arctan(x: TensorLike) -> Tensor:
    """Compute the angle with a tangent, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx. The angles are in radians, in [-pi / 2, pi / 2].

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.arctan([0.0, 1.0]), 4))
        [0.     0.7854]
    """
    return bind(arctan_p, to_float(x))


@operation
def sinh(x: TensorLike) -> Tensor:
    """Compute the hyperbolic sine (exp(x) - exp(-x)) / 2, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.sinh([0.0, 1.0]), 4))
        [0.     1.1752]
    """
    return bind(sinh_p, to_float(x))


@operation
def cosh(x: TensorLike) -> Tensor:
    """Compute the hyperbolic cosine (exp(x) + exp(-x)) / 2, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.cosh([0.0, 1.0]), 4))
        [1.     1.5431]
    """
    return bind(cosh_p, to_float(x))


@operation
def tanh(x: TensorLike) -> Tensor:
    """Compute the hyperbolic tangent sinh(x) / cosh(x), elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.tanh([-1.0, 0.0, 1.0]), 4))
        [-0.7616  0.      0.7616]
    """
    return bind(tanh_p, to_float(x))


@operation
def arcsinh(x: TensorLike) -> Tensor:
    """Compute the inverse of the hyperbolic sine: log(x + sqrt(x ** 2 + 1)).

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.arcsinh([0.0, 1.0]), 4))
        [0.     0.8814]
    """
    return bind(arcsinh_p, to_float(x))


@operation
def arccosh(x: TensorLike) -> Tensor:
    """Compute the inverse of the hyperbolic cosine: log(x + sqrt(x ** 2 - 1)).

    Args:
        x: numbers >= 1 of any shape; all other numbers give NaN.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.arccosh([1.0, 2.0]), 4))
        [0.    1.317]
    """
    return bind(arccosh_p, to_float(x))


@operation
def arctanh(x: TensorLike) -> Tensor:
    """Compute the inverse of the hyperbolic tangent: log((1 + x) / (1 - x)) / 2.

    Args:
        x: numbers in [-1, 1], of any shape; all other numbers give NaN. The ends give
            infinities.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.arctanh([0.0, 0.5]), 4))
        [0.     0.5493]
    """
    return bind(arctanh_p, to_float(x))


@operation
def erf(x: TensorLike) -> Tensor:
    """Compute the error function, elementwise.

    It is the integral of 2 / sqrt(pi) * exp(-t ** 2) from 0 to x.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/7.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.erf([0.0, 1.0, -1.0]), 4))
        [ 0.      0.8427 -0.8427]
    """
    return bind(erf_p, to_float(x))


@operation
def erfinv(x: TensorLike) -> Tensor:
    """Compute the inverse of the error function, elementwise.

    Args:
        x: numbers in [-1, 1], of any shape; all other numbers give NaN. The ends give
            infinities.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/7.17

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.erfinv([0.0, 0.8427]), 4))
        [0. 1.]
    """
    return bind(erfinv_p, to_float(x))


@operation
def sigmoid(x: TensorLike) -> Tensor:
    """Compute the logistic function 1 / (1 + exp(-x)), elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.sigmoid([-1.0, 0.0, 1.0]), 4))
        [0.2689 0.5    0.7311]
    """
    return bind(sigmoid_p, to_float(x))


# Powers of float operands that need no logarithm, by their exponent; and the exponents
# whose powers are products, of integers too.
_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    4: lambda x: power(x * x, 2),
    -1: lambda x: 1 / x,
    -2: lambda x: 1 / (x * x),
    0.5: lambda x: sqrt(x),
    -0.5: lambda x: rsqrt(x),
}
_PRODUCTS = (2, 3, 4)


@operation
def power(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute x1 ** x2, elementwise.

    The gradient of 0 ** x2 with respect to `x2` is 0.

    Args:
        x1: the base, of any shape.
        x2: the exponent; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.
        Booleans give int32.

    Example:
        >>> from toolkit import ops
        >>> print(ops.power([1, 2, 3], 2))
        [1 4 9]
    """
    exponent = x2 if isinstance(x2, (int, float)) else None
    (x1, x2), dtype = operands(x1, x2)
    rewrite = _POWERS.get(exponent) if exponent is not None else None
    if rewrite and (exponent in _PRODUCTS or is_float(dtype)):
        return rewrite(x1)
    if dtype == "bool":
        x1, x2 = convert(x1, "int32"), convert(x2, "int32")
    return bind(power_p, x1, x2)


@operation
def arctan2(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the angle of the point (x2, x1) with the positive horizontal axis.

    Args:
        x1: the vertical coordinate, of any shape.
        x2: the horizontal coordinate; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of both
        operands. The angles are in radians, in [-pi, pi].

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.arctan2([0.0, 1.0, 1.0], [1.0, 1.0, 0.0]), 4))
        [0.     0.7854 1.5708]
    """
    return bind(arctan2_p, *floating(*tensors(x1, x2)))
