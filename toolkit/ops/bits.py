"""Bits of numbers: bitwise operations, reinterpretation by `view`, next number."""

from __future__ import annotations

from typing import Protocol

from toolkit import dtypes
from toolkit.core.convert import convert, floating, operands, tensors
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ShapeError
from toolkit.ir import Kind, Primitive, Spec, primitive
from toolkit.ops.checks import check_integers
from toolkit.ops.elementwise import (
    bitwise_and_p,
    bitwise_or_p,
    bitwise_xor_p,
    equal,
    isnan,
    left_shift_p,
    less,
    published,
    right_shift_p,
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


class Bitwise(Protocol):
    """A public function of two integers."""

    def __call__(self, x: TensorLike, y: TensorLike) -> Tensor: ...


def _bitwise(record: Primitive, doc: str) -> Bitwise:
    """Return the public function of a bitwise primitive on two integers."""

    def function(x: TensorLike, y: TensorLike) -> Tensor:
        (x, y), dtype = operands(x, y)
        check_integers(record.name, dtype if dtype != "bool" else "int32")
        if dtype == "bool" and "shift" in record.name:
            x, y = convert(x, "int32"), convert(y, "int32")
        return bind(record, x, y)

    return published(function, record.name, doc)


bitwise_and: Bitwise = _bitwise(bitwise_and_p, "Bitwise and, elementwise.")
bitwise_or: Bitwise = _bitwise(bitwise_or_p, "Bitwise or, elementwise.")
bitwise_xor: Bitwise = _bitwise(bitwise_xor_p, "Bitwise exclusive or, elementwise.")
left_shift: Bitwise = _bitwise(
    left_shift_p, "Bits of x shifted left by y, elementwise."
)
right_shift: Bitwise = _bitwise(
    right_shift_p, "Bits of x shifted right by y, elementwise."
)
bitwise_left_shift: Bitwise = left_shift
bitwise_right_shift: Bitwise = right_shift


@operation
def view(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Reinterpret the bits of x as another dtype; no gradient flows through it.

    Args:
        x: (..., n).
        dtype: dtype of the result; None: the dtype of x. If the element size changes,
            the extent of the last axis changes accordingly.

    Example:
        >>> import toolkit
        >>> toolkit.ops.view(toolkit.ops.array([1.0, -2.0]), "int32").tolist()
        [1065353216, -1073741824]
    """
    x = convert(x)
    name = x.dtype if dtype is None else dtypes.standardize(dtype)
    return x if name == x.dtype else bind(bitcast_p, x, dtype=name)


@operation
def nextafter(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the next representable number after x1, in the direction of x2."""
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
