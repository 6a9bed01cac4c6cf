"""`tf.random`: numbers from the global seed, an operation's, or a generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, ops, random as core
from toolkit.compat.tensorflow.arguments import dtype_name, extents, refuse
from toolkit.compat.tensorflow.boundary import of_tensors, operations
from toolkit.compat.tensorflow.views import convert
from toolkit.core.naming import root_scope
from toolkit.core.tensor import Tensor
from toolkit.core.trace import no_trace
from toolkit.errors import ArgumentError

# The seed of an operation -> where its numbers come from, until `set_seed`.
_of_operations: dict[int, core.SeedGenerator] = {}
_global_seed = 0


def set_seed(seed: int) -> None:
    """Make all that is drawn from now on repeatable, initial values of layers too.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.random.set_seed(1)
        >>> x = tf.random.normal((2,))
        >>> tf.random.set_seed(1)
        >>> bool(tf.reduce_all(x == tf.random.normal((2,))))
        True
    """
    global _global_seed
    _global_seed = int(seed) % 2**32
    core.set_random_seed(_global_seed)
    _of_operations.clear()


def source(seed: Any) -> Any:
    """Where an operation's numbers come from: new ones at each call.

    As there, a seed of the operation begins a sequence, which `set_seed` restarts.
    """
    if seed is None or isinstance(seed, core.SeedGenerator):
        return seed
    if seed not in _of_operations:
        both = np.random.SeedSequence([_global_seed, int(seed) % 2**32])
        with no_trace(), root_scope():
            _of_operations[seed] = core.SeedGenerator(int(both.generate_state(1)[0]))
    return _of_operations[seed]


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    seed: Any = None,
    name: Any = None,
) -> Tensor:
    """Uniform on [minval, maxval): floats, or integers of an integer dtype.

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
    """Normally distributed numbers."""
    return core.normal(extents(shape), mean, stddev, dtype_name(dtype), source(seed))


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    seed: Any = None,
    name: Any = None,
) -> Tensor:
    """Normally distributed numbers within two standard deviations."""
    return core.truncated_normal(
        extents(shape), mean, stddev, dtype_name(dtype), source(seed)
    )


def shuffle(value: Any, seed: Any = None, name: Any = None) -> Tensor:
    """The rows in a random order."""
    return core.shuffle(value, 0, source(seed))


def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: Any = None, name: Any = None
) -> Tensor:
    """Classes drawn by the logarithms of their probabilities; int64 by default."""
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
    """Numbers of the gamma distribution; those of each alpha on the last axes."""
    alpha = convert(alpha, dtype_name(dtype))
    whole = (*extents(shape), *alpha.shape)
    drawn = core.gamma(whole, alpha, dtype_name(dtype), source(seed))
    return drawn if beta is None else drawn / convert(beta, drawn.dtype)


def _key(seed: Any) -> Tensor:
    """The core's key of a stateless seed: two integers."""
    seed = np.asarray(seed)
    if seed.shape != (2,):
        raise ArgumentError(f"seed: expected two integers; received {seed.tolist()}")
    return convert(seed.astype("uint32"))


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    name: Any = None,
    alg: str = "auto_select",
) -> Tensor:
    """As `uniform`, and the same for the same seed of two integers."""
    refuse("stateless_uniform", alg=(alg, "auto_select"))
    return _uniform(shape, minval, maxval, dtype, _key(seed))


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    name: Any = None,
    alg: str = "auto_select",
) -> Tensor:
    """As `normal`, and the same for the same seed of two integers."""
    refuse("stateless_normal", alg=(alg, "auto_select"))
    return core.normal(extents(shape), mean, stddev, dtype_name(dtype), _key(seed))


def stateless_truncated_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    name: Any = None,
    alg: str = "auto_select",
) -> Tensor:
    """As `truncated_normal`, and the same for the same seed of two integers."""
    refuse("stateless_truncated_normal", alg=(alg, "auto_select"))
    return core.truncated_normal(
        extents(shape), mean, stddev, dtype_name(dtype), _key(seed)
    )


def stateless_categorical(
    logits: Any, num_samples: Any, seed: Any, dtype: Any = "int64", name: Any = None
) -> Tensor:
    """As `categorical`, and the same for the same seed of two integers."""
    return core.categorical(logits, int(num_samples), dtype_name(dtype), _key(seed))


class Generator:
    """A source of random numbers of its own.

    Args:
        seed: where it begins.

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
        """A generator that begins at a seed."""
        refuse("Generator.from_seed", alg=(alg, None))
        return cls(seed)

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        """A generator that begins anywhere."""
        refuse("Generator", alg=(alg, None))
        return cls(int(np.random.SeedSequence().generate_state(1)[0]))

    @property
    def state(self) -> Any:
        """The Variable that holds what comes next."""
        return self._seeds.state

    def reset_from_seed(self, seed: int) -> None:
        """Begin anew at a seed."""
        self._seeds.state.assign(np.array([int(seed) % 2**32, 0], "uint32"))

    @of_tensors
    def uniform(
        self,
        shape: Any,
        minval: Any = 0,
        maxval: Any = None,
        dtype: Any = "float32",
        name: Any = None,
    ) -> Tensor:
        """As `tf.random.uniform`."""
        return _uniform(shape, minval, maxval, dtype, self._seeds)

    @of_tensors
    def normal(
        self,
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = "float32",
        name: Any = None,
    ) -> Tensor:
        """As `tf.random.normal`."""
        return core.normal(extents(shape), mean, stddev, dtype_name(dtype), self._seeds)

    @of_tensors
    def truncated_normal(
        self,
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = "float32",
        name: Any = None,
    ) -> Tensor:
        """As `tf.random.truncated_normal`."""
        return core.truncated_normal(
            extents(shape), mean, stddev, dtype_name(dtype), self._seeds
        )

    def split(self, count: int = 1) -> list[Generator]:
        """Generators whose numbers have nothing to do with each other."""
        keys = [self._seeds.next().numpy() for _ in range(int(count))]
        words = [np.random.SeedSequence(key.tolist()).generate_state(1) for key in keys]
        return [Generator(int(word[0])) for word in words]


_global: list[Generator] = []


def get_global_generator() -> Generator:
    """The generator of the process."""
    if not _global:
        _global.append(Generator())
    return _global[0]


def set_global_generator(generator: Generator) -> None:
    """Choose the generator of the process."""
    _global[:] = [generator]


def random_crop(value: Any, size: Any, seed: Any = None, name: Any = None) -> Tensor:
    """A part of this size, from a random place."""
    value, size = convert(value), extents(size)
    limits = [n - s + 1 for n, s in zip(value.shape, size, strict=True)]
    if min(limits) < 1:
        raise ArgumentError(
            f"random_crop: expected a size within {tuple(value.shape)}; received {size}"
        )
    places = core.uniform((len(size),), seed=source(seed)) * convert(limits, "float32")
    return ops.slice(value, ops.cast(places, "int32"), size)


operations(
    __name__, besides="get_global_generator set_global_generator set_seed source"
)
