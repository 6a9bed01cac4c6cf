"""Reductions over axes: primitives, and their public functions."""

from __future__ import annotations

from typing import Any

from toolkit import dtypes
from toolkit.core.convert import convert, extent, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.errors import ShapeError
from toolkit.ir import Kind, Primitive, Spec, letters, primitive, rule_along_axis
from toolkit.ir.extents import Extent
from toolkit.ops.associative import associative_scan
from toolkit.ops.checks import is_empty, normalize_axes, normalize_axis, reduced_shape
from toolkit.ops.creation import full
from toolkit.ops.elementwise import equal, isfinite, maximum, minimum, where, zero_like
from toolkit.ops.numeric import square, stop_gradient
from toolkit.ops.shape import broadcast_to, concatenate, reshape, slice_axis, transpose
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import exp, log, sqrt

Axes = tuple[int, ...]


def _expand_reduced(g: Tensor, x: Tensor, axis: Axes) -> Tensor:
    """Broadcast the gradient of a reduction back over the reduced axes."""
    return broadcast_to(reshape(g, reduced_shape(x.shape, axis, True)), x.shape)


def _extremum_vjp(
    g: Tensor, y: Tensor, x: Tensor, axis: Axes, keepdims: bool
) -> Tensor:
    """Return the gradient of the extrema; elements that tie share it equally."""
    shape = reduced_shape(x.shape, axis, True)
    wins = convert(equal(x, reshape(y, shape)), x.dtype)
    ties = sum(wins, axis=axis, keepdims=True)
    return wins * (reshape(g, shape) / ties)


