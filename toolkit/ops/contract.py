"""Matrix products: the primitive `matmul`, and the products based on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from toolkit.arguments import is_int
from toolkit.core.convert import convert, operands, tensors, weak_type
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ArgumentError, DTypeError, ShapeError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ops.checks import Shape, broadcast_shapes, normalize_axis
from toolkit.ops.shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    moveaxis,
    reshape,
    slice_axis,
    sum_to,
    swapaxes,
    transpose,
)
from toolkit.ops.symbolic import operation


def _matmul_spec(a: Spec, b: Spec, factors: str = "") -> Spec:
    """Infer the spec; `factors`: the dtype to which operands may be rounded, or ""."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul: the last axis of shape {a.shape} must have the extent of the "
            f"second-to-last axis of shape {b.shape}{_fix_of_factors(a.shape, b.shape)}"
        )
    batch = broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2])
    return a.with_shape((*batch, a.shape[-2], b.shape[-1]))


def _fix_of_factors(a: Shape, b: Shape) -> str:
    """Return the transpositions that make a product possible, for a message."""
    if len(a) < 2 or len(b) < 2:
        return ""
    if a[-1] == b[-1]:
        factors = "x1, ops.swapaxes(x2, -1, -2)"
    elif a[-2] == b[-2]:
        factors = "ops.swapaxes(x1, -1, -2), x2"
    elif a[-2] == b[-1]:
        factors = "x2, x1"
    else:
        return f"; the extents are {a[-1]} and {b[-2]}"
    return f"; did you mean ops.matmul({factors})?"


def _matmul_or_multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b: if each sum has one term, an elementwise product, which fuses."""
    return a * b if a.shape[-1] == 1 else bind(matmul_p, a, b)


def _matmul_vjp_a(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return sum_to(_matmul_or_multiply(g, swapaxes(b, -1, -2)), a.shape)


def _matmul_vjp_b(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # one product of long matrices is faster than a sum of many products
    if b.ndim == 2:
        a = reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        g = reshape(g, (math.prod(g.shape[:-1]), g.shape[-1]))
    # A sum over the rows of a batch stays a product, also for one row. Else the order
    # of additions in a job on GPUs depends on the number of processes.
    return sum_to(bind(matmul_p, swapaxes(a, -1, -2), g), b.shape)


matmul_p: Primitive = primitive(
    "matmul",
    Kind.CONTRACT,
    _matmul_spec,
    vjp=(_matmul_vjp_a, _matmul_vjp_b),
    axes="...mk,...kn->...mn",
)


def _matmul_integer_spec(a: Spec, b: Spec) -> Spec:
    if (a.dtype, b.dtype) != ("int8", "int8"):
        raise DTypeError(
            f"matmul_integer: expected two int8 operands; received {a.dtype} and "
            f"{b.dtype}"
        )
    return _matmul_spec(a, b).with_dtype("int32")


# A primitive, because processors multiply 8-bit integers several times as fast as
# 32-bit integers.
matmul_integer_p: Primitive = primitive(
    "matmul_integer", Kind.CONTRACT, _matmul_integer_spec, axes="...mk,...kn->...mn"
)


def multiply_matrices(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of (..., m, k) and (..., k, n); int32 if both are int8."""
    is_integer = a.dtype == b.dtype == "int8"
    return bind(matmul_integer_p if is_integer else matmul_p, a, b)


def _need_axes(op: str, x1: Tensor, x2: Tensor) -> None:
    if x1.ndim == 0 or x2.ndim == 0:
        raise ShapeError(
            f"{op}: expected tensors with axes; received shapes {x1.shape} and "
            f"{x2.shape}"
        )


@operation
def matmul(x1: Any, x2: Any) -> Tensor:
    """Compute the matrix product over the last two axes.

    Args:
        x1: (..., m, k), or a vector (k,).
        x2: (..., k, n), or a vector (k,). The leading axes broadcast.

    Returns:
        A tensor of shape (..., m, n) with the common dtype; a vector has no axis in the
        result. Products of int8 are int32.

    Example:
        >>> from toolkit import ops
        >>> print(ops.matmul([[1, 2], [3, 4]], [[5], [6]]))
        [[17]
         [39]]
    """
    (a, b), dtype = operands(x1, x2)
    # int8 times bool stays int8
    is_integer = dtype == "int8" and weak_type(x1) == weak_type(x2)
    product = partial(bind, matmul_integer_p if is_integer else matmul_p)
    if a.ndim < 2 or b.ndim < 2:
        return _with_vectors(product, a, b)
    return product(a, b)


