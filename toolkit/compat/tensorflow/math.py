"""`tf.math`: arithmetic, comparisons and reductions."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow import special as special
from toolkit.compat.tensorflow.arguments import axes as _axes, dtype_name
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.counting import (
    bincount as bincount,
    confusion_matrix as confusion_matrix,
)
from toolkit.compat.tensorflow.largest import (
    TopK as TopK,
    approx_max_k as approx_max_k,
    approx_min_k as approx_min_k,
    top_k as top_k,
)
from toolkit.compat.tensorflow.minmax import (
    clip_by_value as clip_by_value,
    maximum as maximum,
    minimum as minimum,
)
from toolkit.compat.tensorflow.operators import (
    check_divisor,
    divide_as_floats,
    match_dtypes,
)
from toolkit.compat.tensorflow.parameter_names import rename_functions
from toolkit.compat.tensorflow.reductions import (
    reduce_all as reduce_all,
    reduce_any as reduce_any,
    reduce_euclidean_norm as reduce_euclidean_norm,
    reduce_logsumexp as reduce_logsumexp,
    reduce_max as reduce_max,
    reduce_mean as reduce_mean,
    reduce_min as reduce_min,
    reduce_prod as reduce_prod,
    reduce_std as reduce_std,
    reduce_sum as reduce_sum,
    reduce_variance as reduce_variance,
)
from toolkit.compat.tensorflow.segments import (
    segment_max as segment_max,
    segment_mean as segment_mean,
    segment_min as segment_min,
    segment_prod as segment_prod,
    segment_sum as segment_sum,
    unsorted_segment_max as unsorted_segment_max,
    unsorted_segment_mean as unsorted_segment_mean,
    unsorted_segment_min as unsorted_segment_min,
    unsorted_segment_prod as unsorted_segment_prod,
    unsorted_segment_sqrt_n as unsorted_segment_sqrt_n,
    unsorted_segment_sum as unsorted_segment_sum,
)
from toolkit.compat.tensorflow.type_aliases import AxisLike, ShapeLike
from toolkit.core.convert import convert
from toolkit.core.dialects import dtype_of
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import Axis, DTypeLike, TensorLike

_UNARY = {
    "abs": ops.absolute,
    "acos": ops.arccos,
    "acosh": ops.arccosh,
    "asin": ops.arcsin,
    "asinh": ops.arcsinh,
    "atan": ops.arctan,
    "atanh": ops.arctanh,
    "ceil": ops.ceil,
    "conj": ops.conj,
    "cos": ops.cos,
    "cosh": ops.cosh,
    "erf": ops.erf,
    "erfc": ops.erfc,
    "erfinv": ops.erfinv,
    "exp": ops.exp,
    "expm1": ops.expm1,
    "floor": ops.floor,
    "is_finite": ops.isfinite,
    "is_inf": ops.isinf,
    "is_nan": ops.isnan,
    "log": ops.log,
    "log1p": ops.log1p,
    "log_sigmoid": ops.log_sigmoid,
    "logical_not": ops.logical_not,
    "negative": ops.negative,
    "reciprocal": ops.reciprocal,
    "rint": ops.round,
    "round": ops.round,
    "rsqrt": ops.rsqrt,
    "sigmoid": ops.sigmoid,
    "sign": ops.sign,
    "sin": ops.sin,
    "sinh": ops.sinh,
    "sqrt": ops.sqrt,
    "square": ops.square,
    "tan": ops.tan,
    "tanh": ops.tanh,
}
_BINARY = {
    "add": ops.add,
    "divide_no_nan": ops.divide_no_nan,
    "equal": ops.equal,
    "greater": ops.greater,
    "greater_equal": ops.greater_equal,
    "less": ops.less,
    "less_equal": ops.less_equal,
    "logical_and": ops.logical_and,
    "logical_or": ops.logical_or,
    "logical_xor": ops.logical_xor,
    "multiply": ops.multiply,
    "not_equal": ops.not_equal,
    "pow": ops.power,
    "subtract": ops.subtract,
}
globals().update(
    rename_functions(
        {
            **{name: (function, "x") for name, function in _UNARY.items()},
            **{name: (function, "x y") for name, function in _BINARY.items()},
            "angle": (ops.angle, "input"),
            "atan2": (ops.arctan2, "y x"),
            "imag": (ops.imag, "input"),
            "in_top_k": (ops.in_top_k, "targets predictions k"),
            "nextafter": (ops.nextafter, "x1 x2"),
            "real": (ops.real, "input"),
            "softplus": (ops.softplus, "features"),
            "softsign": (ops.softsign, "features"),
        }
    )
)

globals().update({name: getattr(special, name) for name in special.OF_MATH})


# --- arithmetic -----------------------------------------------------------------------


def divide(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return x / y; the quotient of integers is float64, of small ones float32."""
    return divide_as_floats(*match_dtypes("divide", (x, y)))


