"""Initializers that draw random numbers.

An initializer with an integer seed, or without a seed, returns the same values at each
call. With a SeedGenerator, each call returns new values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from toolkit import dtypes
from toolkit.arguments import Axes, NonNegative
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, device, run_on_host
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.initializers.base import Initializer, checked_shape
from toolkit.ops.decomposition import qr_p
from toolkit.random import (
    SeedGenerator,
    make_default_seed,
    normal,
    truncated_normal,
    uniform,
)
from toolkit.random.seeds import draw_seed
from toolkit.reading.budget import check_temporary, spend_time
from toolkit.serialization import deserialize_keras_object, serialize_keras_object
from toolkit.type_aliases import DTypeLike, SeedLike, Shape

_MODES = ("fan_in", "fan_out", "fan_avg")
_DISTRIBUTIONS = ("uniform", "truncated_normal", "untruncated_normal")
# The standard deviation of a standard normal variable that is cut off at -2 and 2.
_TRUNCATED_STDDEV = 0.87962566103423978


class RandomInitializer(Initializer):
    """Base class of initializers with a seed.

    Args:
        seed: an integer, a SeedGenerator, its config, or None to draw an integer from
            Python's `random`.

    Example:
        >>> import toolkit
        >>> class Signs(toolkit.initializers.RandomInitializer):
        ...     def __call__(self, shape, dtype=None):
        ...         x = toolkit.random.normal(shape, seed=self.seed)
        ...         return toolkit.ops.sign(x)
        ...
        >>> toolkit.ops.abs(Signs(seed=1)((3,))).tolist()
        [1.0, 1.0, 1.0]
    """

    # A load of a model does not compute the value of a weight that the file replaces.
    is_random: ClassVar[bool] = True
    # The constructor's arguments without the seed.
    arguments: tuple[str, ...] = ()

    def __init__(self, seed: SeedLike | None = None) -> None:
        self._init_seed = seed
        if seed is None:
            seed = make_default_seed()
        elif isinstance(seed, dict):
            seed = deserialize_keras_object(seed)
        if not isinstance(seed, (int, np.integer, SeedGenerator)):
            raise ArgumentError(
                f"{type(self).__name__}: expected seed, an integer, a SeedGenerator or "
                f"None; received {seed!r}"
            )
        self.seed: Any = seed

    def get_config(self) -> dict[str, Any]:
        config = {name: getattr(self, name) for name in self.arguments}
        return {**config, "seed": serialize_keras_object(self._init_seed)}


class RandomNormal(RandomInitializer):
    """Initializer that draws from a normal distribution.

    Args:
        mean, stddev: parameters of the distribution.
        seed: an integer, a SeedGenerator, or None.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.RandomNormal(stddev=0.1, seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)
    """

    arguments: tuple[str, ...] = ("mean", "stddev")

    def __init__(
        self,
        mean: float = 0.0,
        stddev: NonNegative = 0.05,
        seed: SeedLike | None = None,
    ) -> None:
        self.mean = mean
        self.stddev = stddev
        super().__init__(seed)

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        return normal(checked_shape(shape), self.mean, self.stddev, dtype, self.seed)


class TruncatedNormal(RandomNormal):
    """Initializer that draws from a normal distribution truncated at 2 stddev.

    Args:
        mean, stddev: parameters of the distribution before truncation.
        seed: an integer, a SeedGenerator, or None.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.TruncatedNormal(stddev=0.1, seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)
    """

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        shape = checked_shape(shape)
        return truncated_normal(shape, self.mean, self.stddev, dtype, self.seed)


class RandomUniform(RandomInitializer):
    """Initializer that draws from a uniform distribution.

    Args:
        minval, maxval: the bounds.
        seed: an integer, a SeedGenerator, or None.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.RandomUniform(-1.0, 1.0, seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)
    """

    arguments: tuple[str, ...] = ("minval", "maxval")

    def __init__(
        self, minval: float = -0.05, maxval: float = 0.05, seed: SeedLike | None = None
    ) -> None:
        self.minval = minval
        self.maxval = maxval
        super().__init__(seed)

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        return uniform(checked_shape(shape), self.minval, self.maxval, dtype, self.seed)


class VarianceScaling(RandomInitializer):
    """Initializer with mean 0 and variance `scale` divided by the number of units.

    Args:
        scale: > 0.
        mode: the divisor: "fan_in", the number of inputs of a unit; "fan_out", the
            number of its outputs; or "fan_avg", their mean.
        distribution: "truncated_normal" (also called "normal"), "untruncated_normal"
            or "uniform".
        seed: an integer, a SeedGenerator, or None.
        input_axes, output_axes: the weight's axes that count as inputs and as outputs.
            If either is None, they are the last two axes, and the axes before them are
            the window of a convolution.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.VarianceScaling(2.0, "fan_out", seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)
    """

    arguments: tuple[str, ...] = (
        "scale",
        "mode",
        "distribution",
        "input_axes",
        "output_axes",
    )

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: SeedLike | None = None,
        input_axes: Axes = None,
        output_axes: Axes = None,
    ) -> None:
        if not scale > 0:
            raise ArgumentError(
                f"VarianceScaling: expected scale > 0; received {scale}"
            )
        if mode not in _MODES:
            raise unknown_choice("VarianceScaling: mode", mode, _MODES)
        name = str(distribution).lower()
        name = "truncated_normal" if name == "normal" else name
        if name not in _DISTRIBUTIONS:
            raise unknown_choice(
                "VarianceScaling: distribution", distribution, _DISTRIBUTIONS
            )
        self.scale = scale
        self.mode = mode
        self.distribution = name
        self.input_axes = input_axes
        self.output_axes = output_axes
        super().__init__(seed)

    def for_axes(self, inputs: Sequence[int], outputs: Sequence[int]) -> Self:
        """Return this initializer with these axes, unless it already has axes.

        Args:
            inputs: the axes of the weight that are inputs.
            outputs: the axes of the weight that are outputs.
        """
        if self.input_axes is not None and self.output_axes is not None:
            return self
        copied = copy(self)
        copied.input_axes, copied.output_axes = list(inputs), list(outputs)
        return copied

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        shape = checked_shape(shape)
        fan_in, fan_out = compute_fans(shape, self.input_axes, self.output_axes)
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        stddev = math.sqrt(self.scale / max(1.0, fans[self.mode]))
        if self.distribution == "uniform":
            limit = math.sqrt(3) * stddev
            return uniform(shape, -limit, limit, dtype, self.seed)
        if self.distribution == "untruncated_normal":
            return normal(shape, 0.0, stddev, dtype, self.seed)
        return truncated_normal(
            shape, 0.0, stddev / _TRUNCATED_STDDEV, dtype, self.seed
        )


def compute_fans(
    shape: tuple[int, ...], input_axes: Axes = None, output_axes: Axes = None
) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of a unit with weights of `shape`."""
    if input_axes is not None and output_axes is not None:
        fan_in = math.prod(shape[axis] for axis in input_axes)
        return fan_in, math.prod(shape[axis] for axis in output_axes)
    if len(shape) < 2:
        n = shape[0] if shape else 1
        return n, n
    window = math.prod(shape[:-2])
    return window * shape[-2], window * shape[-1]