def _prod_vjp(g: Tensor, y: Tensor, x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    """Return the product of all other factors: before times after; exact at zeros."""
    if x.size == 0:
        return x
    if not axis:
        return g
    # Adjacent axes become one axis. Other axes are moved behind the remaining axes.
    order = tuple(range(x.ndim))
    first, last = axis[0], axis[-1]
    if axis != order[first : last + 1]:
        order = (*(i for i in order if i not in axis), *axis)
        first, last = x.ndim - len(axis), x.ndim - 1
    moved = transpose(x, order)
    shape = (*moved.shape[:first], -1, *moved.shape[last + 1 :])
    factors = reshape(moved, shape)
    n = factors.shape[first]
    one = full(reduced_shape(factors.shape, (first,), True), 1, x.dtype)
    before = slice_axis(factors, first, 0, n - 1)
    before = bind(cumprod_p, before, axis=first, reverse=False)
    after = slice_axis(factors, first, 1, n)
    after = bind(cumprod_p, after, axis=first, reverse=True)
    before, after = concatenate([one, before], first), concatenate([after, one], first)
    product_of_others = reshape(before * after, moved.shape)
    inverse = tuple(order.index(i) for i in range(x.ndim))
    return _expand_reduced(g, x, axis) * transpose(product_of_others, inverse)


def reduction(name: str, vjp: Any = None) -> Primitive:
    """Declare a reduction with attributes `axis` and `keepdims`."""

    def spec(x: Spec, axis: Axes, keepdims: bool) -> Spec:
        if name in ("max", "min") and is_empty(x.shape, axis):
            raise ShapeError(
                f"{name}: no elements along axis {axis} of shape {x.shape}"
            )
        return x.with_shape(reduced_shape(x.shape, axis, keepdims))

    combined = {"any": "max", "all": "min"}.get(name, name)
    return primitive(
        name, Kind.REDUCE, spec, vjp=vjp, axes=_reduced_axes, combined=combined
    )


def _reduced_axes(x: Spec, axis: Axes, keepdims: bool) -> str:
    axes = letters(x.ndim)
    remaining = (
        ("_" if i in axis else letter)
        for i, letter in enumerate(axes)
        if keepdims or i not in axis
    )
    return f"{axes}->{''.join(remaining)}"


def _arg_axes(x: Spec, axis: int, keepdims: bool) -> str:
    text, _, reduced = rule_along_axis(x, axis).partition("->")
    return f"{text}->{reduced if keepdims else reduced.replace('_', '')}"


sum_p: Primitive = reduction(
    "sum", lambda g, y, x, axis, keepdims: _expand_reduced(g, x, axis)
)
prod_p: Primitive = reduction("prod", _prod_vjp)
max_p: Primitive = reduction("max", _extremum_vjp)
min_p: Primitive = reduction("min", _extremum_vjp)
any_p: Primitive = reduction("any")
all_p: Primitive = reduction("all")


def _arg_spec(x: Spec, axis: int, keepdims: bool) -> Spec:
    if x.shape[axis] == 0:
        raise ShapeError(f"argmax: no elements along axis {axis} of shape {x.shape}")
    return Spec(reduced_shape(x.shape, (axis,), keepdims), "int32")


argmax_p: Primitive = primitive("argmax", Kind.REDUCE, _arg_spec, axes=_arg_axes)
argmin_p: Primitive = primitive("argmin", Kind.REDUCE, _arg_spec, axes=_arg_axes)


def _cumprod_vjp(g: Tensor, y: Tensor, x: Tensor, axis: int, reverse: bool) -> Tensor:
    """Compute sum_j g_j * y_j / x_i, or products of other factors if some are 0."""
    if x.shape[axis] == 0:
        return g
    zero = equal(x, 0)
    among_zeros = any(zero, axis=axis, keepdims=True)
    total = bind(cumsum_p, g * y, axis=axis, reverse=not reverse)
    product_of_others = _product_among_zeros(
        g, where(among_zeros, x, 1.0), axis, reverse
    )
    return where(among_zeros, product_of_others, total / where(zero, 1.0, x))


def _product_among_zeros(g: Tensor, x: Tensor, axis: int, reverse: bool) -> Tensor:
    """Compute the product before x_i times s_i = g_i + x_{i+1} * s_{i+1}.

    It computes products of any adjacent elements, which may overflow although y does
    not.
    """
    n = x.shape[axis]
    one = full(reduced_shape(x.shape, (axis,), True), 1, x.dtype)
    first, last = slice_axis(x, axis, 0, n - 1), slice_axis(x, axis, 1, n)
    if reverse:
        factors = [bind(cumprod_p, last, axis=axis, reverse=True), one]
        following = [one, first]
    else:
        factors = [one, bind(cumprod_p, first, axis=axis, reverse=False)]
        following = [last, one]

    def composed(inner: Any, outer: Any) -> Any:
        """Compose two steps of s, each a factor and a term."""
        (a, b), (c, d) = inner, outer
        return c * a, d + c * b

    steps = concatenate(following, axis), g
    _, s = associative_scan(composed, steps, reverse=not reverse, axis=axis)
    before = concatenate(factors, axis)
    # A product of later elements may overflow although an earlier element is zero.
    return before * where(equal(before, 0), where(isfinite(s), s, 0.0), s)


cumsum_p: Primitive = primitive(
    "cumsum",
    Kind.REDUCE,
    lambda x, axis, reverse: x,
    vjp=lambda g, y, x, axis, reverse: bind(
        cumsum_p, g, axis=axis, reverse=not reverse
    ),
    axes=lambda x, axis, reverse: rule_along_axis(x, axis),
)
cumprod_p: Primitive = primitive(
    "cumprod",
    Kind.REDUCE,
    lambda x, axis, reverse: x,
    vjp=_cumprod_vjp,
    axes=lambda x, axis, reverse: rule_along_axis(x, axis),
)


def _accumulator(dtype: str) -> str:
    """Return the dtype for sums of small integers, as in Keras."""
    if dtype in ("bool", "int8", "int16"):
        return "int32"
    return "uint32" if dtype in ("uint8", "uint16") else dtype


@operation
def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Compute the sum of elements over axes.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes. It has the dtype of `x`; bool, int8 and int16
        give int32, and uint8 and uint16 give uint32.

    Example:
        >>> from toolkit import ops
        >>> print(ops.sum([[1, 2], [3, 4]], axis=0))
        [4 6]
    """
    x = convert(x)
    x = convert(x, _accumulator(x.dtype))
    axes = normalize_axes("sum", axis, x.ndim)
    return bind(sum_p, x, axis=axes, keepdims=bool(keepdims))


@operation
def prod(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """Compute the product of elements over axes.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.
        dtype: the dtype of the result. None means the dtype of `sum`.

    Returns:
        A tensor without the reduced axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.prod([[1, 2], [3, 4]], axis=1))
        [ 2 12]
    """
    x = convert(x)
    x = convert(x, dtypes.standardize(dtype) if dtype else _accumulator(x.dtype))
    axes = normalize_axes("prod", axis, x.ndim)
    return bind(prod_p, x, axis=axes, keepdims=bool(keepdims))


def _extremum(
    record: Primitive, x: Tensor, axis: Any, keepdims: bool, initial: float | None
) -> Tensor:
    x = convert(x)
    axes = normalize_axes(record.name, axis, x.ndim)
    if initial is not None and is_empty(x.shape, axes):
        shape = reduced_shape(x.shape, axes, keepdims)
        return broadcast_to(convert(initial, x.dtype), shape)
    y = bind(record, x, axis=axes, keepdims=bool(keepdims))
    if initial is None:
        return y
    limit = maximum if record is max_p else minimum
    return limit(y, convert(initial, x.dtype))


@operation
def max(
    x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None
) -> Tensor:
    """Return the largest element over axes.

    Args:
        x: numbers of any shape. A NaN among the elements gives NaN.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.
        initial: a number that counts as an additional element. None means that there is
            none.

    Returns:
        A tensor without the reduced axes, with the dtype of `x`.

    Raises:
        ShapeError: there are no elements, and `initial` is None.

    Example:
        >>> from toolkit import ops
        >>> print(ops.max([[1, 5], [7, 3]], axis=0))
        [7 5]
    """
    return _extremum(max_p, x, axis, keepdims, initial)


@operation
def min(
    x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None
) -> Tensor:
    """Return the smallest element over axes.

    Args:
        x: numbers of any shape. A NaN among the elements gives NaN.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.
        initial: a number that counts as an additional element. None means that there is
            none.

    Returns:
        A tensor without the reduced axes, with the dtype of `x`.

    Raises:
        ShapeError: there are no elements, and `initial` is None.

    Example:
        >>> from toolkit import ops
        >>> print(ops.min([[1, 5], [7, 3]], axis=0))
        [1 3]
    """
    return _extremum(min_p, x, axis, keepdims, initial)


amax, amin = max, min


@operation
def any(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return whether at least one element over axes is true.

    Args:
        x: tensor of any shape; every number except 0 is true.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A boolean tensor without the reduced axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.any([[True, False], [False, False]], axis=1))
        [ True False]
    """
    x = convert(x, "bool")
    axes = normalize_axes("any", axis, x.ndim)
    return bind(any_p, x, axis=axes, keepdims=bool(keepdims))


