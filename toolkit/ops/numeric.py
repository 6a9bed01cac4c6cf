"""Elementwise functions composed of primitives: rounding, logic, and more of NumPy."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert, operands, weak_type
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import DTypeError
from toolkit.ops.elementwise import (
    abs_p,
    divide,
    floor_divide_p,
    greater_equal,
    isnan,
    less_equal,
    logical_and_p,
    logical_not_p,
    logical_or_p,
    logical_xor_p,
    maximum,
    minimum,
    negative_p,
    remainder_p,
    round_p,
    stop_gradient_p,
    trunc_p,
    where,
    zero_like,
)
from toolkit.ops.symbolic import operation
from toolkit.type_aliases import DTypeLike, TensorLike


def _not_bool(dtype: str) -> str:
    return "int32" if dtype == "bool" else dtype


@operation
def floor_divide(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute floor(x1 / x2), elementwise.

    Args:
        x1: the dividend, of any shape.
        x2: the divisor; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.
        Booleans give int32.

    Example:
        >>> from toolkit import ops
        >>> print(ops.floor_divide([7, -7], 2))
        [ 3 -4]
    """
    tensors, dtype = operands(x1, x2)
    return bind(floor_divide_p, *(convert(x, _not_bool(dtype)) for x in tensors))


@operation
def mod(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the remainder x1 - floor(x1 / x2) * x2, elementwise.

    The remainder has the sign of `x2`; see `fmod` for the sign of `x1`.

    Args:
        x1: the dividend, of any shape.
        x2: the divisor; its shape broadcasts with the shape of `x1`.

    Returns:
        A tensor with the broadcast shape and the common dtype of both operands.
        Booleans give int32.

    Example:
        >>> from toolkit import ops
        >>> print(ops.mod([7, -7], 3))
        [1 2]
    """
    tensors, dtype = operands(x1, x2)
    return bind(remainder_p, *(convert(x, _not_bool(dtype)) for x in tensors))


remainder = mod


@operation
def negative(x: TensorLike) -> Tensor:
    """Compute -x, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A tensor with the shape and dtype of `x`.

    Raises:
        DTypeError: `x` has the dtype bool.

    Example:
        >>> from toolkit import ops
        >>> print(ops.negative([1.0, -2.0]))
        [-1.  2.]
    """
    x = convert(x)
    if x.dtype == "bool":
        raise DTypeError("negative: expected numbers; received bool")
    return bind(negative_p, x)


@operation
def absolute(x: TensorLike) -> Tensor:
    """Compute the absolute value of numbers, elementwise.

    Args:
        x: real or complex numbers of any shape.

    Returns:
        A tensor with the shape of `x`. It has the dtype of `x`; complex64 gives
        float32, and complex128 gives float64.

    Example:
        >>> from toolkit import ops
        >>> print(ops.absolute([-3.0, 0.5]))
        [3.  0.5]
    """
    x = convert(x)
    return x if x.dtype == "bool" else bind(abs_p, x)


abs = absolute


@operation
def round(x: TensorLike, decimals: int = 0) -> Tensor:
    """Round numbers to a number of decimals, elementwise; halves go to the even digit.

    Args:
        x: numbers of any shape.
        decimals: the number of digits after the point. A negative number rounds to
            tens, hundreds and so on. The default 0 rounds to integers.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round([0.5, 1.5, -1.7]))
        [ 0.  2. -2.]
        >>> print(ops.round([123.456], decimals=1))
        [123.5]
    """
    x = convert(x)
    if not dtypes.is_float(x.dtype) and decimals >= 0:
        return x
    if decimals == 0:
        return bind(round_p, convert(x, dtypes.float_type(x.dtype)))
    scale = 10.0**decimals
    rounded = bind(round_p, convert(x, dtypes.float_type(x.dtype)) * scale) / scale
    return convert(rounded, x.dtype)


@operation
def trunc(x: TensorLike) -> Tensor:
    """Remove the fraction of numbers: round towards zero, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A tensor with the shape and dtype of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.trunc([1.7, -1.7]))
        [ 1. -1.]
    """
    x = convert(x)
    return bind(trunc_p, x) if dtypes.is_float(x.dtype) else x


@operation
def logical_and(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether two values are both true, elementwise.

    Args:
        x1: the first operand, of any shape. Every number except 0 is true.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.logical_and([True, True, False], [True, False, False]))
        [ True False False]
    """
    return bind(logical_and_p, convert(x1, "bool"), convert(x2, "bool"))


@operation
def logical_or(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether at least one of two values is true, elementwise.

    Args:
        x1: the first operand, of any shape. Every number except 0 is true.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.logical_or([True, True, False], [True, False, False]))
        [ True  True False]
    """
    return bind(logical_or_p, convert(x1, "bool"), convert(x2, "bool"))


@operation
def logical_xor(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether exactly one of two values is true, elementwise.

    Args:
        x1: the first operand, of any shape. Every number except 0 is true.
        x2: the second operand; its shape broadcasts with the shape of `x1`.

    Returns:
        A boolean tensor with the broadcast shape of both operands.

    Example:
        >>> from toolkit import ops
        >>> print(ops.logical_xor([True, True, False], [True, False, False]))
        [False  True False]
    """
    return bind(logical_xor_p, convert(x1, "bool"), convert(x2, "bool"))


@operation
def logical_not(x: TensorLike) -> Tensor:
    """Return whether x is false, elementwise.

    Args:
        x: tensor of any shape; every number except 0 is true.

    Returns:
        A boolean tensor with the shape of `x`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.logical_not([True, False]))
        [False  True]
    """
    return bind(logical_not_p, convert(x, "bool"))