class _Preset(VarianceScaling):
    """VarianceScaling with three fixed arguments."""

    arguments: tuple[str, ...] = ("input_axes", "output_axes")
    preset: tuple[float, str, str]

    def __init__(
        self,
        seed: SeedLike | None = None,
        input_axes: Axes = None,
        output_axes: Axes = None,
    ) -> None:
        super().__init__(*self.preset, seed, input_axes, output_axes)


class GlorotUniform(_Preset):
    """Uniform initializer on [-limit, limit], limit = sqrt(6 / (fan_in + fan_out)).

    Args:
        seed, input_axes, output_axes: as for `VarianceScaling`.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.GlorotUniform(seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)

    Reference:
        https://proceedings.mlr.press/v9/glorot10a.html
    """

    preset: tuple[float, str, str] = (1.0, "fan_avg", "uniform")


class GlorotNormal(_Preset):
    """Truncated normal initializer of variance 2 / (fan_in + fan_out).

    Args:
        seed, input_axes, output_axes: as for `VarianceScaling`.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.GlorotNormal(seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)

    Reference:
        https://proceedings.mlr.press/v9/glorot10a.html
    """

    preset: tuple[float, str, str] = (1.0, "fan_avg", "truncated_normal")


class HeUniform(_Preset):
    """Uniform initializer on [-limit, limit], limit = sqrt(6 / fan_in).

    Args:
        seed, input_axes, output_axes: as for `VarianceScaling`.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.HeUniform(seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)

    Reference:
        https://arxiv.org/abs/1502.01852
    """

    preset: tuple[float, str, str] = (2.0, "fan_in", "uniform")


