"""`tf.random`: random numbers from the global seed, an operation seed, or a
generator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from toolkit import ops, random as core
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
    set_seed as set_seed,
    source as source,
    split as split,
)
from toolkit.compat.tensorflow.stateless_random import (
    draw_poisson,
    draw_uniform,
    index_shuffle as index_shuffle,
    stateless_binomial as stateless_binomial,
    stateless_categorical as stateless_categorical,
    stateless_gamma as stateless_gamma,
    stateless_normal as stateless_normal,
    stateless_parameterized_truncated_normal as stateless_parameterized_truncated_normal,  # noqa: E501
    stateless_poisson as stateless_poisson,
    stateless_shuffle as stateless_shuffle,
    stateless_truncated_normal as stateless_truncated_normal,
    stateless_uniform as stateless_uniform,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.type_aliases import DTypeLike, SeedLike, Shape, TensorLike


def uniform(
    shape: ShapeLike,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = "float32",
    seed: SeedLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Sample from the uniform distribution on [minval, maxval): floats or integers.

    Args:
        shape: of the result.
        minval: 0 by default.
        maxval: 1 by default for floats, and needed for integers.
        dtype: of the result.
        seed: of the operation.
    """
    return draw_uniform(shape, minval, maxval, dtype, source(seed))


def normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    seed: SeedLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Sample from the normal distribution."""
    return core.normal(extents(shape), mean, stddev, dtype_name(dtype), source(seed))


def truncated_normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = "float32",
    seed: SeedLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Sample from the normal distribution within two standard deviations."""
    return core.truncated_normal(
        extents(shape), mean, stddev, dtype_name(dtype), source(seed)
    )


def shuffle(
    value: TensorLike, seed: SeedLike | None = None, name: str | None = None
) -> Tensor:
    """Shuffle the rows."""
    return core.shuffle(value, 0, source(seed))


def categorical(
    logits: Any,
    num_samples: Any,
    dtype: Any = None,
    seed: Any = None,
    name: str | None = None,
) -> Tensor:
    """Sample classes by the logarithms of their probabilities; int64 by default."""
    dtype = dtype_name(dtype) or "int64"
    return core.categorical(logits, int(num_samples), dtype, source(seed))


def gamma(
    shape: Shape,
    alpha: Any,
    beta: TensorLike | None = None,
    dtype: DTypeLike = "float32",
    seed: SeedLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Sample from the gamma distribution; the axes of alpha are the last axes."""
    alpha = convert(alpha, dtype_name(dtype))
    full_shape = (*extents(shape), *alpha.shape)
    samples = core.gamma(full_shape, alpha, dtype_name(dtype), source(seed))
    return samples if beta is None else samples / convert(beta, samples.dtype)


def poisson(
    shape: ShapeLike,
    lam: TensorLike,
    dtype: DTypeLike = "float32",
    seed: SeedLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Sample from the Poisson distribution.

    Args:
        shape: the sample shape of each rate, the first axes of the result.
        lam: the rates, the last axes of the result.
        dtype: of the result, float or integer.
        seed: of the operation.
    """
    rates = convert(lam)
    return draw_poisson((*extents(shape), *rates.shape), rates, dtype, source(seed))


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
        minval: TensorLike = 0,
        maxval: TensorLike | None = None,
        dtype: DTypeLike = "float32",
        name: str | None = None,
    ) -> Tensor:
        """Sample as `tf.random.uniform`."""
        return draw_uniform(shape, minval, maxval, dtype, self._seeds)

    @wrap_results
    def normal(
        self,
        shape: Shape,
        mean: TensorLike = 0.0,
        stddev: TensorLike = 1.0,
        dtype: DTypeLike = "float32",
        name: str | None = None,
    ) -> Tensor:
        """Sample as `tf.random.normal`."""
        return core.normal(extents(shape), mean, stddev, dtype_name(dtype), self._seeds)

    @wrap_results
    def truncated_normal(
        self,
        shape: Shape,
        mean: TensorLike = 0.0,
        stddev: TensorLike = 1.0,
        dtype: DTypeLike = "float32",
        name: str | None = None,
    ) -> Tensor:
        """Sample as `tf.random.truncated_normal`."""
        return core.truncated_normal(
            extents(shape), mean, stddev, dtype_name(dtype), self._seeds
        )

    @wrap_results
    def binomial(
        self,
        shape: Shape,
        counts: TensorLike,
        probs: TensorLike,
        dtype: DTypeLike = "int32",
        name: str | None = None,
    ) -> Tensor:
        """Sample from the binomial distribution."""
        samples = core.binomial(extents(shape), counts, probs, "float64", self._seeds)
        return ops.cast(samples, dtype_name(dtype))

    @wrap_results
    def uniform_full_int(
        self, shape: Shape, dtype: DTypeLike = "uint64", name: str | None = None
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


def random_crop(
    value: Any, size: Any, seed: SeedLike | None = None, name: str | None = None
) -> Tensor:
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
