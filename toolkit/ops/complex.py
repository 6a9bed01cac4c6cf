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
from toolkit.ops.elementwise import arctan2, cos, equal, sin
from toolkit.ops.shape import stack
from toolkit.ops.symbolic import operation
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


@operation
def view_as_complex(x: TensorLike) -> Tensor:
    """Convert pairs of real numbers to complex numbers.

    Args:
        x: (..., 2): real and imaginary parts.

    Returns:
        (...), complex128 for float64 and complex64 for all other dtypes.

    Example:
        >>> import toolkit
        >>> toolkit.ops.view_as_complex([[1.0, 2.0]]).tolist()
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
    """Convert complex numbers to pairs of real numbers (see `view_as_complex`).

    Args:
        x: (...), complex.

    Returns:
        (..., 2).
    """
    x = convert(x)
    _as_real_spec(x.spec)
    return bind(as_real_p, x)


@operation
def polar(abs_: Any, angle: Any) -> Tensor:
    """Return complex numbers from their distance from 0 and their angle in radians.

    Args:
        abs_: the distances.
        angle: the angles, which broadcast with them.
    """
    r, t = floating(abs_, angle)
    return view_as_complex(stack([r * cos(t), r * sin(t)], axis=-1))


@operation
def real(x: TensorLike) -> Tensor:
    """Return the real part, elementwise; x itself if it is not complex."""
    x = convert(x)
    return view_as_real(x)[..., 0] if dtypes.is_complex(x.dtype) else x


@operation
def imag(x: TensorLike) -> Tensor:
    """Return the imaginary part, elementwise; zeros if x is not complex."""
    x = convert(x)
    return view_as_real(x)[..., 1] if dtypes.is_complex(x.dtype) else zeros_like(x)


@operation
def conjugate(x: TensorLike) -> Tensor:
    """Return the complex conjugate, elementwise; x itself if it is not complex."""
    x = convert(x)
    if not dtypes.is_complex(x.dtype):
        return x
    signs = convert([1, -1], dtypes.real_type(x.dtype))
    return bind(as_complex_p, bind(as_real_p, x) * signs)


conj = conjugate


@operation
def angle(x: TensorLike) -> Tensor:
    """Return the angle of x in the complex plane; for real x < 0 pi, else 0."""
    (x,) = floating(x)
    return arctan2(imag(x), real(x))


@operation
def isreal(x: TensorLike) -> Tensor:
    """Return whether the imaginary part is zero, elementwise."""
    x = convert(x)
    if dtypes.is_complex(x.dtype):
        return equal(imag(x), 0)
    return ones_like(x, "bool")