@operation
def all(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements over axes are true.

    Args:
        x: tensor of any shape; every number except 0 is true.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A boolean tensor without the reduced axes. It is true for no elements.

    Example:
        >>> from toolkit import ops
        >>> print(ops.all([[True, False], [True, True]], axis=1))
        [False  True]
    """
    x = convert(x, "bool")
    axes = normalize_axes("all", axis, x.ndim)
    return bind(all_p, x, axis=axes, keepdims=bool(keepdims))


@operation
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Compute the arithmetic mean over axes: sum(x) / n.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes. Floats keep their dtype; all other dtypes
        give floatx. The mean of no elements is NaN.

    Example:
        >>> from toolkit import ops
        >>> print(ops.mean([[1.0, 3.0], [5.0, 9.0]], axis=1))
        [2. 7.]
    """
    (x,) = floating(x)
    axes = normalize_axes("mean", axis, x.ndim)
    count = 1
    for a in axes:
        count *= x.shape[a]
    if x.dtype == "float16":  # its sums overflow
        return convert(mean(convert(x, "float32"), axes, keepdims), "float16")
    total = bind(sum_p, x, axis=axes, keepdims=bool(keepdims))
    if not count:
        return total / 0.0
    is_open = 0 in axes or type(count) is Extent
    return total / (extent(count, total.dtype) if is_open else count)


@operation
def var(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Compute the variance over axes: mean((x - mean(x)) ** 2).

    The divisor is the number of elements n, not n - 1.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes. Floats keep their dtype; all other dtypes
        give floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.var([1.0, 3.0]))
        1.0
    """
    (x,) = floating(x)
    centered = x - mean(x, axis=axis, keepdims=True)
    return mean(square(centered), axis=axis, keepdims=keepdims)


@operation
def std(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Compute the standard deviation over axes: sqrt(var(x)).

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes. Floats keep their dtype; all other dtypes
        give floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.std([1.0, 5.0]))
        2.0
    """
    return sqrt(var(x, axis=axis, keepdims=keepdims))


@operation
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Compute log(sum(exp(x))) over axes, without overflow.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.

    Returns:
        A tensor without the reduced axes. Floats keep their dtype; all other dtypes
        give floatx. No elements give -inf, the logarithm of 0.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.logsumexp([0.0, 0.0]), 4))
        0.6931
        >>> print(ops.logsumexp([1000.0, 0.0]))
        1000.0
    """
    (x,) = floating(x)
    axes = normalize_axes("logsumexp", axis, x.ndim)
    if is_empty(x.shape, axes):
        return log(sum(x, axes, keepdims))
    shift = stop_gradient(max(x, axis=axes, keepdims=True))
    shift = where(isfinite(shift), shift, zero_like(shift))
    y = log(sum(exp(x - shift), axis=axes, keepdims=True)) + shift
    return y if keepdims else reshape(y, reduced_shape(x.shape, axes, False))


def _arg_reduction(
    record: Primitive, x: Any, axis: int | None, keepdims: bool
) -> Tensor:
    x = convert(x)
    if axis is not None:
        axis = normalize_axis(record.name, axis, x.ndim)
        return bind(record, x, axis=axis, keepdims=bool(keepdims))
    y = bind(record, reshape(x, (x.size,)), axis=0, keepdims=False)
    return reshape(y, (1,) * x.ndim) if keepdims else y


@operation
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first largest element along an axis.

    Args:
        x: numbers of any shape.
        axis: the axis to search. None searches the flattened tensor.
        keepdims: whether the axis stays in the result, with extent 1.

    Returns:
        An int32 tensor without the axis.

    Raises:
        ShapeError: the axis has no elements.

    Example:
        >>> from toolkit import ops
        >>> print(ops.argmax([[1, 5, 5], [7, 3, 0]], axis=1))
        [1 0]
    """
    return _arg_reduction(argmax_p, x, axis, keepdims)