@operation
def cast(x: Any, dtype: Any) -> Tensor:
    """Convert a tensor to another dtype.

    Args:
        x: tensor of any shape.
        dtype: the dtype of the result, such as "float16" or "int32". A conversion of
            floats to integers removes the fraction.

    Returns:
        A tensor with the shape of `x` and the dtype `dtype`.

    Example:
        >>> from toolkit import ops
        >>> print(ops.cast([1.7, -1.7], "int32"))
        [ 1 -1]
    """
    return convert(x, dtypes.standardize(dtype))


@operation
def saturate_cast(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """Convert a tensor to another dtype; limit values to the range of the dtype.

    Args:
        x: tensor of any shape.
        dtype: the dtype of the result, such as "uint8".

    Returns:
        A tensor with the shape of `x` and the dtype `dtype`. NaN gives 0 in an integer
        dtype.

    Example:
        >>> from toolkit import ops
        >>> print(ops.saturate_cast([-5.0, 100.0, 300.0], "uint8"))
        [  0 100 255]
    """
    x, dtype = convert(x), dtypes.standardize(dtype)
    if dtype == "bool" or x.dtype == "bool":
        return convert(x, dtype)
    if dtypes.is_float(dtype):
        limit = dtypes.largest(dtype)
        if not dtypes.is_float(x.dtype) or limit >= dtypes.largest(x.dtype):
            return convert(x, dtype)
        return convert(clip(x, -limit, limit), dtype)
    low, high = dtypes.lowest(dtype), dtypes.highest(dtype)
    if dtypes.is_integer(x.dtype):
        low = builtins.max(low, dtypes.lowest(x.dtype))
        high = builtins.min(high, dtypes.highest(x.dtype))
        return convert(clip(x, low, high), dtype)
    # The float dtype may not have `high`, so it is inserted after the cast.
    above, below = greater_equal(x, float(high)), less_equal(x, float(low))
    in_range = where(logical_or(logical_or(above, below), isnan(x)), zero_like(x), x)
    y = where(above, convert(high, dtype), convert(in_range, dtype))
    return where(below, convert(low, dtype), y)


@operation
def stop_gradient(variable: Any) -> Tensor:
    """Return the same values; no gradient flows through the result.

    Args:
        variable: tensor of any shape.

    Returns:
        A tensor with the shape and dtype of `variable`.

    Example:
        >>> from toolkit import ops
        >>> import toolkit
        >>> x = toolkit.Variable(3.0)
        >>> with toolkit.GradientTape() as tape:
        ...     y = x * ops.stop_gradient(x)
        >>> float(tape.gradient(y, x))
        3.0
    """
    return bind(stop_gradient_p, convert(variable))


@operation
def square(x: TensorLike) -> Tensor:
    """Compute x * x, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A tensor with the shape and dtype of `x`. Booleans give int32.

    Example:
        >>> from toolkit import ops
        >>> print(ops.square([3, -4]))
        [ 9 16]
    """
    x = convert(x)
    x = convert(x, "int32") if x.dtype == "bool" else x
    return x * x


@operation
def reciprocal(x: TensorLike) -> Tensor:
    """Compute 1 / x, elementwise.

    Args:
        x: numbers of any shape.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.reciprocal([2.0, -4.0]))
        [ 0.5  -0.25]
    """
    return divide(1.0, x)


@operation
def clip(x: TensorLike, x_min: Any, x_max: Any) -> Tensor:
    """Limit numbers to the interval [x_min, x_max], elementwise.

    Args:
        x: numbers of any shape.
        x_min: the lower bound, which broadcasts with `x`. None means that there is no
            lower bound.
        x_max: the upper bound, which broadcasts with `x`. None means that there is no
            upper bound.

    Returns:
        A tensor with the shape and dtype of `x`. Integers become floats if a bound is a
        float.

    Example:
        >>> from toolkit import ops
        >>> print(ops.clip([-3, 0, 3], -1, 2))
        [-1  0  2]
        >>> ops.clip(ops.array([-3, 0, 3]), -0.5, 2).tolist()
        [-0.5, 0.0, 2.0]
    """
    x = convert(x)
    dtype = _not_bool(x.dtype)
    bounds = [weak_type(bound) for bound in (x_min, x_max) if bound is not None]
    wider = dtypes.result_type(dtype, *bounds)
    if dtype in dtypes.INTEGERS and wider in dtypes.FLOATS:
        dtype = wider
    x = convert(x, dtype)
    if x_min is not None:
        x = maximum(x, _bound(x_min, dtype))
    return x if x_max is None else minimum(x, _bound(x_max, dtype))


def _bound(bound: Any, dtype: str) -> Tensor:
    """Convert a bound to a dtype: the nearest valid number, without wraparound."""
    if dtype not in dtypes.INTEGERS:
        return convert(bound, dtype)
    limits = np.iinfo(dtype)
    if isinstance(bound, (int, np.integer)):
        return convert(min(max(int(bound), limits.min), limits.max), dtype)
    bound = convert(bound)
    if bound.dtype not in dtypes.INTEGERS:
        return convert(bound, dtype)
    bound_limits = np.iinfo(bound.dtype)
    bound = maximum(bound, convert(max(limits.min, bound_limits.min), bound.dtype))
    return convert(
        minimum(bound, convert(min(limits.max, bound_limits.max), bound.dtype)), dtype
    )
