"""`tf.random`: random numbers from the global seed, an operation seed, or a
generator."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from toolkit import dtypes, ops, random as core
from toolkit.compat.tensorflow.arguments import dtype_name, extents, refuse
from toolkit.compat.tensorflow.boundary import make_operations, wrap_results
from toolkit.compat.tensorflow.candidates import (
    all_candidate_sampler as all_candidate_sampler,
    fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler,
    log_uniform_candidate_sampler as log_uniform_candidate_sampler,
    uniform_candidate_sampler as uniform_candidate_sampler,
)
from toolkit.compat.tensorflow.seeds import (
    Algorithm as Algorithm,
    fold_in as fold_in,
    full_integers,
    key_of,
    set_seed as set_seed,
    source as source,
    split as split,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.ops.quadrature import doubles
from toolkit.type_aliases import DTypeLike, SeedLike, Shape, TensorLike


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    seed: Any = None,
    name: Any = None,
) -> Tensor:
    """Sample from the uniform distribution on [minval, maxval): floats or integers.

    Args:
        shape: of the result.
        minval: 0 by default.
        maxval: 1 by default for floats, and needed for integers.
        dtype: of the result.
        seed: of the operation.
    """
    return _uniform(shape, minval, maxval, dtype, source(seed))


def _uniform(shape: Any, minval: Any, maxval: Any, dtype: Any, seed: Any) -> Tensor:
    dtype = dtype_name(dtype)
    if dtypes.is_integer(dtype):
        if maxval is None:
            raise ArgumentError("uniform: expected maxval for integers; received None")
        return core.randint(extents(shape), minval, maxval, dtype, seed)
    high = 1.0 if maxval is None else maxval
    low, high = (float(b) if isinstance(b, int) else b for b in (minval, high))
    return core.uniform(extents(shape), low, high, dtype, seed)


def normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    seed: Any = None,
    name: Any = None,
) -> Tensor:
    """Sample from the normal distribution."""
    return core.normal(extents(shape), mean, stddev, dtype_name(dtype), source(seed))


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    seed: Any = None,
    name: Any = None,
) -> Tensor:
    """Sample from the normal distribution within two standard deviations."""
    return core.truncated_normal(
        extents(shape), mean, stddev, dtype_name(dtype), source(seed)
    )


def shuffle(value: Any, seed: Any = None, name: Any = None) -> Tensor:
    """Shuffle the rows."""
    return core.shuffle(value, 0, source(seed))


def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: Any = None, name: Any = None
) -> Tensor:
    """Sample classes by the logarithms of their probabilities; int64 by default."""
    dtype = dtype_name(dtype) or "int64"
    return core.categorical(logits, int(num_samples), dtype, source(seed))


def gamma(
    shape: Any,
    alpha: Any,
    beta: Any = None,
    dtype: Any = "float32",
    seed: Any = None,
    name: Any = None,
) -> Tensor:
    """Sample from the gamma distribution; the axes of alpha are the last axes."""
    alpha = convert(alpha, dtype_name(dtype))
    full_shape = (*extents(shape), *alpha.shape)
    samples = core.gamma(full_shape, alpha, dtype_name(dtype), source(seed))
    return samples if beta is None else samples / convert(beta, samples.dtype)


def poisson(
    shape: Any,
    lam: Any,
    dtype: Any = "float32",
    seed: Any = None,
    name: Any = None,
) -> Tensor:
    """Sample from the Poisson distribution.

    Args:
        shape: the sample shape of each rate, the first axes of the result.
        lam: the rates, the last axes of the result.
        dtype: of the result, float or integer.
        seed: of the operation.
    """
    rates = convert(lam)
    return _poisson((*extents(shape), *rates.shape), rates, dtype, source(seed))


def _poisson(shape: Any, rates: Any, dtype: Any, seed: Any) -> Tensor:
    return ops.cast(core.poisson(shape, rates, "float64", seed), dtype_name(dtype))


def stateless_poisson(
    shape: Any, seed: Any, lam: Any, dtype: Any = "int32", name: Any = None
) -> Tensor:
    """Sample from the Poisson distribution by a seed.

    Args:
        shape: of the result.
        seed: two integers.
        lam: the rates; they broadcast to the shape.
        dtype: of the result.
    """
    return _poisson(extents(shape), lam, dtype, key_of(seed))


def stateless_binomial(
    shape: Shape,
    seed: SeedLike,
    counts: Any,
    probs: Any,
    output_dtype: Any = "int32",
    name: Any = None,
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
    seed: SeedLike,
    alpha: Any,
    beta: Any = None,
    dtype: DTypeLike = "float32",
    name: Any = None,
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
    seed: SeedLike,
    means: Any = 0.0,
    stddevs: Any = 1.0,
    minvals: Any = -2.0,
    maxvals: Any = 2.0,
    name: Any = None,
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
    value: Any, seed: SeedLike, alg: str = "auto_select", name: Any = None
) -> Tensor:
    """Shuffle the rows by a seed."""
    refuse("stateless_shuffle", alg=(alg, "auto_select"))
    return core.shuffle(value, 0, key_of(seed))


def index_shuffle(index: Any, seed: SeedLike, max_index: Any) -> Tensor:
    """Return the images of indices under a random permutation of 0 to max_index."""
    order = ops.arange(int(max_index) + 1, dtype=convert(index).dtype)
    return ops.take(core.shuffle(order, 0, key_of(seed)), index)


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    name: Any = None,
    alg: str = "auto_select",
) -> Tensor:
    """Sample as `uniform`, by a seed of two integers."""
    refuse("stateless_uniform", alg=(alg, "auto_select"))
    return _uniform(shape, minval, maxval, dtype, key_of(seed))


def stateless_normal(
    shape: Shape,
    seed: SeedLike,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: DTypeLike = "float32",
    name: Any = None,
    alg: str = "auto_select",
) -> Tensor:
    """Sample as `normal`, by a seed of two integers."""
    refuse("stateless_normal", alg=(alg, "auto_select"))
    return core.normal(extents(shape), mean, stddev, dtype_name(dtype), key_of(seed))


def stateless_truncated_normal(
    shape: Shape,
    seed: SeedLike,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: DTypeLike = "float32",
    name: Any = None,
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
    seed: SeedLike,
    dtype: DTypeLike = "int64",
    name: Any = None,
) -> Tensor:
    """Sample as `categorical`, by a seed of two integers."""
    return core.categorical(logits, int(num_samples), dtype_name(dtype), key_of(seed))


class Generator:
    """A random number generator with a separate state.

    Args:
        seed: of the initial state.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> a, b = (tf.random.Generator.from_seed(1) for _ in range(2))
        >>> bool(tf.reduce_all(a.normal((2,)) == b.normal((2,))))
        True
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seeds = core.SeedGenerator(None if seed is None else int(seed) % 2**32)

    @classmethod
    def from_seed(cls, seed: int, alg: Any = None) -> Generator:
        """Create a generator from a seed."""
        refuse("Generator.from_seed", alg=(alg, None))
        return cls(seed)

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        """Create a generator from a non-deterministic seed."""
        refuse("Generator", alg=(alg, None))
        return cls(int(np.random.SeedSequence().generate_state(1)[0]))

    @property
    def state(self) -> Any:
        """Return the Variable with the state."""
        return self._seeds.state

    def reset_from_seed(self, seed: int) -> None:
        """Reset the state to a seed."""
        self._seeds.state.assign(np.array([int(seed) % 2**32, 0], "uint32"))

    @wrap_results
    def uniform(
        self,
        shape: Shape,
        minval: Any = 0,
        maxval: Any = None,
        dtype: DTypeLike = "float32",
        name: Any = None,
    ) -> Tensor:
        """Sample as `tf.random.uniform`."""
        return _uniform(shape, minval, maxval, dtype, self._seeds)

    @wrap_results
    def normal(
        self,
        shape: Shape,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: DTypeLike = "float32",
        name: Any = None,
    ) -> Tensor:
        """Sample as `tf.random.normal`."""
        return core.normal(extents(shape), mean, stddev, dtype_name(dtype), self._seeds)

    @wrap_results
    def truncated_normal(
        self,
        shape: Shape,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: DTypeLike = "float32",
        name: Any = None,
    ) -> Tensor:
        """Sample as `tf.random.truncated_normal`."""
        return core.truncated_normal(
            extents(shape), mean, stddev, dtype_name(dtype), self._seeds
        )

    @wrap_results
    def binomial(
        self,
        shape: Shape,
        counts: Any,
        probs: Any,
        dtype: DTypeLike = "int32",
        name: Any = None,
    ) -> Tensor:
        """Sample from the binomial distribution."""
        samples = core.binomial(extents(shape), counts, probs, "float64", self._seeds)
        return ops.cast(samples, dtype_name(dtype))

    @wrap_results
    def uniform_full_int(
        self, shape: Shape, dtype: DTypeLike = "uint64", name: Any = None
    ) -> Tensor:
        """Return integers from the whole range of a dtype."""
        return full_integers(shape, dtype, self._seeds)

    @wrap_results
    def make_seeds(self, count: int = 1) -> Tensor:
        """Return seeds for stateless functions, (2, count), int64."""
        return full_integers((2, int(count)), "int64", self._seeds)

    def split(self, count: int = 1) -> list[Generator]:
        """Return independent generators."""
        keys = [self._seeds.next().numpy() for _ in range(int(count))]
        words = [np.random.SeedSequence(key.tolist()).generate_state(1) for key in keys]
        return [Generator(int(word[0])) for word in words]


