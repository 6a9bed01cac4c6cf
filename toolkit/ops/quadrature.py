"""Polynomials and integrals for special functions, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.errors import DTypeError
from toolkit.ir import Primitive
from toolkit.ops.elementwise import greater, where
from toolkit.ops.numeric import absolute
from toolkit.ops.reduce import sum as sum_
from toolkit.ops.shape import expand_dims, sum_to
from toolkit.ops.transcendental import expm1, log, log1p
from toolkit.type_aliases import TensorLike

EULER = 0.5772156649015329


def doubles(*xs: Any) -> tuple[list[Tensor], str]:
    """Return real tensors as float64, and their common dtype."""
    tensors = floating(*xs)
    dtype = dtypes.result_type(*(x.dtype for x in tensors))
    if dtypes.is_complex(dtype):
        raise DTypeError(f"expected real numbers; received {dtype}")
    return [convert(x, "float64") for x in tensors], dtype


def in_float64(
    name: str,
    function: Callable[..., Tensor],
    slope: Callable[[Tensor], Tensor] | None = None,
    derivative: Callable[..., Tensor] | None = None,
) -> Primitive:
    """Declare an elementwise composite of real numbers that computes in float64.

    Eager calls run its body in one pass over the data.

    Args:
        name: name of the composite.
        function: the function of float64 tensors.
        slope: for a function of one tensor, its derivative as a function of the result.
            None differentiates the body.
        derivative: the derivative with respect to the last argument, as a function of
            the arguments. The other arguments have no gradient.
    """

    def body(*xs: Tensor) -> Tensor:
        wide, dtype = doubles(*xs)
        return convert(function(*wide), dtype)

    def vjp(g: Tensor, y: Tensor, *xs: Tensor) -> tuple[Tensor | None, ...]:
        x = xs[-1]
        if derivative is not None:
            factor = derivative(*doubles(*xs)[0])
        else:
            assert slope is not None
            # A narrow dtype does not have all digits of the result.
            is_wide = x.dtype == "float64"
            factor = slope(y if is_wide else bind(record, convert(x, "float64")))
        gradient = convert(convert(g, "float64") * factor, x.dtype)
        return *[None] * (len(xs) - 1), sum_to(gradient, x.shape)

    record = decomposable(name, body, vjp if slope or derivative else None)
    return record


def bind_float(record: Primitive, *xs: TensorLike) -> Tensor:
    """Apply a composite of `in_float64` to real numbers of any dtype."""
    return bind(record, *floating(*xs))


# Longer polynomials are sums of two, in x ** 2, which a processor computes in parallel.
_LONG_POLYNOMIAL = 8


def polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """Return the sum of c[k] * x ** k; abs(x) must not be much larger than 1."""
    if len(coefficients) > _LONG_POLYNOMIAL:
        square = x * x
        even = _horner(coefficients[0::2], square)
        return even + x * _horner(coefficients[1::2], square)
    return _horner(coefficients, x)


def _horner(coefficients: Sequence[float], x: Tensor) -> Tensor:
    y = convert(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        y = y * x + c
    return y


def chebyshev(coefficients: Sequence[float], t: Tensor) -> Tensor:
    """Return the sum of c[k] * cos(k * arccos(t)).

    The coefficients must decay so fast that the same polynomial in powers of t has
    coefficients with a small sum.
    """
    return polynomial(np.polynomial.chebyshev.cheb2poly(coefficients).tolist(), t)


# The integral over s in (0, inf) by the trapezoidal rule in u, where
# s = exp(u - exp(-u)).
_STEP = 1 / 12  # an error of 1e-15
_U = np.arange(-48, 46) * _STEP
_TAIL_NODES = np.exp(_U - np.exp(-_U))
_TAIL_WEIGHTS = _STEP * _TAIL_NODES * (1 + np.exp(-_U))


def tail_integral(name: str, f: Callable[..., Tensor]) -> Primitive:
    """Declare a composite for the integral of f(s, *xs) over s > 0.

    Its operands are the nodes, the weights, and xs with an axis of length 1 for the
    nodes. Eager calls of it do not store the values of f at all nodes.

    Args:
        name: name of the composite.
        f: the integrand, which must decay at least as exp(-s).
    """

    def body(nodes: Tensor, weights: Tensor, *columns: Tensor) -> Tensor:
        return sum_(f(nodes, *columns) * weights, -1)

    return decomposable(name, body)


def bind_integral(record: Primitive, *xs: Tensor) -> Tensor:
    """Apply a composite of `tail_integral`, elementwise in xs."""
    rule = convert(_TAIL_NODES), convert(_TAIL_WEIGHTS)
    return bind(record, *rule, *(expand_dims(x, -1) for x in xs))


# log(1 + v) = 2 * artanh(s) with s = v / (2 + v), which is at most 1/3 for |v| < 1/2.
_ARTANH = [2 / (2 * k + 3) for k in range(18)]


def log1p_minus(v: Tensor) -> Tensor:
    """Return log(1 + v) - v without cancellation, for v > -1."""
    is_far = greater(absolute(v), 0.5)
    far = where(is_far, v, 1.0)
    return where(is_far, log1p(far) - far, _near_log1p_minus(where(is_far, 0.0, v)))


def _near_log1p_minus(v: Tensor) -> Tensor:
    s = v / (2 + v)
    return s * (s * s * polynomial(_ARTANH, s * s) - v)


def log_ratio_minus(x: Tensor, center: Tensor, difference: Tensor) -> Tensor:
    """Return log(r) - (r - 1) for r = x / center > 0; difference is x - center."""
    v = difference / center
    is_far = greater(absolute(v), 0.5)
    ratio = where(is_far, x / center, 2.0)
    return where(
        is_far, log(ratio) - (ratio - 1), _near_log1p_minus(where(is_far, 0.0, v))
    )


_EXPM1 = [(-1) ** k / math.factorial(k + 2) for k in range(16)]


def expm1_plus(s: Tensor) -> Tensor:
    """Return exp(-s) - 1 + s without cancellation, for s >= 0."""
    is_far = greater(s, 0.5)
    near, far = where(is_far, 0.0, s), where(is_far, s, 1.0)
    return where(is_far, expm1(-far) + far, near * near * polynomial(_EXPM1, near))
