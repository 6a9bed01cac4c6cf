"""Softmax and related functions, along one axis or several at once.

Both are composites with custom gradients, which need two or three passes over the data.
The gradients of the bodies would need seven.
"""

from __future__ import annotations

from toolkit.arguments import is_int
from toolkit.console.frames import warn
from toolkit.core.convert import convert, floating
from toolkit.core.tensor import Tensor, bind, state
from toolkit.core.trace import decomposable
from toolkit.ir import Primitive
from toolkit.ops.checks import normalize_axes, normalize_axis
from toolkit.ops.creation import arange
from toolkit.ops.elementwise import greater, where, zero_like
from toolkit.ops.numeric import stop_gradient
from toolkit.ops.reduce import cumsum, max, sum
from toolkit.ops.shape import flip, reshape
from toolkit.ops.sort import sort
from toolkit.ops.symbolic import Probe, operation
from toolkit.ops.transcendental import exp, log
from toolkit.type_aliases import Axis, TensorLike

Axes = tuple[int, ...]


def _shifted(x: Tensor, axis: Axes) -> Tensor:
    """Subtract the maximum from x, so that exp cannot overflow."""
    return x - stop_gradient(max(x, axis=axis, keepdims=True))


def _softmax(x: Tensor, axis: Axes) -> Tensor:
    weights = exp(_shifted(x, axis))
    return weights / sum(weights, axis=axis, keepdims=True)


def _log_softmax(x: Tensor, axis: Axes) -> Tensor:
    shifted = _shifted(x, axis)
    return shifted - log(sum(exp(shifted), axis=axis, keepdims=True))


def _softmax_vjp(g: Tensor, y: Tensor, x: Tensor, axis: Axes) -> Tensor:
    weighted = g * y
    return weighted - y * sum(weighted, axis=axis, keepdims=True)


def _log_softmax_vjp(g: Tensor, y: Tensor, x: Tensor, axis: Axes) -> Tensor:
    return g - exp(y) * sum(g, axis=axis, keepdims=True)


softmax_p: Primitive = decomposable("softmax", _softmax, _softmax_vjp)
log_softmax_p: Primitive = decomposable("log_softmax", _log_softmax, _log_softmax_vjp)


def _along(record: Primitive, x: TensorLike, axis: Axis) -> Tensor:
    (x,) = floating(x)
    if x.size == 0:
        return x
    axes = normalize_axes(record.name, axis, x.ndim)
    return bind(record, x, axis=axes)


@operation
def softmax(x: TensorLike, axis: Axis = -1) -> Tensor:
    """Compute exp(x) / sum(exp(x)) along axes, without overflow.

    Args:
        x: numbers of any shape, for example logits (batch, classes).
        axis: an axis, a tuple of axes, or None for all axes. The sum over them is 1.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.softmax([1000.0, 1000.0]))
        [0.5 0.5]
    """
    _warn_if_constant(x, axis)
    return _along(softmax_p, x, axis)


def _warn_if_constant(x: TensorLike, axis: Axis) -> None:
    shape = getattr(x, "shape", ())
    if isinstance(state.trace, Probe) and state.trace.extent == 1:
        return  # if an extent is unknown, shape inference also tries 1
    if is_int(axis) and -len(shape) <= axis < len(shape) and shape[axis] == 1:
        warn(
            f"softmax: axis {axis} has extent 1, so the result is 1 everywhere; did "
            "you mean sigmoid?"
        )


@operation
def log_softmax(x: TensorLike, axis: Axis = -1) -> Tensor:
    """Compute log(softmax(x)) along axes; small probabilities do not round to 0.

    Args:
        x: numbers of any shape, for example logits (batch, classes).
        axis: an axis, a tuple of axes, or None for all axes.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Example:
        >>> from toolkit import ops
        >>> print(ops.log_softmax([0.0, -1000.0]))
        [    0. -1000.]
    """
    return _along(log_softmax_p, x, axis)


@operation
def sparsemax(x: TensorLike, axis: int = -1) -> Tensor:
    """Return the point of the probability simplex that is nearest to x.

    Unlike `softmax`, it gives probabilities that are exactly 0.

    Args:
        x: numbers of any shape, for example logits (batch, classes).
        axis: the axis along which the sum is 1. The default is the last axis.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        Martins and Astudillo, From Softmax to Sparsemax (2016),
            https://arxiv.org/abs/1602.02068

    Example:
        >>> from toolkit import ops
        >>> print(ops.sparsemax([1.0, 0.5, -3.0]))
        [0.75 0.25 0.  ]
    """
    (x,) = floating(x)
    axis = normalize_axis("sparsemax", axis, x.ndim)
    n = x.shape[axis]
    largest = flip(sort(stop_gradient(x), axis=axis), axis)
    ranks = reshape(arange(1, n + 1, dtype=x.dtype), (n, *(1,) * (x.ndim - axis - 1)))
    in_support = greater(largest * ranks + 1, cumsum(largest, axis=axis))
    support = greater(stop_gradient(x), _excess(largest, in_support, axis))
    return where(support, x - _excess(x, support, axis), zero_like(x))


def _excess(x: Tensor, support: Tensor, axis: int) -> Tensor:
    """Return the number to subtract from elements of the support, for a sum of 1."""
    total = sum(where(support, x, zero_like(x)), axis=axis, keepdims=True)
    return (total - 1) / sum(convert(support, x.dtype), axis=axis, keepdims=True)
