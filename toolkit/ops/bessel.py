"""Bessel functions of orders 0 and 1, elementwise, computed in float64."""

from __future__ import annotations

from functools import partial

from toolkit.core.tensor import Tensor
from toolkit.ir import Primitive
from toolkit.ops.bessel_series import i1_of, j_of, k_of, scaled_i, y_of
from toolkit.ops.quadrature import bind_float, in_float64
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import TensorLike

i0e_p: Primitive = in_float64("i0e", partial(scaled_i, 0))
i1e_p: Primitive = in_float64("i1e", partial(scaled_i, 1))
i1_p: Primitive = in_float64("i1", i1_of)
bessel_j0_p: Primitive = in_float64("bessel_j0", partial(j_of, 0))
bessel_j1_p: Primitive = in_float64("bessel_j1", partial(j_of, 1))
bessel_y0_p: Primitive = in_float64("bessel_y0", partial(y_of, 0))
bessel_y1_p: Primitive = in_float64("bessel_y1", partial(y_of, 1))
bessel_k0_p: Primitive = in_float64("bessel_k0", partial(k_of, 0, False))
bessel_k1_p: Primitive = in_float64("bessel_k1", partial(k_of, 1, False))
bessel_k0e_p: Primitive = in_float64("bessel_k0e", partial(k_of, 0, True))
bessel_k1e_p: Primitive = in_float64("bessel_k1e", partial(k_of, 1, True))


@operation
def i0e(x: TensorLike) -> Tensor:
    """Compute exp(-abs(x)) * i0(x), elementwise, without overflow.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.i0e([0.0, 1.0]), 4))
        [1.     0.4658]
    """
    return bind_float(i0e_p, x)


@operation
def i1e(x: TensorLike) -> Tensor:
    """Compute exp(-abs(x)) * i1(x), elementwise, without overflow.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.i1e([0.0, 1.0]), 4))
        [0.     0.2079]
    """
    return bind_float(i1e_p, x)


@operation
def i1(x: TensorLike) -> Tensor:
    """Compute the modified Bessel function of the first kind of order 1, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.i1([0.0, 1.0, -1.0]), 4))
        [ 0.      0.5652 -0.5652]
    """
    return bind_float(i1_p, x)


@operation
def bessel_k0(x: TensorLike) -> Tensor:
    """Compute the modified Bessel function of the second kind of order 0.

    Args:
        x: positive numbers of any shape; all other numbers give infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_k0([1.0, 2.0]), 4))
        [0.421  0.1139]
    """
    return bind_float(bessel_k0_p, x)


@operation
def bessel_k0e(x: TensorLike) -> Tensor:
    """Compute exp(x) * bessel_k0(x), elementwise, without underflow.

    Args:
        x: positive numbers of any shape; all other numbers give infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_k0e([1.0, 2.0]), 4))
        [1.1445 0.8416]
    """
    return bind_float(bessel_k0e_p, x)


@operation
def bessel_k1(x: TensorLike) -> Tensor:
    """Compute the modified Bessel function of the second kind of order 1.

    Args:
        x: positive numbers of any shape; all other numbers give infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_k1([1.0, 2.0]), 4))
        [0.6019 0.1399]
    """
    return bind_float(bessel_k1_p, x)


@operation
def bessel_k1e(x: TensorLike) -> Tensor:
    """Compute exp(x) * bessel_k1(x), elementwise, without underflow.

    Args:
        x: positive numbers of any shape; all other numbers give infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.25

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_k1e([1.0, 2.0]), 4))
        [1.6362 1.0335]
    """
    return bind_float(bessel_k1e_p, x)


@operation
def bessel_j0(x: TensorLike) -> Tensor:
    """Compute the Bessel function of the first kind of order 0, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_j0([0.0, 1.0]), 4))
        [1.     0.7652]
    """
    return bind_float(bessel_j0_p, x)


@operation
def bessel_j1(x: TensorLike) -> Tensor:
    """Compute the Bessel function of the first kind of order 1, elementwise.

    Args:
        x: real numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_j1([0.0, 1.0]), 4))
        [0.     0.4401]
    """
    return bind_float(bessel_j1_p, x)


@operation
def bessel_y0(x: TensorLike) -> Tensor:
    """Compute the Bessel function of the second kind of order 0, elementwise.

    Args:
        x: positive numbers of any shape; all other numbers give minus infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_y0([1.0, 2.0]), 4))
        [0.0883 0.5104]
    """
    return bind_float(bessel_y0_p, x)


@operation
def bessel_y1(x: TensorLike) -> Tensor:
    """Compute the Bessel function of the second kind of order 1, elementwise.

    Args:
        x: positive numbers of any shape; all other numbers give minus infinity.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        DLMF, https://dlmf.nist.gov/10.2

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.bessel_y1([1.0, 2.0]), 4))
        [-0.7812 -0.107 ]
    """
    return bind_float(bessel_y1_p, x)
