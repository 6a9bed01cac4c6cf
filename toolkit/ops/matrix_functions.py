"""The exponential, the square root and the logarithm of square matrices."""

from __future__ import annotations

import math

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.ops.contract import matmul
from toolkit.ops.creation import eye
from toolkit.ops.decomposition import inverse, need_square
from toolkit.ops.elementwise import floor, greater, less_equal, maximum, where
from toolkit.ops.numeric import absolute, stop_gradient
from toolkit.ops.reduce import max as max_, sum as sum_
from toolkit.ops.shape import expand_dims
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import exp, log
from toolkit.type_aliases import TensorLike

# Higham, "The scaling and squaring method for the matrix exponential revisited", SIAM
# J. Matrix Anal. Appl. 26 (2005): the numerator of degree 13, and its largest norm.
_PADE = [
    *(64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800),
    *(129060195264000, 10559470521600, 670442572800, 33522128640, 1323241920),
    *(40840800, 960960, 16380, 182, 1),
]
_LARGEST_NORM = 5.371920351148152
_TRACED_SQUARINGS = 40  # if the norm is not known
_ROOT_STEPS = 20  # of Newton's method, which doubles the number of digits in each step
_ROOTS = 10  # after this number of roots, a logarithm below 256 is below 1/4
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


def _square(op: str, x: TensorLike) -> tuple[Tensor, str]:
    """Return square matrices in double precision, and their dtype."""
    (x,) = floating(x)
    if x.ndim < 2:
        raise ShapeError(f"{op}: expected matrices, (..., n, n); received {x.shape}")
    need_square(op, x)
    return convert(x, dtypes.result_type(x.dtype, "float64")), x.dtype


def _one(x: Tensor) -> Tensor:
    return eye(x.shape[-1], dtype=x.dtype)


@operation
def expm(x: TensorLike) -> Tensor:
    """Compute the exponential of matrices: the sum of x ** k / k! over k >= 0.

    Args:
        x: (..., n, n), real or complex.

    Returns:
        A tensor with the shape and floating dtype of `x`. In a trace, matrices with a
        norm above 5e12 give NaN.

    Raises:
        ShapeError: `x` has fewer than 2 axes.

    Reference:
        Higham, The Scaling and Squaring Method for the Matrix Exponential Revisited
            (2005), doi:10.1137/04061101X

    Example:
        >>> from toolkit import ops
        >>> ops.expm([[0.0, 1.0], [0.0, 0.0]]).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    x, dtype = _square("expm", x)
    if not x.shape[-1]:
        return convert(x, dtype)
    norm = stop_gradient(max_(sum_(absolute(x), -2), -1))
    powers = -floor(-log(maximum(norm / _LARGEST_NORM, 1.0)) / math.log(2))
    constant = powers.static_value()
    steps = _TRACED_SQUARINGS
    if constant is not None:
        finite = constant[np.isfinite(constant)]
        steps = int(finite.max()) if finite.size else 0
    # A norm that is not finite, or too large for the number of steps, gives NaN.
    scale = where(less_equal(powers, steps), exp(-powers * math.log(2)), math.nan)
    y = _pade(x * expand_dims(scale, (-2, -1)))
    for step in range(steps):
        is_above = expand_dims(greater(powers, step), (-2, -1))
        y = where(is_above, matmul(y, y), y)
    return convert(y, dtype)


def _pade(x: Tensor) -> Tensor:
    """Return the exponential of matrices with small norms."""
    one, c = _one(x), _PADE
    x2 = matmul(x, x)
    x4 = matmul(x2, x2)
    x6 = matmul(x4, x2)
    odd = matmul(x6, c[13] * x6 + c[11] * x4 + c[9] * x2)
    odd = matmul(x, odd + c[7] * x6 + c[5] * x4 + c[3] * x2 + c[1] * one)
    even = matmul(x6, c[12] * x6 + c[10] * x4 + c[8] * x2)
    even = even + c[6] * x6 + c[4] * x4 + c[2] * x2 + c[0] * one
    return matmul(inverse(even - odd), even + odd)


@operation
def sqrtm(x: TensorLike) -> Tensor:
    """Compute the principal square root of matrices: y @ y = x.

    Args:
        x: (..., n, n), real or complex, invertible. The result has no meaning if an
            eigenvalue is 0 or negative.

    Returns:
        A tensor with the shape and floating dtype of `x`.

    Raises:
        ShapeError: `x` has fewer than 2 axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.sqrtm([[4.0, 0.0], [0.0, 9.0]]), 4))
        [[2. 0.]
         [0. 3.]]
    """
    x, dtype = _square("sqrtm", x)
    return convert(_root(x), dtype)


def _root(x: Tensor) -> Tensor:
    """Return square roots by the product iteration of Denman and Beavers."""
    one, y, m = _one(x), x, x
    for _ in range(_ROOT_STEPS):
        other = inverse(m)
        # Scaling balances the norms of m and of its inverse.
        size = sum_(absolute(m), (-2, -1), keepdims=True)
        ratio = sum_(absolute(other), (-2, -1), keepdims=True) / size
        scale = stop_gradient(exp(0.25 * log(ratio)))
        square = scale * scale
        y = 0.5 * scale * matmul(y, one + other / square)
        m = 0.5 * one + 0.25 * (square * m + other / square)
    return y


@operation
def logm(x: TensorLike) -> Tensor:
    """Compute the principal logarithm of matrices, the inverse of `expm`.

    Args:
        x: (..., n, n), real or complex, invertible. The result has no meaning if an
            eigenvalue is 0 or negative.

    Returns:
        A tensor with the shape and floating dtype of `x`.

    Raises:
        ShapeError: `x` has fewer than 2 axes.

    Example:
        >>> from toolkit import ops
        >>> ops.logm([[1.0, 1.0], [0.0, 1.0]]).numpy().round(5).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    x, dtype = _square("logm", x)
    for _ in range(_ROOTS):
        x = _root(x)
    one = _one(x)
    residual = x - one
    # The integral of rest / (1 + t * rest) over t in [0, 1].
    terms = (
        float(weight) / 2 * inverse(one + float(1 + node) / 2 * residual)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True)
    )
    return convert(2.0**_ROOTS * matmul(residual, sum(terms)), dtype)