@operation
def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first smallest element along an axis.

    Args:
        x: numbers of any shape.
        axis: the axis to search. None searches the flattened tensor.
        keepdims: whether the axis stays in the result, with extent 1.

    Returns:
        An int32 tensor without the axis.

    Raises:
        ShapeError: the axis has no elements.

    Example:
        >>> from toolkit import ops
        >>> print(ops.argmin([[1, 5, 1], [7, 3, 0]], axis=1))
        [0 2]
    """
    return _arg_reduction(argmin_p, x, axis, keepdims)


def _cumulative(record: Primitive, x: Tensor, axis: int | None, dtype: Any) -> Tensor:
    x = convert(x, dtype and dtypes.standardize(dtype))
    x = convert(x, "int32") if x.dtype == "bool" else x
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    return bind(
        record, x, axis=normalize_axis(record.name, axis, x.ndim), reverse=False
    )


@operation
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Compute cumulative sums along an axis: y[i] = x[0] + ... + x[i].

    Args:
        x: numbers of any shape.
        axis: the axis of the sums. None means the flattened tensor.
        dtype: the dtype of the result. None means the dtype of `x`; booleans give
            int32.

    Returns:
        A tensor with the shape of `x`, or (x.size,) if `axis` is None.

    Example:
        >>> from toolkit import ops
        >>> print(ops.cumsum([1, 2, 3]))
        [1 3 6]
    """
    return _cumulative(cumsum_p, x, axis, dtype)


@operation
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Compute cumulative products along an axis: y[i] = x[0] * ... * x[i].

    Args:
        x: numbers of any shape.
        axis: the axis of the products. None means the flattened tensor.
        dtype: the dtype of the result. None means the dtype of `x`; booleans give
            int32.

    Returns:
        A tensor with the shape of `x`, or (x.size,) if `axis` is None.

    Example:
        >>> from toolkit import ops
        >>> print(ops.cumprod([1, 2, 3, 4]))
        [ 1  2  6 24]
    """
    return _cumulative(cumprod_p, x, axis, dtype)


@operation
def count_nonzero(x: Any, axis: Any = None) -> Tensor:
    """Count the elements over axes that are not zero.

    Args:
        x: numbers of any shape.
        axis: an axis, a tuple of axes, or None. The default None reduces all axes.

    Returns:
        An int32 tensor without the reduced axes.

    Example:
        >>> from toolkit import ops
        >>> print(ops.count_nonzero([[0, 5], [7, 3]], axis=0))
        [1 2]
    """
    return sum(convert(convert(x, "bool"), "int32"), axis=axis)