def _with_vectors(product: Callable[..., Any], x1: Tensor, x2: Tensor) -> Tensor:
    """Return the matrix product with a vector, whose missing axis has extent 1."""
    _need_axes("matmul", x1, x2)
    a = expand_dims(x1, 0) if x1.ndim == 1 else x1
    b = expand_dims(x2, 1) if x2.ndim == 1 else x2
    y = product(a, b)
    lead = a.shape[-2:-1] if a is x1 else ()
    last = b.shape[-1:] if b is x2 else ()
    return reshape(y, (*y.shape[:-2], *lead, *last))


@operation
def dot(x1: Any, x2: Any) -> Tensor:
    """Sum products over the last axis of x1 and the second-to-last axis of x2.

    Args:
        x1: (..., k), or a scalar.
        x2: (*b, k, n), a vector (k,), or a scalar. A scalar multiplies the other
            operand.

    Returns:
        A tensor of shape (..., *b, n) with the common dtype; a vector has no axis n.

    Example:
        >>> from toolkit import ops
        >>> print(ops.dot([1, 2, 3], [4, 5, 6]))
        32
    """
    (x1, x2), _ = operands(x1, x2)
    if x1.ndim == 0 or x2.ndim == 0:
        return x1 * x2
    return tensordot(x1, x2, ((-1,), (-2 if x2.ndim > 1 else -1,)))


@operation
def vdot(x1: Any, x2: Any) -> Tensor:
    """Sum the products of the elements of two flattened tensors.

    Args:
        x1: numbers of any shape.
        x2: numbers with the number of elements of `x1`.

    Returns:
        A scalar with the common dtype.

    Example:
        >>> from toolkit import ops
        >>> print(ops.vdot([[1, 2], [3, 4]], [[1, 0], [0, 1]]))
        5
    """
    (x1, x2), _ = operands(x1, x2)
    y = bind(matmul_p, reshape(x1, (1, x1.size)), reshape(x2, (x2.size, 1)))
    return reshape(y, ())


@operation
def inner(x1: Any, x2: Any) -> Tensor:
    """Sum products over the last axes of two tensors.

    Args:
        x1: (..., k), or a scalar.
        x2: (*b, k), or a scalar. A scalar multiplies the other operand.

    Returns:
        A tensor of shape (..., *b) with the common dtype.

    Raises:
        ShapeError: the last extents differ.

    Example:
        >>> from toolkit import ops
        >>> print(ops.inner([[1, 2], [3, 4]], [10, 1]))
        [12 34]
    """
    (x1, x2), _ = operands(x1, x2)
    if x1.ndim == 0 or x2.ndim == 0:
        return x1 * x2
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            "inner: the last dimension of both must be equal; received shapes "
            f"{x1.shape} and {x2.shape}"
        )
    return tensordot(x1, x2, ((-1,), (-1,)))


@operation
def outer(x1: Any, x2: Any) -> Tensor:
    """Multiply each element of one tensor by each element of another tensor.

    Args:
        x1: numbers; the tensor is flattened.
        x2: numbers; the tensor is flattened.

    Returns:
        A tensor of shape (x1.size, x2.size) with the common dtype.

    Example:
        >>> from toolkit import ops
        >>> print(ops.outer([1, 2], [3, 4, 5]))
        [[ 3  4  5]
         [ 6  8 10]]
    """
    (x1, x2), _ = operands(x1, x2)
    return reshape(x1, (x1.size, 1)) * reshape(x2, (1, x2.size))


@operation
def tensordot(x1: Any, x2: Any, axes: Any = 2) -> Tensor:
    """Sum products over some axes of two tensors.

    Args:
        x1: the first tensor.
        x2: the second tensor.
        axes: a number n, which pairs the last n axes of `x1` with the first n axes of
            `x2`; or a pair of the axes of `x1` and the corresponding axes of `x2`. The
            default is 2.

    Returns:
        A tensor with the remaining axes of `x1`, then the remaining axes of `x2`, and
        the common dtype.

    Example:
        >>> from toolkit import ops
        >>> a, b = ops.ones((2, 3, 4)), ops.ones((4, 3, 5))
        >>> ops.tensordot(a, b, axes=[[1, 2], [1, 0]]).shape
        (2, 5)
        >>> print(ops.tensordot([1, 2], [3, 4], axes=1))
        11
    """
    (x1, x2), _ = operands(x1, x2)
    left, right = _paired_axes(x1, x2, axes)
    rows = [i for i in range(x1.ndim) if i not in left]
    columns = [i for i in range(x2.ndim) if i not in right]
    depth = math.prod(x1.shape[i] for i in left)
    height = math.prod(x1.shape[i] for i in rows)
    width = math.prod(x2.shape[i] for i in columns)
    a = reshape(_in_order(x1, rows + left), (height, depth))
    b = reshape(_in_order(x2, right + columns), (depth, width))
    shape = [x1.shape[i] for i in rows] + [x2.shape[i] for i in columns]
    return reshape(bind(matmul_p, a, b), shape)


