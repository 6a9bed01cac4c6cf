"""Complex numbers: construction from two parts, and their parts.

The gradient of a real number L with respect to z = x + i y is dL/dx - i dL/dy, as in
JAX. With this convention, a function with a complex derivative has the same rule as for
real numbers.
"""

from __future__ import annotations

from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import DTypeError, ShapeError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ops.creation import ones_like, zeros_like
from toolkit.ops.elementwise import equal
from toolkit.ops.shape import stack
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import arctan2, cos, sin
from toolkit.type_aliases import TensorLike


def _as_complex_spec(x: Spec) -> Spec:
    if not x.shape or x.shape[-1] != 2:
        raise ShapeError(
            "view_as_complex: Last dimension of input must be size 2, the real and the "
            f"imaginary part; received shape {x.shape}"
        )
    return Spec(x.shape[:-1], dtypes.result_type(x.dtype, "complex64"))


def _as_real_spec(x: Spec) -> Spec:
    if not dtypes.is_complex(x.dtype):
        raise DTypeError(f"view_as_real: expected a complex tensor; received {x.dtype}")
    return Spec((*x.shape, 2), dtypes.real_type(x.dtype))


as_complex_p: Primitive = primitive(
    "as_complex",
    Kind.MOVE,
    _as_complex_spec,
    axes="..._->...",
    vjp=lambda g, y, x: bind(as_real_p, conjugate(g)),
)
as_real_p: Primitive = primitive(
    "as_real",
    Kind.MOVE,
    _as_real_spec,
    axes="...->..._",
    vjp=lambda g, y, x: conjugate(bind(as_complex_p, g)),
)
conjugate_p: Primitive = primitive(
    "conjugate",
    Kind.MOVE,
    lambda x: x,
    axes="...->...",
    vjp=lambda g, y, x: conjugate(g),
)


@operation
def view_as_complex(x: TensorLike) -> Tensor:
    """Convert pairs of real numbers to complex numbers.

    Args:
        x: (..., 2), real and imaginary parts.

    Returns:
        A tensor of shape (...): complex128 for float64, and complex64 for all other
        dtypes.

    Raises:
        DTypeError: `x` is complex.

    Example:
        >>> from toolkit import ops
        >>> ops.view_as_complex([[1.0, 2.0]]).tolist()
        [(1+2j)]
    """
    (x,) = floating(x)
    if dtypes.is_complex(x.dtype):
        raise DTypeError(f"view_as_complex: expected real numbers; received {x.dtype}")
    x = convert(x, dtypes.result_type(x.dtype, "float32"))
    _as_complex_spec(x.spec)
    return bind(as_complex_p, x)


@operation
def view_as_real(x: TensorLike) -> Tensor:
    """Convert complex numbers to pairs of real numbers.

    Args:
        x: (...), complex numbers.

    Returns:
        A tensor of shape (..., 2): float64 for complex128, and float32 for complex64.

    Example:
        >>> from toolkit import ops
        >>> ops.view_as_real(ops.array([1 + 2j])).tolist()
        [[1.0, 2.0]]
    """
    x = convert(x)
    _as_real_spec(x.spec)
    return bind(as_real_p, x)


@operation
def polar(abs_: Any, angle: Any) -> Tensor:
    """Create complex numbers r * exp(i * angle) from polar coordinates.

    Args:
        abs_: the absolute values r, of any shape.
        angle: the angles in radians; the shape broadcasts with the shape of the
            absolute values.

    Returns:
        A complex tensor with the broadcast shape.

    Example:
        >>> from toolkit import ops
        >>> ops.polar([2.0], [0.0]).tolist()
        [(2+0j)]
    """
    r, t = floating(abs_, angle)
    return view_as_complex(stack([r * cos(t), r * sin(t)], axis=-1))


@operation
def real(x: TensorLike) -> Tensor:
    """Return the real part of numbers, elementwise.

    Args:
        x: real or complex numbers of any shape.

    Returns:
        A real tensor with the shape of `x`: `x` itself if it is not complex.

    Example:
        >>> from toolkit import ops
        >>> ops.real(ops.array([1 + 2j])).tolist()
        [1.0]
    """
    x = convert(x)
    return view_as_real(x)[..., 0] if dtypes.is_complex(x.dtype) else x


@operation
def imag(x: TensorLike) -> Tensor:
    """Return the imaginary part of numbers, elementwise.

    Args:
        x: real or complex numbers of any shape.

    Returns:
        A real tensor with the shape of `x`: zeros if it is not complex.

    Example:
        >>> from toolkit import ops
        >>> ops.imag(ops.array([1 + 2j])).tolist()
        [2.0]
    """
    x = convert(x)
    return view_as_real(x)[..., 1] if dtypes.is_complex(x.dtype) else zeros_like(x)


@operation
def conjugate(x: TensorLike) -> Tensor:
    """Return the complex conjugate of numbers, elementwise.

    Args:
        x: real or complex numbers of any shape.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> ops.conjugate(ops.array([1 + 2j])).tolist()
        [(1-2j)]
    """
    x = convert(x)
    if not dtypes.is_complex(x.dtype):
        return x
    return bind(conjugate_p, x)


conj = conjugate


@operation
def angle(x: TensorLike) -> Tensor:
    """Return the angle of numbers in the complex plane, in radians.

    Args:
        x: real or complex numbers of any shape.

    Returns:
        A real tensor with the shape of `x` and elements in [-pi, pi]. Negative real
        numbers give pi.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.angle(ops.array([1j, -1])), 4))
        [1.5708 3.1416]
    """
    (x,) = floating(x)
    return arctan2(imag(x), real(x))


@operation
def isreal(x: TensorLike) -> Tensor:
    """Return whether the imaginary part of numbers is 0, elementwise.

    Args:
        x: real or complex numbers of any shape.

    Returns:
        A boolean tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.isreal(ops.array([1 + 0j, 1j])))
        [ True False]
    """
    x = convert(x)
    if dtypes.is_complex(x.dtype):
        return equal(imag(x), 0)
    return ones_like(x, "bool")
