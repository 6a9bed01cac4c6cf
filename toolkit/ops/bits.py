"""Bits of numbers: bitwise operations, reinterpretation by `view`, next number."""

from __future__ import annotations

from toolkit import dtypes
from toolkit.core.convert import convert, floating, operands, tensors
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ShapeError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ops.checks import check_integers
from toolkit.ops.elementwise import (
    elementwise,
    equal,
    isnan,
    less,
    sign,
    where,
)
from toolkit.ops.numeric import logical_or
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import DTypeLike, TensorLike


def _bitcast_spec(x: Spec, dtype: str) -> Spec:
    old, new = dtypes.itemsize(x.dtype), dtypes.itemsize(dtype)
    if old == new:
        return Spec(x.shape, dtype)
    if not x.shape or x.shape[-1] * old % new:
        raise ShapeError(
            f"view: the last axis of shape {x.shape} does not contain a whole number "
            f"of {dtype} elements"
        )
    return Spec((*x.shape[:-1], x.shape[-1] * old // new), dtype)


def _bitcast_axes(x: Spec, dtype: str) -> str:
    same = dtypes.itemsize(x.dtype) == dtypes.itemsize(dtype)
    return "...->..." if same else "..._->..._"


bitcast_p: Primitive = primitive(
    "bitcast", Kind.MOVE, _bitcast_spec, axes=_bitcast_axes
)


# The bits of numbers with the same size: another primitive, because it is elementwise.
reinterpret_p: Primitive = primitive(
    "reinterpret",
    Kind.ELEMENTWISE,
    lambda x, dtype: x.with_dtype(dtype),
    scalar=lambda s, x, dtype: s.reinterpret(x, dtype),
    axes="...->...",
)
# Booleans and complex numbers have other representations in generated code.
_REINTERPRETED = {*dtypes.INTEGERS, *dtypes.FLOATS}


bitwise_not_p: Primitive = elementwise("bitwise_not", lambda s, x: s.bitwise_not(x))
bitwise_and_p: Primitive = elementwise(
    "bitwise_and", lambda s, a, b: s.bitwise_and(a, b)
)
bitwise_or_p: Primitive = elementwise("bitwise_or", lambda s, a, b: s.bitwise_or(a, b))
bitwise_xor_p: Primitive = elementwise(
    "bitwise_xor", lambda s, a, b: s.bitwise_xor(a, b)
)
left_shift_p: Primitive = elementwise("left_shift", lambda s, a, b: s.left_shift(a, b))
right_shift_p: Primitive = elementwise(
    "right_shift", lambda s, a, b: s.right_shift(a, b)
)


def _bitwise(record: Primitive, x: TensorLike, y: TensorLike) -> Tensor:
    """Apply a bitwise primitive to two integers of their common dtype."""
    (x, y), dtype = operands(x, y)
    check_integers(record.name, dtype if dtype != "bool" else "int32")
    if dtype == "bool" and "shift" in record.name:
        x, y = convert(x, "int32"), convert(y, "int32")
    return bind(record, x, y)


@operation
def bitwise_not(x: TensorLike) -> Tensor:
    """Invert all bits of integers, elementwise.

    Args:
        x: integers or booleans of any shape.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.bitwise_not([0, 1, -1]))
        [-1 -2  0]
    """
    return bind(bitwise_not_p, convert(x))


bitwise_invert = bitwise_not


@operation
def bitwise_and(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute the bitwise and of two integers, elementwise.

    Args:
        x: integers or booleans of any shape.
        y: integers or booleans; the shape broadcasts with the shape of `x`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.bitwise_and([12, 10], 6))
        [4 2]
    """
    return _bitwise(bitwise_and_p, x, y)


@operation
def bitwise_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute the bitwise or of two integers, elementwise.

    Args:
        x: integers or booleans of any shape.
        y: integers or booleans; the shape broadcasts with the shape of `x`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.bitwise_or([12, 10], 6))
        [14 14]
    """
    return _bitwise(bitwise_or_p, x, y)


@operation
def bitwise_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute the bitwise exclusive or of two integers, elementwise.

    Args:
        x: integers or booleans of any shape.
        y: integers or booleans; the shape broadcasts with the shape of `x`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.bitwise_xor([12, 10], 6))
        [10 12]
    """
    return _bitwise(bitwise_xor_p, x, y)


@operation
def left_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """Shift the bits of integers to the left: x * 2 ** y, elementwise.

    Args:
        x: integers of any shape.
        y: the number of bits, >= 0; the shape broadcasts with the shape of `x`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.
        Booleans give int32.

    Example:
        >>> from toolkit import ops
        >>> print(ops.left_shift([1, 3], 2))
        [ 4 12]
    """
    return _bitwise(left_shift_p, x, y)


@operation
def right_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """Shift the bits of integers to the right: floor(x / 2 ** y), elementwise.

    Args:
        x: integers of any shape.
        y: the number of bits, >= 0; the shape broadcasts with the shape of `x`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.
        Booleans give int32.

    Example:
        >>> from toolkit import ops
        >>> print(ops.right_shift([8, 13], 2))
        [2 3]
    """
    return _bitwise(right_shift_p, x, y)


bitwise_left_shift = left_shift
bitwise_right_shift = right_shift


@operation
def view(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Interpret the bits of a tensor as another dtype; no gradient flows through it.

    Args:
        x: (..., n), numbers.
        dtype: the dtype of the result. None means the dtype of `x`.

    Returns:
        A tensor of the dtype. If the sizes of the elements differ, the extent of the
        last axis changes by their ratio.

    Example:
        >>> from toolkit import ops
        >>> ops.view(ops.array([1.0, -2.0]), "int32").tolist()
        [1065353216, -1073741824]
    """
    x = convert(x)
    name = x.dtype if dtype is None else dtypes.standardize(dtype)
    if name == x.dtype:
        return x
    has_same_size = dtypes.itemsize(name) == dtypes.itemsize(x.dtype)
    is_scalar = has_same_size and _REINTERPRETED.issuperset((name, x.dtype))
    return bind(reinterpret_p if is_scalar else bitcast_p, x, dtype=name)


@operation
def nextafter(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the next number of the dtype after x1 in the direction of x2.

    Args:
        x1: the first operand, of any shape.
        x2: the direction; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common floating dtype of both
        operands.

    Example:
        >>> from toolkit import ops
        >>> float(ops.nextafter(1.0, 2.0)) - 1 == 2**-23
        True
    """
    x1, x2 = floating(*tensors(x1, x2))
    integers = f"int{8 * dtypes.itemsize(x1.dtype)}"
    # Numbers with the same sign are ordered like their bits, away from zero.
    outwards = equal(less(x1, x2), less(0, x1))
    step = convert(where(outwards, 1, -1), integers)
    moved = view(view(x1, integers) + step, x1.dtype)
    smallest = view(convert(1, integers), x1.dtype) * sign(x2)
    y = where(equal(x1, 0), smallest, moved)
    y = where(equal(x1, x2), x2, y)
    return where(logical_or(isnan(x1), isnan(x2)), x1 + x2, y)