def _in_order(x: Tensor, axes: list[int]) -> Tensor:
    return x if axes == list(range(x.ndim)) else transpose(x, axes)


def _fix_of_axes(x1: Shape, x2: Shape, left: list[int], right: list[int]) -> str:
    """Return the axes of two matrices that have equal extents, for a message."""
    if len(x1) != 2 or len(x2) != 2 or len(left) != 1:
        return ""
    pairs = [(i, k) for i in (1, 0) for k in (1, 0) if x1[i] == x2[k]]
    return f"; did you mean ops.tensordot(x1, x2, {pairs[0]})?" if pairs else ""


def _paired_axes(x1: Tensor, x2: Tensor, axes: Any) -> tuple[list[int], list[int]]:
    if is_int(axes):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ArgumentError(
                f"tensordot: cannot contract {axes} axes of shapes {x1.shape} and "
                f"{x2.shape}"
            )
        left = list(range(x1.ndim - axes, x1.ndim))
        right = list(range(axes))
    else:
        pair = [a if isinstance(a, (list, tuple)) else (a,) for a in axes]
        left = [normalize_axis("tensordot", a, x1.ndim) for a in pair[0]]
        right = [normalize_axis("tensordot", a, x2.ndim) for a in pair[1]]
    if [x1.shape[i] for i in left] != [x2.shape[i] for i in right]:
        raise ShapeError(
            f"tensordot: axes {left} of shape {x1.shape} and axes {right} of shape "
            f"{x2.shape} must have equal extents"
            f"{_fix_of_axes(x1.shape, x2.shape, left, right)}"
        )
    return left, right


@operation
def kron(x1: Any, x2: Any) -> Tensor:
    """Compute the Kronecker product: each element of x1 times the complete x2.

    Args:
        x1: numbers of any shape, extended with leading axes of extent 1 to the rank of
            `x2`.
        x2: numbers of any shape, extended in the same way to the rank of `x1`.

    Returns:
        A tensor with the common dtype. Each extent is the product of the extents of
        `x1` and `x2`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.kron([1, 10], [1, 2, 3]))
        [ 1  2  3 10 20 30]
    """
    (x1, x2), _ = operands(*tensors(x1, x2))
    ndim = max(x1.ndim, x2.ndim)
    a = reshape(x1, (1,) * (ndim - x1.ndim) + x1.shape)
    b = reshape(x2, (1,) * (ndim - x2.ndim) + x2.shape)
    wide = reshape(a, [n for extent in a.shape for n in (extent, 1)])
    tall = reshape(b, [n for extent in b.shape for n in (1, extent)])
    shape = [m * n for m, n in zip(a.shape, b.shape, strict=True)]
    return reshape(wide * tall, shape)


@operation
def cross(
    x1: Any,
    x2: Any,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Tensor:
    """Compute the cross product of vectors with 2 or 3 components.

    Args:
        x1: vectors along `axisa`.
        x2: vectors along `axisb`. The remaining axes broadcast.
        axisa: the axis of `x1` with the components. The default is the last axis.
        axisb: the axis of `x2` with the components. The default is the last axis.
        axisc: the axis of the result with the components. It has no effect for two
            vectors of 2 components, whose product is a scalar.
        axis: an axis that replaces `axisa`, `axisb` and `axisc`; None keeps them.

    Returns:
        A tensor with the common dtype.

    Raises:
        ShapeError: the vectors do not have 2 or 3 components.

    Example:
        >>> from toolkit import ops
        >>> print(ops.cross([1, 0, 0], [0, 1, 0]))
        [0 0 1]
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    (x1, x2), _ = operands(x1, x2)
    a, b = moveaxis(x1, axisa, -1), moveaxis(x2, axisb, -1)
    if not {a.shape[-1], b.shape[-1]} <= {2, 3}:
        raise ShapeError(
            "cross: expected vectors of 2 or 3 components; received "
            f"{a.shape[-1]} and {b.shape[-1]}"
        )

    def component_of(x: Tensor, i: int) -> Tensor:
        """Return the i-th component: 0 for the third component of a 2-D vector."""
        if i >= x.shape[-1]:
            return convert(0, x.dtype)
        return reshape(slice_axis(x, x.ndim - 1, i, i + 1), x.shape[:-1])

    def component(i: int) -> Tensor:
        j, k = (i + 1) % 3, (i + 2) % 3
        return component_of(a, j) * component_of(b, k) - component_of(
            a, k
        ) * component_of(b, j)

    if a.shape[-1] == b.shape[-1] == 2:
        return component(2)
    shape = broadcast_shapes("cross", a.shape[:-1], b.shape[:-1])
    components = [expand_dims(broadcast_to(component(i), shape), -1) for i in range(3)]
    return moveaxis(concatenate(components, -1), -1, axisc)