class HeNormal(_Preset):
    """Truncated normal initializer of variance 2 / fan_in.

    Args:
        seed, input_axes, output_axes: as for `VarianceScaling`.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.HeNormal(seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)

    Reference:
        https://arxiv.org/abs/1502.01852
    """

    preset: tuple[float, str, str] = (2.0, "fan_in", "truncated_normal")


class LecunUniform(_Preset):
    """Uniform initializer on [-limit, limit], limit = sqrt(3 / fan_in).

    Args:
        seed, input_axes, output_axes: as for `VarianceScaling`.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.LecunUniform(seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)

    Reference:
        https://arxiv.org/abs/1706.02515
    """

    preset: tuple[float, str, str] = (1.0, "fan_in", "uniform")


class LecunNormal(_Preset):
    """Truncated normal initializer of variance 1 / fan_in.

    Args:
        seed, input_axes, output_axes: as for `VarianceScaling`.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.LecunNormal(seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)

    Reference:
        https://arxiv.org/abs/1706.02515
    """

    preset: tuple[float, str, str] = (1.0, "fan_in", "truncated_normal")


class Orthogonal(RandomInitializer):
    """Initializer that returns a random matrix with orthonormal columns or rows.

    The shorter side is orthonormal. For a weight with more than two axes, the leading
    axes are flattened into one.

    Args:
        gain: the factor of the matrix.
        seed: an integer, a SeedGenerator, or None.

    Example:
        >>> import toolkit
        >>> initializer = toolkit.initializers.Orthogonal(seed=1)
        >>> layer = toolkit.layers.Dense(4, kernel_initializer=initializer)
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)

    Reference:
        https://arxiv.org/abs/1312.6120
    """

    arguments: tuple[str, ...] = ("gain",)

    def __init__(self, gain: float = 1.0, seed: SeedLike | None = None) -> None:
        self.gain = gain
        super().__init__(seed)

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        shape = checked_shape(shape)
        if len(shape) < 2:
            raise ShapeError(f"Orthogonal: expected 2 axes or more; received {shape}")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        tall = (max(rows, columns), min(rows, columns))
        _count_factors(*tall)
        key = draw_seed(self.seed)
        with device("cpu:0"):  # also the device of the factorization
            start = normal(tall, dtype="float64", seed=key)
        q, r = (x.numpy() for x in run_on_host(qr_p, (start,), {"complete": False}))
        # With a positive diagonal of r, q is uniform in the orthogonal matrices.
        q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
        q = q if rows >= columns else q.T
        kind = dtypes.numpy_dtype(dtypes.standardize(dtype))
        return convert((self.gain * q.reshape(shape)).astype(kind))


# Measured with OpenBLAS on two cores: operations of both factors per second, and bytes
# of float64 matrices per element.
_OPERATIONS_PER_SECOND = 20e9
_BYTES_OF_ELEMENT = 60


def _count_factors(rows: int, columns: int) -> None:
    """Check the cost of a factorization before it runs; a config can name any size."""
    label = f"Orthogonal of a matrix of shape {(rows, columns)}"
    check_temporary(_BYTES_OF_ELEMENT * rows * columns, label)
    spend_time(4 * rows * columns**2 / _OPERATIONS_PER_SECOND, label)
