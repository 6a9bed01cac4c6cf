"""Normalizations: of a batch by given statistics, and of each sample by its statistics.

Half precision is computed in float32 if sums of squares could overflow.
"""

from __future__ import annotations

import math
from typing import Any

from toolkit import dtypes, settings
from toolkit.arguments import is_int
from toolkit.core.convert import convert, extent, floating
from toolkit.core.tensor import Tensor, bind
from toolkit.core.trace import decomposable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ir import Primitive
from toolkit.ops.activation import limit_p
from toolkit.ops.checks import normalize_axes, normalize_axis, reduced_shape
from toolkit.ops.creation import ones, zeros
from toolkit.ops.elementwise import (
    equal,
    greater,
    maximum,
    stop_gradient_p,
    where,
    zero_like,
)
from toolkit.ops.numeric import abs, square
from toolkit.ops.reduce import mean, sum
from toolkit.ops.shape import reshape
from toolkit.ops.symbolic import operation
from toolkit.ops.transcendental import log, power, rsqrt, sqrt
from toolkit.type_aliases import TensorLike


def _widened(x: TensorLike) -> tuple[Tensor, str]:
    """Return x in float32 or wider, and the floating dtype of the result."""
    (x,) = floating(x)
    return convert(x, dtypes.result_type(x.dtype, "float32")), x.dtype


def _variance(x: Tensor, axis: tuple[int, ...]) -> Tensor:
    return mean(square(x - mean(x, axis=axis, keepdims=True)), axis=axis, keepdims=True)


def _variance_vjp(g: Tensor, y: Tensor, x: Tensor, axis: tuple[int, ...]) -> Tensor:
    count = math.prod(x.shape[a] for a in axis)
    factor = 2 / max(count, 1)
    factor = extent(factor, g.dtype) if 0 in axis else factor
    return (g * factor) * (x - mean(x, axis=axis, keepdims=True))


# A composite with a custom gradient: the part through the mean is zero. The gradient of
# the body would need three passes to compute this zero.
variance_p: Primitive = decomposable("variance", _variance, _variance_vjp)


