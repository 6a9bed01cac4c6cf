"""Moments of tensors in `tf.nn`, and the Poisson loss."""

from __future__ import annotations

import math as numbers
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.arguments import extents
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import AxisLike
from toolkit.core.tensor import Tensor
from toolkit.type_aliases import Axis, TensorLike


def sufficient_statistics(
    x: Any,
    axes: Axis,
    shift: Any = None,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Any]:
    """Return the count, sum, sum of squares and shift of x along axes.

    Args:
        x: a tensor.
        axes: the axes of the sums.
        shift: a number near the mean that is subtracted first; None for none.
        keepdims: whether reduced axes stay, with extent 1.
    """
    x, axes = convert(x), extents(axes)
    count = numbers.prod(x.shape[axis] for axis in axes)
    shift = None if shift is None else convert(shift, x.dtype)
    moved = x if shift is None else x - shift
    total = ops.sum(moved, axes, bool(keepdims))
    squares = ops.sum(ops.square(moved), axes, bool(keepdims))
    return convert(count, x.dtype), total, squares, shift


def normalize_moments(
    counts: TensorLike,
    mean_ss: Any,
    variance_ss: Any,
    shift: Any,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return mean and variance from the results of `sufficient_statistics`."""
    mean = ops.divide(mean_ss, counts)
    variance = ops.divide(variance_ss, counts) - ops.square(mean)
    return mean if shift is None else mean + shift, variance


def weighted_moments(
    x: Any,
    axes: AxisLike,
    frequency_weights: Any,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return mean and variance along axes; weights broadcast with x."""
    x, axes = convert(x), extents(axes)
    weights = convert(frequency_weights, x.dtype) + ops.zeros_like(x)
    total = ops.sum(weights, axes, keepdims=True)
    mean = ops.sum(weights * x, axes, keepdims=True) / total
    variance = ops.sum(weights * ops.square(x - mean), axes, keepdims=True) / total
    if keepdims:
        return mean, variance
    return ops.squeeze(mean, axes), ops.squeeze(variance, axes)


def batch_norm_with_global_normalization(
    input: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    beta: TensorLike,
    gamma: TensorLike,
    variance_epsilon: TensorLike,
    scale_after_normalization: bool,
    name: str | None = None,
) -> Tensor:
    """Return `batch_normalization`; gamma applies if scale_after_normalization is
    true."""
    scale = ops.rsqrt(ops.add(variance, variance_epsilon))
    scale = scale * gamma if scale_after_normalization else scale
    return ops.subtract(input, mean) * scale + beta


def log_poisson_loss(
    targets: TensorLike,
    log_input: Any,
    compute_full_loss: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return exp(log_input) - log_input * targets.

    Args:
        targets: the counts.
        log_input: the logarithms of the rates.
        compute_full_loss: whether to add Stirling's approximation of log(targets!) for
            targets above 1.
    """
    rates = convert(log_input)
    z = convert(targets, rates.dtype)
    loss = ops.exp(rates) - rates * z
    if not compute_full_loss:
        return loss
    is_large = ops.greater(z, 1)
    large = ops.where(is_large, z, 2.0)
    stirling = large * ops.log(large) - large
    stirling = stirling + 0.5 * ops.log(2 * numbers.pi * large)
    return loss + ops.where(is_large, stirling, 0.0)


make_operations(__name__)
