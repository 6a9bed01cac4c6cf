"""Random numbers that depend only on a seed of two integers."""

from __future__ import annotations

import math
from typing import Any

from toolkit import dtypes, ops, random as core
from toolkit.compat.tensorflow.arguments import dtype_name, extents, refuse
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.seeds import key_of
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.ops.quadrature import doubles
from toolkit.type_aliases import DTypeLike, Shape, TensorLike


def draw_uniform(
    shape: ShapeLike,
    minval: TensorLike,
    maxval: TensorLike | None,
    dtype: Any,
    seed: Any,
) -> Tensor:
    """Sample from the uniform distribution with a seed or a source of seeds."""
    dtype = dtype_name(dtype)
    if dtypes.is_integer(dtype):
        if maxval is None:
            raise ArgumentError("uniform: expected maxval for integers; received None")
        return core.randint(extents(shape), minval, maxval, dtype, seed)
    high = 1.0 if maxval is None else maxval
    low, high = (float(b) if isinstance(b, int) else b for b in (minval, high))
    return core.uniform(extents(shape), low, high, dtype, seed)


def draw_poisson(shape: ShapeLike, rates: Any, dtype: DTypeLike, seed: Any) -> Tensor:
    """Sample from the Poisson distribution with a seed or a source of seeds."""
    return ops.cast(core.poisson(shape, rates, "float64", seed), dtype_name(dtype))


def stateless_poisson(
    shape: ShapeLike,
    seed: TensorLike,
    lam: TensorLike,
    dtype: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """Sample from the Poisson distribution by a seed.

    Args:
        shape: of the result.
        seed: two integers.
        lam: the rates; they broadcast to the shape.
        dtype: of the result.
    """
    return draw_poisson(extents(shape), lam, dtype, key_of(seed))


def stateless_binomial(
    shape: Shape,
    seed: TensorLike,
    counts: TensorLike,
    probs: TensorLike,
    output_dtype: DTypeLike = "int32",
    name: str | None = None,
) -> Tensor:
    """Sample from the binomial distribution by a seed.

    Args:
        shape: of the result.
        seed: two integers.
        counts, probs: trials and their probabilities; they broadcast to the shape.
        output_dtype: of the result.
    """
    samples = core.binomial(extents(shape), counts, probs, "float64", key_of(seed))
    return ops.cast(samples, dtype_name(output_dtype))


def stateless_gamma(
    shape: Shape,
    seed: TensorLike,
    alpha: TensorLike,
    beta: TensorLike | None = None,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Tensor:
    """Sample from the gamma distribution by a seed.

    Args:
        shape: of the result.
        seed: two integers.
        alpha, beta: shapes and rates; they broadcast to the shape.
        dtype: of the result.
    """
    samples = core.gamma(extents(shape), alpha, dtype_name(dtype), key_of(seed))
    return samples if beta is None else samples / convert(beta, samples.dtype)


def stateless_parameterized_truncated_normal(
    shape: Shape,
    seed: TensorLike,
    means: TensorLike = 0.0,
    stddevs: TensorLike = 1.0,
    minvals: TensorLike = -2.0,
    maxvals: TensorLike = 2.0,
    name: str | None = None,
) -> Tensor:
    """Sample from the truncated normal distribution by a seed.

    Args:
        shape: of the result.
        seed: two integers.
        means, stddevs: of the normal distribution; they broadcast to the shape.
        minvals, maxvals: the bounds; they broadcast to the shape.
    """
    (mean, std, low, high), dtype = doubles(means, stddevs, minvals, maxvals)
    low, high = (low - mean) / std, (high - mean) / std
    # Use the tail of small probabilities, which has no cancellation.
    is_right = low > 0
    a, b = ops.where(is_right, -high, low), ops.where(is_right, -low, high)
    below, above = (0.5 * ops.erfc(x * -math.sqrt(0.5)) for x in (a, b))
    u = core.uniform(extents(shape), dtype="float64", seed=key_of(seed))
    z = ops.clip(ops.ndtri(below + u * (above - below)), a, b)
    return convert(mean + std * ops.where(is_right, -z, z), dtype)


def stateless_shuffle(
    value: TensorLike,
    seed: TensorLike,
    alg: str = "auto_select",
    name: str | None = None,
) -> Tensor:
    """Shuffle the rows by a seed."""
    refuse("stateless_shuffle", alg=(alg, "auto_select"))
    return core.shuffle(value, 0, key_of(seed))


def index_shuffle(index: Any, seed: TensorLike, max_index: Any) -> Tensor:
    """Return the images of indices under a random permutation of 0 to max_index."""
    order = ops.arange(int(max_index) + 1, dtype=convert(index).dtype)
    return ops.take(core.shuffle(order, 0, key_of(seed)), index)


def stateless_uniform(
    shape: ShapeLike,
    seed: Any,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """Sample as `uniform`, by a seed of two integers."""
    refuse("stateless_uniform", alg=(alg, "auto_select"))
    return draw_uniform(shape, minval, maxval, dtype, key_of(seed))


def stateless_normal(
    shape: Shape,
    seed: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """Sample as `normal`, by a seed of two integers."""
    refuse("stateless_normal", alg=(alg, "auto_select"))
    return core.normal(extents(shape), mean, stddev, dtype_name(dtype), key_of(seed))


def stateless_truncated_normal(
    shape: Shape,
    seed: TensorLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """Sample as `truncated_normal`, by a seed of two integers."""
    refuse("stateless_truncated_normal", alg=(alg, "auto_select"))
    return core.truncated_normal(
        extents(shape), mean, stddev, dtype_name(dtype), key_of(seed)
    )


def stateless_categorical(
    logits: TensorLike,
    num_samples: Any,
    seed: TensorLike,
    dtype: DTypeLike = "int64",
    name: str | None = None,
) -> Tensor:
    """Sample as `categorical`, by a seed of two integers."""
    return core.categorical(logits, int(num_samples), dtype_name(dtype), key_of(seed))


make_operations(__name__, besides="draw_poisson draw_uniform")
