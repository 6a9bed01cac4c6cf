"""TensorFlow 1's initializers: in a graph, an operation that draws anew in each run."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, initializers, ops
from toolkit.compat.tensorflow.modes import building_graph
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.seeds import GraphSeed
from toolkit.compat.tensorflow.views import convert
from toolkit.errors import ShapeError


class _Initializer:
    """One of the core's initializers that take a seed, as a function of graphs.

    Args:
        kind: the class of the core.
        seed: an integer, or None for that of the graph.
        dtype: of what it makes unless it is told.
        options: arguments of the class.
    """

    def __init__(self, kind: Any, seed: Any, dtype: Any, **options: Any) -> None:
        self._kind, self._seed, self._options = kind, seed, options
        self.dtype: str = dtypes.standardize(dtype)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        """A tensor of this shape."""
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
    """Uniform between minval and maxval."""
    kind = initializers.RandomUniform
    return _Initializer(kind, seed, dtype, minval=minval, maxval=maxval)


def random_normal_initializer(
    mean: float = 0.0, stddev: float = 1.0, seed: Any = None, dtype: Any = "float32"
) -> _Initializer:
    """Normal with this mean and standard deviation."""
    kind = initializers.RandomNormal
    return _Initializer(kind, seed, dtype, mean=mean, stddev=stddev)


def truncated_normal_initializer(
    mean: float = 0.0, stddev: float = 1.0, seed: Any = None, dtype: Any = "float32"
) -> _Initializer:
    """Normal, without what is further from the mean than two standard deviations."""
    kind = initializers.TruncatedNormal
    return _Initializer(kind, seed, dtype, mean=mean, stddev=stddev)


def variance_scaling_initializer(
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    seed: Any = None,
    dtype: Any = "float32",
) -> _Initializer:
    """Of variance scale / n, where n is the number of inputs, outputs or their mean."""
    kind = initializers.VarianceScaling
    distribution = "truncated_normal" if distribution == "normal" else distribution
    options = {"scale": scale, "mode": mode, "distribution": distribution}
    return _Initializer(kind, seed, dtype, **options)


def glorot_uniform_initializer(
    seed: Any = None, dtype: Any = "float32"
) -> _Initializer:
    """Uniform within sqrt(6 / (inputs + outputs))."""
    return _Initializer(initializers.GlorotUniform, seed, dtype)


def glorot_normal_initializer(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Truncated normal of variance 2 / (inputs + outputs)."""
    return _Initializer(initializers.GlorotNormal, seed, dtype)


def he_normal(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Truncated normal of variance 2 / inputs."""
    return _Initializer(initializers.HeNormal, seed, dtype)


def he_uniform(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Uniform within sqrt(6 / inputs)."""
    return _Initializer(initializers.HeUniform, seed, dtype)


def lecun_normal(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Truncated normal of variance 1 / inputs."""
    return _Initializer(initializers.LecunNormal, seed, dtype)


def lecun_uniform(seed: Any = None, dtype: Any = "float32") -> _Initializer:
    """Uniform within sqrt(3 / inputs)."""
    return _Initializer(initializers.LecunUniform, seed, dtype)


class _Orthogonal:
    """The core's `Orthogonal`, in operations that a graph records.

    Args:
        gain: the factor of the result.
        seed: where its numbers come from.
    """

    def __init__(self, gain: float, seed: Any) -> None:
        self._gain, self._seed = gain, seed

    def __call__(self, shape: Any, dtype: Any) -> Any:
        """A tensor of this shape; its last axis is that of the columns."""
        if len(shape) < 2:
            raise ShapeError(
                f"orthogonal_initializer: expected two axes or more; received {shape}"
            )
        columns = shape[-1]
        rows = int(np.prod(shape[:-1], dtype=int))
        tall = max(rows, columns), min(rows, columns)
        drawn = initializers.RandomNormal(0.0, 1.0, seed=self._seed)(tall, dtype=dtype)
        q, r = ops.qr(drawn)
        q = q * ops.sign(ops.diagonal(r))  # else the signs are not uniform
        q = ops.transpose(q) if rows < columns else q
        return ops.reshape(self._gain * q, shape)


def orthogonal_initializer(
    gain: float = 1.0, seed: Any = None, dtype: Any = "float32"
) -> _Initializer:
    """A matrix with orthogonal rows or columns, times gain."""
    return _Initializer(_Orthogonal, seed, dtype, gain=gain)


class _Filled(initializers.Initializer):
    """A constant of the core's, with a dtype of its own.

    Args:
        dtype: of what it makes unless it is told.
    """

    def __init__(self, dtype: Any = "float32") -> None:
        self.dtype: str = dtypes.standardize(dtype)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return super().__call__(shape, dtype or self.dtype)


class zeros_initializer(_Filled, initializers.Zeros):
    """Zeros, of `dtype` unless it is told."""


class ones_initializer(_Filled, initializers.Ones):
    """Ones, of `dtype` unless it is told."""


class constant_initializer(initializers.Initializer):
    """One value everywhere, or an array of as many elements as are wanted.

    Args:
        value: a number, a list or an array.
        dtype: of what it makes unless it is told.
    """

    value: Any
    dtype: str

    def __init__(self, value: Any = 0, dtype: Any = "float32") -> None:
        self.value, self.dtype = value, dtypes.standardize(dtype)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        dtype = dtypes.standardize(dtype or self.dtype)
        values = np.asarray(self.value, dtypes.numpy_dtype(dtype))
        size = int(np.prod(shape, dtype=int))
        if values.ndim and values.size != size:
            raise ShapeError(
                f"constant_initializer: expected {size} values for shape "
                f"{tuple(shape)}; received {values.size}"
            )
        whole = values.reshape(shape) if values.ndim else np.full(shape, values)
        return convert(whole, dtype)