_global: list[Generator] = []


def get_global_generator() -> Generator:
    """Return the global generator."""
    if not _global:
        _global.append(Generator())
    return _global[0]


def set_global_generator(generator: Generator) -> None:
    """Set the global generator."""
    _global[:] = [generator]


def random_crop(value: Any, size: Any, seed: Any = None, name: Any = None) -> Tensor:
    """Crop a part of this size at a random offset."""
    value, size = convert(value), extents(size)
    limits = [n - s + 1 for n, s in zip(value.shape, size, strict=True)]
    if min(limits) < 1:
        raise ArgumentError(
            f"random_crop: expected a size within {tuple(value.shape)}; received {size}"
        )
    offsets = core.uniform((len(size),), seed=source(seed)) * convert(limits, "float32")
    return ops.slice(value, ops.cast(offsets, "int32"), size)


experimental: SimpleNamespace = SimpleNamespace(
    Algorithm=Algorithm,
    Generator=Generator,
    get_global_generator=get_global_generator,
    set_global_generator=set_global_generator,
    stateless_fold_in=fold_in,
    stateless_split=split,
)
make_operations(
    __name__, besides="key_of get_global_generator set_global_generator set_seed source"
)
vars(experimental).update(
    index_shuffle=index_shuffle, stateless_shuffle=stateless_shuffle
)
del index_shuffle, stateless_shuffle  # names only of `tf.random.experimental`