truediv = divide


def floordiv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return x / y, rounded down.

    Raises:
        ArgumentError: an integer is divided by a concrete zero; not in a trace.
    """
    check_divisor("floordiv", x, y)
    return ops.floor_divide(x, y)


def floormod(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return x - floordiv(x, y) * y.

    Raises:
        ArgumentError: an integer is divided by a concrete zero; not in a trace.
    """
    check_divisor("floormod", x, y)
    return ops.mod(x, y)


mod = floormod


def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """Return the sum of tensors of one shape."""
    tensors = [convert(x) for x in inputs]
    shapes = {tuple(x.shape) for x in tensors}
    if len(shapes) != 1:
        raise ShapeError(
            "add_n: expected tensors of one shape; received "
            + (", ".join(map(str, sorted(shapes))) or "none")
        )
    return reduce(ops.add, tensors)


def accumulate_n(
    inputs: TensorLike,
    shape: ShapeLike | None = None,
    tensor_dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Return the sum of tensors of one shape, see `add_n`.

    `shape` and `tensor_dtype` have no effect: the tensors have both.
    """
    return add_n(inputs)


def scalar_mul(scalar: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """Multiply x by a number."""
    return ops.multiply(scalar, x)


def squared_difference(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return (x - y) ** 2."""
    return ops.square(ops.subtract(x, y))


def multiply_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return x * y, and 0 where y is 0."""
    product = ops.multiply(x, y)
    return ops.where(ops.equal(y, 0), ops.zeros_like(product), product)


def xlogy(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return x * log(y), and 0 where x is 0."""
    is_zero = ops.equal(x, 0)
    return ops.multiply(x, ops.log(ops.where(is_zero, ops.ones_like(y), y)))


def reciprocal_no_nan(x: TensorLike, name: str | None = None) -> Tensor:
    """Return 1 / x, and 0 where x is 0."""
    return ops.divide_no_nan(ops.ones_like(x), x)


def xdivy(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return x / y, and 0 where x is 0."""
    is_zero = ops.equal(x, 0)
    return ops.divide(x, ops.where(is_zero, ops.ones_like(y), y))


def xlog1py(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Return x * log(1 + y), and 0 where x is 0."""
    is_zero = ops.equal(x, 0)
    return ops.multiply(x, ops.log1p(ops.where(is_zero, ops.zeros_like(y), y)))


def is_non_decreasing(x: TensorLike, name: str | None = None) -> Tensor:
    """Return whether no element is less than its predecessor."""
    x = ops.reshape(x, (-1,))
    return ops.all(x[1:] >= x[:-1])


def is_strictly_increasing(x: TensorLike, name: str | None = None) -> Tensor:
    """Return whether each element is greater than its predecessor."""
    x = ops.reshape(x, (-1,))
    return ops.all(x[1:] > x[:-1])


def polyval(coeffs: Any, x: Any, name: str | None = None) -> Tensor:
    """Evaluate a polynomial at x; the coefficient of the highest power is first."""
    x = convert(x)
    return reduce(lambda y, c: y * x + c, coeffs, ops.zeros_like(x))


# --- indices and running totals
# ---------------------------------------------------------


def argmax(
    input: Any,
    axis: int | None = None,
    output_type: Any = "int64",
    name: str | None = None,
) -> Tensor:
    """Return the first index of the largest element along an axis, 0 by default."""
    return ops.cast(ops.argmax(input, int(axis or 0)), dtype_name(output_type))


def argmin(
    input: Any,
    axis: int | None = None,
    output_type: Any = "int64",
    name: str | None = None,
) -> Tensor:
    """Return the first index of the smallest element along an axis, 0 by default."""
    return ops.cast(ops.argmin(input, int(axis or 0)), dtype_name(output_type))


def count_nonzero(
    input: TensorLike,
    axis: AxisLike | None = None,
    keepdims: bool | None = None,
    dtype: DTypeLike = "int64",
    name: str | None = None,
) -> Tensor:
    """Count the nonzero elements along axes."""
    x = ops.cast(ops.not_equal(input, 0), dtype_name(dtype))
    return reduce_sum(x, axis, keepdims)


def _cumulative(function: Any, start: Any, function_name: str) -> Any:
    def cumulate(
        x: Any,
        axis: int = 0,
        exclusive: bool = False,
        reverse: bool = False,
        name: str | None = None,
    ) -> Tensor:
        x, axis = convert(x), int(axis)
        if reverse:
            return ops.flip(cumulate(ops.flip(x, axis), axis, exclusive), axis)
        if exclusive and x.shape[axis]:
            leading = ops.take(x, np.arange(x.shape[axis] - 1), axis)
            first = start(ops.take(x, np.arange(1), axis))
            x = ops.concatenate([first, leading], axis)
        return convert(function(x, axis), dtype_of(x))

    cumulate.__name__ = cumulate.__qualname__ = function_name
    cumulate.__doc__ = f"The {function_name} along an axis; exclusive: of those before."
    return cumulate


cumsum: Any = _cumulative(ops.cumsum, ops.zeros_like, "cumsum")
cumprod: Any = _cumulative(ops.cumprod, ops.ones_like, "cumprod")


def cumulative_logsumexp(
    x: Any,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return log(cumsum(exp(x))) along an axis; an exclusive sum starts with -inf.

    The result is also -inf if exp(x - max(x)) underflows to 0.
    """
    x = convert(x)
    peak = ops.stop_gradient(ops.max(x, int(axis), True))
    total = cumsum(ops.exp(x - peak), axis, exclusive, reverse)
    return ops.log(total) + peak


def invert_permutation(x: TensorLike, name: str | None = None) -> Tensor:
    """Invert a permutation: y[x[i]] = i.

    Raises:
        ArgumentError: concrete values are not a permutation.
    """
    x = convert(x)
    values = x.constant
    if values is not None and sorted(values.tolist()) != list(np.arange(values.size)):
        raise ArgumentError(
            "invert_permutation: expected each of 0, 1, ..., n - 1 exactly once; "
            f"received {values.tolist()}"
        )
    return ops.cast(ops.argsort(x), x.dtype)


# --- clipping -------------------------------------------------------------------------


def clip_by_norm(
    t: TensorLike,
    clip_norm: TensorLike,
    axes: AxisLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Scale t so that its Euclidean norm is at most clip_norm."""
    total = ops.sum(ops.square(t), _axes(axes), True)
    is_zero = ops.equal(total, 0)  # the square root has no derivative at 0
    root = ops.sqrt(ops.where(is_zero, ops.ones_like(total), total))
    norm = ops.where(is_zero, total, root)
    return ops.multiply(t, clip_norm) / maximum(norm, clip_norm)


def global_norm(t_list: Any, name: str | None = None) -> Tensor:
    """Return the Euclidean norm of all tensors together; None is skipped."""
    squares = [ops.sum(ops.square(t)) for t in t_list if t is not None]
    if not squares:
        raise ArgumentError("global_norm: expected at least one tensor; received none")
    return ops.sqrt(add_n(squares))


def clip_by_global_norm(
    t_list: Any, clip_norm: TensorLike, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Tensor]:
    """Scale tensors so that their common norm is at most clip_norm; return also it."""
    norm = global_norm(t_list) if use_norm is None else convert(use_norm)
    scale = clip_norm / ops.maximum(norm, clip_norm)
    return [t if t is None else ops.multiply(t, scale) for t in t_list], norm


def l2_normalize(
    x: TensorLike,
    axis: AxisLike | None = None,
    epsilon: float = 1e-12,
    name: str | None = None,
) -> Tensor:
    """Divide x by its Euclidean norm along axes."""
    total = ops.sum(ops.square(x), _axes(axis), keepdims=True)
    return ops.multiply(x, ops.rsqrt(ops.maximum(total, epsilon)))


def softmax(logits: Any, axis: Axis | None = None, name: str | None = None) -> Tensor:
    """Return exp(logits), divided by the sum along an axis, the last by default."""
    return ops.softmax(logits, -1 if axis is None else axis)


def log_softmax(
    logits: TensorLike, axis: Axis | None = None, name: str | None = None
) -> Tensor:
    """Return the logarithm of `softmax`."""
    return ops.log_softmax(logits, -1 if axis is None else axis)


def zero_fraction(value: TensorLike, name: str | None = None) -> Tensor:
    """Return the fraction of zeros."""
    return ops.mean(ops.cast(ops.equal(value, 0), "float32"))


make_operations(__name__)