@operation
def moments(
    x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute the mean and the variance mean((x - mean(x)) ** 2) over axes.

    Args:
        x: numbers of any shape.
        axes: an axis, a tuple of axes, or None for all axes.
        keepdims: whether the reduced axes stay in the result, with extent 1.
        synchronized: no effect. Keras computes the moments over all replicas of the
            model; there is only one.

    Returns:
        A pair of tensors without the reduced axes. Floats keep their dtype; all other
        dtypes give floatx.

    Example:
        >>> from toolkit import ops
        >>> mean, variance = ops.moments([1.0, 3.0], axes=0)
        >>> float(mean), float(variance)
        (2.0, 1.0)
    """
    x, dtype = _widened(x)
    axes = normalize_axes("moments", axes, x.ndim)
    shape = reduced_shape(x.shape, axes, keepdims)
    center = reshape(mean(x, axis=axes, keepdims=True), shape)
    variance = reshape(bind(variance_p, x, axis=axes), shape)
    return _narrowed(center, dtype), _narrowed(variance, dtype)


def _narrowed(x: Tensor, dtype: str) -> Tensor:
    """Return x in `dtype`, clipped to the range of float16."""
    if dtype == "float16":
        x = where(greater(abs(x), 65504.0), where(greater(x, 0), 65504.0, -65504.0), x)
    return convert(x, dtype)


@operation
def batch_normalization(
    x: TensorLike,
    mean: Any,
    variance: Any,
    axis: int,
    offset: TensorLike | None = None,
    scale: TensorLike | None = None,
    epsilon: float = 1e-3,
) -> Tensor:
    """Compute (x - mean) / sqrt(variance + epsilon) * scale + offset.

    Args:
        x: numbers of any shape, for example (batch, steps, features).
        mean: (n,), the mean of each feature, where n is the extent of `axis`.
        variance: (n,), the variance of each feature, >= 0.
        axis: the axis of the features.
        offset: (n,), the number to add. None means 0.
        scale: (n,), the factor. None means 1.
        epsilon: a small number that prevents a division by 0.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Raises:
        ShapeError: an argument does not have n elements.

    Reference:
        Ioffe and Szegedy, Batch Normalization (2015), https://arxiv.org/abs/1502.03167

    Example:
        >>> from toolkit import ops
        >>> x = [[1.0, 10.0], [3.0, 30.0]]
        >>> y = ops.batch_normalization(x, [2.0, 20.0], [1.0, 100.0], axis=1)
        >>> print(ops.round(y, 2))
        [[-1. -1.]
         [ 1.  1.]]
    """
    (x,) = floating(x)
    axis = normalize_axis("batch_normalization", axis, x.ndim)
    n = x.shape[axis]

    def along_axis(name: str, value: TensorLike) -> Tensor:
        value = convert(value)
        if value.size != n:
            raise ShapeError(
                f"batch_normalization: expected {name} of shape ({n},) for axis {axis} "
                f"of x with shape {x.shape}; received {value.shape}"
            )
        return reshape(value, (*(1,) * axis, n, *(1,) * (x.ndim - axis - 1)))

    factor = rsqrt(along_axis("variance", variance) + epsilon)
    if scale is not None:
        factor = factor * along_axis("scale", scale)
    y = (x - along_axis("mean", mean)) * factor
    return y if offset is None else y + along_axis("offset", offset)


def _batch_norm(
    x: Tensor, scale: Tensor, offset: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Normalize x over all axes but the last, in its dtype.

    Also return, for each channel and in the dtype of scale, the mean, the variance, and
    1 / sqrt(variance + epsilon).
    """
    wide, axes = convert(x, scale.dtype), tuple(range(x.ndim - 1))
    # With kept axes, like the mean in the variance: then it is computed once.
    center = reshape(mean(wide, axis=axes, keepdims=True), scale.shape)
    variance = reshape(bind(variance_p, wide, axis=axes), scale.shape)
    factor = rsqrt(variance + epsilon)
    y = (wide - center) * (factor * scale) + offset
    return convert(y, x.dtype), center, variance, factor


def _batch_norm_grad(
    g: Tensor, x: Tensor, scale: Tensor, center: Tensor, factor: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, scale and offset.

    center, factor: results of `_batch_norm`; they are functions of x.
    """
    center, factor = bind(batch_statistics_p, x, center, factor)
    axes, count = tuple(range(x.ndim - 1)), _samples(x, scale.dtype)
    # Not x - center: this is a value of the forward pass, which would be stored.
    below, g = center - convert(x, scale.dtype), convert(g, scale.dtype)
    total, along = sum(g, axis=axes), sum(g * below, axis=axes)
    shift, slope = total / count, along * factor * factor / count
    dx = (g - shift - below * slope) * (factor * scale)
    return convert(dx, x.dtype), -along * factor, total


def _batch_norm_of(
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    *residual: Tensor,
    epsilon: float,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute `_batch_norm`, and its optional epilogue: + residual, max(0)."""
    y, *statistics = bind(batch_norm_p, x, scale, offset, epsilon=epsilon)
    for other in residual:
        y = y + other
    return (bind(limit_p, y, low=0, high=None) if relu else y, *statistics)


def _samples(x: Tensor, dtype: str) -> Any:
    """Return the number of elements of each channel of x, as a divisor."""
    return extent(max(x.size // x.shape[-1], 1), dtype)


def _batch_norm_vjp(
    gs: tuple[Tensor, ...],
    ys: tuple[Tensor, ...],
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    epsilon: float,
) -> tuple[Tensor, ...]:
    _, center, _, factor = ys
    return bind(batch_norm_grad_p, gs[0], x, scale, center, factor)


def _batch_statistics(
    x: Tensor, center: Tensor, factor: Tensor
) -> tuple[Tensor, Tensor]:
    return bind(stop_gradient_p, center), bind(stop_gradient_p, factor)


def _batch_statistics_vjp(
    gs: Any, ys: Any, x: Tensor, center: Tensor, factor: Tensor
) -> Any:
    count = _samples(x, center.dtype)
    slope = -gs[1] * factor * factor * factor / count
    dx = gs[0] / count + slope * (convert(x, center.dtype) - center)
    return convert(dx, x.dtype), None, None


# Composites, because GPU libraries have kernels for them, and because the gradient of
# the body would need another pass over x, for the part through the mean.
batch_norm_p: Primitive = decomposable("batch_norm", _batch_norm, _batch_norm_vjp)
batch_norm_grad_p: Primitive = decomposable("batch_norm_grad", _batch_norm_grad)
# Alternatives that a backend may select: library calls, the first with an epilogue.
decomposable("batch_norm_of", _batch_norm_of)
decomposable("batch_norm_grad_of", _batch_norm_grad)
# Known statistics, with the gradient that they would have if they were computed from x
# here.
batch_statistics_p: Primitive = decomposable(
    "batch_statistics", _batch_statistics, _batch_statistics_vjp
)


def normalize_batch(
    x: Tensor, scale: TensorLike, offset: TensorLike, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Apply `batch_normalization` to the last axis, with the statistics of x.

    Args:
        x: (..., channels) with any floating dtype.
        scale, offset: (channels,), or None for 1 and 0.

    Returns:
        The result in the dtype of x; the mean and the variance, (channels,), in float32
        or wider. Gradients flow through the result only.
    """
    wide, n = dtypes.result_type(x.dtype, "float32"), x.shape[-1:]
    scale = ones(n, wide) if scale is None else convert(scale, wide)
    offset = zeros(n, wide) if offset is None else convert(offset, wide)
    y, center, variance, _ = bind(batch_norm_p, x, scale, offset, epsilon=epsilon)
    return y, center, variance


@operation
def layer_normalization(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    axis: Any = -1,
    epsilon: float | None = None,
    rms_scaling: bool = False,
) -> Tensor:
    """Compute (x - mean(x)) / sqrt(var(x) + epsilon) * gamma + beta over axes.

    The mean and the variance are over `axis`, for each sample separately.

    Args:
        x: numbers of any shape, for example (batch, steps, features).
        gamma: the factor, with the shape of the normalized axes. None means 1.
        beta: the number to add, with the shape of the normalized axes. None means 0.
        axis: an axis or a tuple of axes. The default is the last axis.
        epsilon: a small number that prevents a division by 0. None means the global
            default.
        rms_scaling: deprecated: whether to compute x / sqrt(var(x) + epsilon) * gamma.
            Use `rms_normalization` instead.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        Ba et al., Layer Normalization (2016), https://arxiv.org/abs/1607.06450

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.layer_normalization([[1.0, 3.0], [10.0, 30.0]]), 3))
        [[-1.  1.]
         [-1.  1.]]
    """
    x, dtype = _widened(x)
    axes = normalize_axes("layer_normalization", axis, x.ndim)
    centered = x - mean(x, axis=axes, keepdims=True)
    factor = _rsqrt_mean_square(centered, axes, epsilon)
    if rms_scaling:
        return convert(_affine(x * factor, gamma, None, axes), dtype)
    y = centered * factor
    return convert(_affine(y, gamma, beta, axes), dtype)


@operation
def rms_normalization(
    x: Any, scale: Any = None, axis: Any = -1, epsilon: float | None = None
) -> Tensor:
    """Compute x / sqrt(mean(x ** 2) + epsilon) * scale over axes.

    The mean is over `axis`, for each sample separately.

    Args:
        x: numbers of any shape, for example (batch, steps, features).
        scale: the factor, with the shape of the normalized axes. None means 1.
        axis: an axis or a tuple of axes. The default is the last axis.
        epsilon: a small number that prevents a division by 0. None means the global
            default.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Reference:
        Zhang and Sennrich, Root Mean Square Layer Normalization (2019),
            https://arxiv.org/abs/1910.07467

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.rms_normalization([[1.0, 7.0]]), 3))
        [[0.2 1.4]]
    """
    x, dtype = _widened(x)
    axes = normalize_axes("rms_normalization", axis, x.ndim)
    y = x * _rsqrt_mean_square(x, axes, epsilon)
    return convert(_affine(y, scale, None, axes), dtype)


def _rsqrt_mean_square(
    x: Tensor, axes: tuple[int, ...], epsilon: float | None
) -> Tensor:
    epsilon = settings.epsilon() if epsilon is None else epsilon
    return rsqrt(mean(square(x), axis=axes, keepdims=True) + epsilon)


def _affine(y: Tensor, gamma: Any, beta: Any, axes: tuple[int, ...]) -> Tensor:
    """Compute y * gamma + beta; both have the shape of the normalized axes."""
    shape = tuple(n if i in axes else 1 for i, n in enumerate(y.shape))

    def broadcast(value: TensorLike) -> Tensor:
        value = convert(value, y.dtype)
        return value if value.ndim == y.ndim else reshape(value, shape)

    y = y if gamma is None else y * broadcast(gamma)
    return y if beta is None else y + broadcast(beta)


@operation
def normalize(
    x: Any, axis: Any = -1, order: int = 2, epsilon: float | None = None
) -> Tensor:
    """Divide numbers by their norm sum(abs(x) ** order) ** (1 / order) over axes.

    Args:
        x: numbers of any shape.
        axis: an axis or a tuple of axes. The default is the last axis.
        order: the order of the norm, an integer >= 1. The default 2 is the Euclidean
            norm.
        epsilon: the lower bound of the norm. None means the global default.

    Returns:
        A tensor with the shape of `x`. Floats keep their dtype; all other dtypes give
        floatx.

    Raises:
        ArgumentError: `order` is not an integer >= 1.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.normalize([[3.0, 4.0]]), 4))
        [[0.6 0.8]]
    """
    if not is_int(order) or order < 1:
        raise ArgumentError(
            f"normalize: expected order, an integer >= 1; received {order!r}"
        )
    x, dtype = _widened(x)
    x = reshape(x, (1,)) if x.ndim == 0 else x
    epsilon = settings.epsilon() if epsilon is None else epsilon
    axes = normalize_axes("normalize", axis, x.ndim)
    if order == 2:
        total = sum(square(x), axis=axes, keepdims=True)
        # The bound is inside the root, because its gradient at 0 would be infinite.
        return convert(x * rsqrt(maximum(total, epsilon**2)), dtype)
    return convert(x / maximum(vector_norm(x, axes, order), epsilon), dtype)


def vector_norm(
    x: Tensor, axes: tuple[int, ...], order: float, keepdims: bool = True
) -> Tensor:
    """Compute the norm over `axes`, with gradient 0 at 0."""
    powers = square(x) if order == 2 else power(abs(x), order)
    total = sum(powers, axis=axes, keepdims=keepdims)
    is_zero = equal(total, 0)
    total = where(is_zero, 1.0, total)
    root = sqrt(total) if order == 2 else power(total, 1 / order)
    return where(is_zero, zero_like(root), root)


@operation
def psnr(x1: TensorLike, x2: TensorLike, max_val: float) -> Tensor:
    """Compute the peak signal-to-noise ratio of two images in decibels.

    The result is 10 * log10(max_val ** 2 / mean((x1 - x2) ** 2)).

    Args:
        x1: an image, or a batch of images.
        x2: an image, or a batch of images, with the shape of `x1`.
        max_val: the largest possible value of a pixel, such as 1.0 or 255.

    Returns:
        A floating scalar: one number for all pixels.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> from toolkit import ops
        >>> print(ops.round(ops.psnr([0.0, 1.0], [0.1, 0.9], max_val=1.0), 3))
        20.0
    """
    x1, x2 = floating(x1, x2)
    if x1.shape != x2.shape:
        raise ShapeError(
            f"psnr: expected equal shapes; received {x1.shape} and {x2.shape}"
        )
    error = mean(square(x1 - x2))
    return (2 * log(convert(max_val, x1.dtype)) - log(error)) * 4.342944819032518
