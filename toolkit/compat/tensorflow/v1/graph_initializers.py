"""Initializers of TensorFlow 1: in a graph, operations with new numbers in each run."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, initializers, ops
from toolkit.compat.tensorflow.modes import building_graph
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.seeds import GraphSeed
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.type_aliases import DTypeLike, Shape


class _Initializer:
    """Graph version of a toolkit initializer with a seed.

    Args:
        kind: the class of toolkit.
        seed: an integer, or None for the seed of the graph.
        dtype: the default dtype of the result.
        options: arguments of the class.
    """

    def __init__(self, kind: Any, seed: int | None, dtype: Any, **options: Any) -> None:
        self._kind, self._seed, self._options = kind, seed, options
        self.dtype: str = dtypes.standardize(dtype)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        """Return a tensor of this shape."""
        shape, dtype = tuple(shape), dtypes.standardize(dtype or self.dtype)

        def draw(seed: Any) -> Any:
            return self._kind(**self._options, seed=seed)(shape, dtype=dtype)

        if not building_graph():
            return draw(self._seed)
        draw.__name__ = self._kind.__name__.removeprefix("_")
        graph = get_default_graph()
        return graph.record(draw, (GraphSeed(graph, self._seed),), {})


def random_uniform_initializer(
    minval: float = 0.0, maxval: float = 1.0, seed: Any = None, dtype: Any = "float32"
) -> _Initializer:
    """Create an initializer: uniform between minval and maxval."""
    kind = initializers.RandomUniform
    return _Initializer(kind, seed, dtype, minval=minval, maxval=maxval)


def random_normal_initializer(
    mean: float = 0.0, stddev: float = 1.0, seed: Any = None, dtype: Any = "float32"
) -> _Initializer:
    """Create an initializer: normal with this mean and standard deviation."""
    kind = initializers.RandomNormal
    return _Initializer(kind, seed, dtype, mean=mean, stddev=stddev)


def truncated_normal_initializer(
    mean: float = 0.0, stddev: float = 1.0, seed: Any = None, dtype: Any = "float32"
) -> _Initializer:
    """Create an initializer: normal within two standard deviations of the mean."""
    kind = initializers.TruncatedNormal
    return _Initializer(kind, seed, dtype, mean=mean, stddev=stddev)


def variance_scaling_initializer(
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    seed: Any = None,
    dtype: Any = "float32",
) -> _Initializer:
    """Create an initializer with variance scale / n; n: inputs, outputs or their
    mean."""
    kind = initializers.VarianceScaling
    distribution = "truncated_normal" if distribution == "normal" else distribution
    options = {"scale": scale, "mode": mode, "distribution": distribution}
    return _Initializer(kind, seed, dtype, **options)


def glorot_uniform_initializer(
    seed: Any = None, dtype: Any = "float32"
) -> _Initializer:
    """Create an initializer: uniform within sqrt(6 / (inputs + outputs))."""
    return _Initializer(initializers.GlorotUniform, seed, dtype)


def glorot_normal_initializer(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Create an initializer: truncated normal with variance 2 / (inputs + outputs)."""
    return _Initializer(initializers.GlorotNormal, seed, dtype)


def he_normal(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Create an initializer: truncated normal with variance 2 / inputs."""
    return _Initializer(initializers.HeNormal, seed, dtype)


def he_uniform(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Create an initializer: uniform within sqrt(6 / inputs)."""
    return _Initializer(initializers.HeUniform, seed, dtype)


def lecun_normal(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Create an initializer: truncated normal with variance 1 / inputs."""
    return _Initializer(initializers.LecunNormal, seed, dtype)


def lecun_uniform(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Create an initializer: uniform within sqrt(3 / inputs)."""
    return _Initializer(initializers.LecunUniform, seed, dtype)


class _Orthogonal:
    """Graph version of toolkit's `Orthogonal`.

    Args:
        gain: the factor of the result.
        seed: of the random numbers.
    """

    def __init__(self, gain: float, seed: int | None) -> None:
        self._gain, self._seed = gain, seed

    def __call__(self, shape: Any, dtype: Any) -> Any:
        """Return a tensor of this shape; its last axis has the columns."""
        if len(shape) < 2:
            raise ShapeError(
                f"orthogonal_initializer: expected two axes or more; received {shape}"
            )
        columns = shape[-1]
        rows = int(np.prod(shape[:-1], dtype=int))
        tall = max(rows, columns), min(rows, columns)
        samples = initializers.RandomNormal(0.0, 1.0, seed=self._seed)(
            tall, dtype=dtype
        )
        q, r = ops.qr(samples)
        q = q * ops.sign(ops.diagonal(r))  # otherwise the signs are not uniform
        q = ops.transpose(q) if rows < columns else q
        return ops.reshape(self._gain * q, shape)


def orthogonal_initializer(
    gain: float = 1.0, seed: Any = None, dtype: Any = "float32"
) -> _Initializer:
    """Create an initializer: orthogonal rows or columns, times gain."""
    return _Initializer(_Orthogonal, seed, dtype, gain=gain)


class _DtypeInitializer(initializers.Initializer):
    """A toolkit initializer with a default dtype.

    Args:
        dtype: the default dtype of the result.
    """

    def __init__(self, dtype: Any = "float32") -> None:
        self.dtype: str = dtypes.standardize(dtype)

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Any:
        return super().__call__(shape, dtype or self.dtype)


class zeros_initializer(_DtypeInitializer, initializers.Zeros):
    """Initializer with zeros, by default of `dtype`."""


class ones_initializer(_DtypeInitializer, initializers.Ones):
    """Initializer with ones, by default of `dtype`."""


class constant_initializer(initializers.Initializer):
    """Initializer with a constant value, or with one value per element.

    Args:
        value: a number, a list or an array.
        dtype: the default dtype of the result.
    """

    value: Any
    dtype: str

    def __init__(self, value: Any = 0, dtype: Any = "float32") -> None:
        self.value, self.dtype = value, dtypes.standardize(dtype)

    def __call__(self, shape: Any, dtype: Any = None) -> Tensor:
        dtype = dtypes.standardize(dtype or self.dtype)
        values = np.asarray(self.value, dtypes.numpy_dtype(dtype))
        size = int(np.prod(shape, dtype=int))
        if values.ndim and values.size != size:
            raise ShapeError(
                f"constant_initializer: expected {size} values for shape "
                f"{tuple(shape)}; received {values.size}"
            )
        result = values.reshape(shape) if values.ndim else np.full(shape, values)
        return convert(result, dtype)
