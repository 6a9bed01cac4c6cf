"""Elementwise functions composed of primitives: rounding, logic, and more of NumPy."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert, operands, weak_type
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import DTypeError
from toolkit.ir import Primitive
from toolkit.ops.elementwise import (
    Binary,
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
    published,
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
    """Compute floor(x1 / x2), elementwise."""
    tensors, dtype = operands(x1, x2)
    return bind(floor_divide_p, *(convert(x, _not_bool(dtype)) for x in tensors))


@operation
def mod(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Compute the remainder of x1 / x2, elementwise, with the sign of x2."""
    tensors, dtype = operands(x1, x2)
    return bind(remainder_p, *(convert(x, _not_bool(dtype)) for x in tensors))


remainder = mod


@operation
def negative(x: TensorLike) -> Tensor:
    """Compute -x, elementwise."""
    x = convert(x)
    if x.dtype == "bool":
        raise DTypeError("negative: expected numbers; received bool")
    return bind(negative_p, x)


@operation
def absolute(x: TensorLike) -> Tensor:
    """Compute the absolute value, elementwise."""
    x = convert(x)
    return x if x.dtype == "bool" else bind(abs_p, x)


abs = absolute


@operation
def round(x: TensorLike, decimals: int = 0) -> Tensor:
    """Round x to `decimals` decimals, half to even."""
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
    """Round x towards zero, elementwise."""
    x = convert(x)
    return bind(trunc_p, x) if dtypes.is_float(x.dtype) else x


def _logical(record: Primitive, doc: str) -> Binary:
    def function(x1: TensorLike, x2: TensorLike) -> Tensor:
        return bind(record, convert(x1, "bool"), convert(x2, "bool"))

    return published(function, record.name, doc)


logical_and: Binary = _logical(
    logical_and_p, "Return whether both are true, elementwise."
)
logical_or: Binary = _logical(
    logical_or_p, "Return whether at least one is true, elementwise."
)
logical_xor: Binary = _logical(
    logical_xor_p, "Return whether exactly one is true, elementwise."
)


@operation
def logical_not(x: TensorLike) -> Tensor:
    """Return whether x is false, elementwise."""
    return bind(logical_not_p, convert(x, "bool"))


@operation
def cast(x: Any, dtype: Any) -> Tensor:
    """Convert x to another dtype; floats are truncated to integers."""
    return convert(x, dtypes.standardize(dtype))


@operation
def saturate_cast(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """Convert x to another dtype; values are clipped to its range."""
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
    """Return the same value; no gradient flows through it."""
    return bind(stop_gradient_p, convert(variable))


@operation
def square(x: TensorLike) -> Tensor:
    """Compute x * x, elementwise."""
    x = convert(x)
    x = convert(x, "int32") if x.dtype == "bool" else x
    return x * x


@operation
def reciprocal(x: TensorLike) -> Tensor:
    """Compute 1 / x, elementwise."""
    return divide(1.0, x)


@operation
def clip(x: TensorLike, x_min: Any, x_max: Any) -> Tensor:
    """Limit x to [x_min, x_max]; either may be None.

    The result has the dtype of x; integers become floats if a bound is a float.

    Example:
        >>> import toolkit
        >>> toolkit.ops.clip(toolkit.ops.array([-3, 0, 3]), -0.5, 2).tolist()
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
