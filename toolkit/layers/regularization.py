"""Dropout and noise: layers that perturb their inputs in training only."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed, is_int
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.weights import fraction
from toolkit.random.seeds import as_generator
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import PolicyLike, RegularizedLayerOptions, Shape

# The limit of SELU for small inputs: -alpha * scale of the paper.
_SELU_LIMIT = -1.6732632423543772 * 1.0507009873554805


class Dropout(Layer):
    """Dropout: in training, sets random inputs to 0 and scales the rest up.

    Kept inputs are divided by `1 - rate`, so that the expected sum does not change.

    Args:
        rate: the fraction to drop, in [0, 1].
        noise_shape: shape of the mask, which broadcasts; None inside it: the extent of
            the inputs.
        seed: an integer, for reproducible masks, or a SeedGenerator.

    Call arguments:
        training: whether to apply dropout; otherwise the layer is the identity.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Dropout(0.5, seed=1)
        >>> float(toolkit.ops.max(layer(toolkit.ops.ones((8, 8)), training=True)))
        2.0

    Reference: https://jmlr.org/papers/v15/srivastava14a.html
    """

    def __init__(
        self,
        rate: float,
        noise_shape: Shape | None = None,
        seed: Seed = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.rate: float = fraction(self, "rate", rate)
        self.seed = seed
        self.noise_shape: tuple[int | None, ...] | None = _checked_noise_shape(
            noise_shape
        )
        if rate > 0:
            self.seed_generator: random.SeedGenerator = as_generator(seed)
        self.supports_masking = True

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        if not training or self.rate == 0:
            return inputs
        shape = self._noise_shape(inputs)
        return random.dropout(inputs, self.rate, shape, self.seed_generator)

    def _noise_shape(self, inputs: Tensor) -> tuple[int, ...] | None:
        """Return the shape of the mask; None means the shape of the inputs."""
        if self.noise_shape is None:
            return None
        if len(self.noise_shape) != inputs.ndim:
            raise ArgumentError(
                f"Dropout: noise_shape {self.noise_shape} must have the same number "
                f"of axes as the inputs; received shape {inputs.shape}"
            )
        pairs = zip(self.noise_shape, inputs.shape, strict=True)
        return tuple(n if extent is None else extent for extent, n in pairs)


def _checked_noise_shape(noise_shape: Any) -> tuple[int | None, ...] | None:
    if noise_shape is None:
        return None
    is_sequence = isinstance(noise_shape, (list, tuple))
    if not is_sequence or not all(
        n is None or (is_int(n) and n > 0) for n in noise_shape
    ):
        expected = "a tuple or list of integers"
        if is_sequence:
            numbers = all(n is None or is_int(n) for n in noise_shape)
            requirement = "dimensions to be positive" if numbers else "elements to be"
            expected = f"all {requirement} integers or None"
        raise ArgumentError(
            "Dropout: Invalid value received for argument `noise_shape`. Expected "
            f"{expected}; received {noise_shape!r}"
        )
    return tuple(noise_shape)


class AlphaDropout(Dropout):
    """Dropout that preserves mean and variance, for SELU networks.

    Args:
        rate: the fraction to drop, in [0, 1].
        noise_shape: shape of the mask, which broadcasts; None inside it: the extent of
            the inputs.
        seed: an integer or a SeedGenerator.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.AlphaDropout(0.5, seed=1)
        >>> layer(toolkit.ops.ones((2, 3))).tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
        >>> layer(toolkit.ops.ones((2, 3)), training=True).shape
        (2, 3)

    Reference: https://arxiv.org/abs/1706.02515
    """

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        if not training or self.rate == 0:
            return inputs
        if self.rate == 1:  # the limit: the variance is 0
            return ops.zeros_like(inputs)
        shape = self._noise_shape(inputs) or inputs.shape
        mask = ops.greater_equal(
            random.uniform(shape, seed=self.seed_generator), self.rate
        )
        x = ops.where(mask, inputs, _SELU_LIMIT)
        # Affine, so that the result has the mean and variance of the inputs.
        a = ((1 - self.rate) * (1 + self.rate * _SELU_LIMIT**2)) ** -0.5
        return a * x - a * _SELU_LIMIT * self.rate


class _SpatialDropout(Dropout):
    """Dropout of whole feature maps."""

    rank: int

    def __init__(
        self,
        rate: float,
        data_format: str | None = None,
        seed: Seed = None,
        name: str | None = None,
        dtype: PolicyLike | None = None,
    ) -> None:
        super().__init__(rate, seed=seed, name=name, dtype=dtype)
        self.data_format: str = standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> _SpatialDropout:
        """Build a layer from a config; early files also contain `trainable`.

        Args:
            config: the result of `get_config`.

        Returns:
            The layer.
        """
        arguments = {key: value for key, value in config.items() if key != "trainable"}
        return super().from_config(arguments)

    def _noise_shape(self, inputs: Tensor) -> tuple[int, ...]:
        shape, ones = inputs.shape, (1,) * self.rank
        if self.data_format == "channels_first":
            return (*shape[:2], *ones)
        return (shape[0], *ones, shape[-1])


class SpatialDropout1D(_SpatialDropout):
    """Dropout of whole channels of a sequence.

    Args:
        rate: the fraction of the channels to drop, in [0, 1].
        seed: an integer or a SeedGenerator.
        name, dtype: as for all layers.

    Input and output shape: (batch, steps, channels).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.SpatialDropout1D(0.5, seed=1)
        >>> y = layer(toolkit.ops.ones((1, 4, 8)), training=True)
        >>> toolkit.ops.mean(y, axis=1).tolist()
        [[0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]]
    """

    rank = 1

    def __init__(
        self,
        rate: float,
        seed: Seed = None,
        name: str | None = None,
        dtype: PolicyLike | None = None,
    ) -> None:
        super().__init__(rate, "channels_last", seed, name, dtype)


class SpatialDropout2D(_SpatialDropout):
    """Dropout of whole channels of images.

    Args:
        rate: the fraction of the channels to drop, in [0, 1].
        data_format: "channels_last" or "channels_first"; the global setting if None.
        seed: an integer or a SeedGenerator.
        name, dtype: as for all layers.

    Input and output shape: (batch, height, width, channels) if channels last.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.SpatialDropout2D(0.5, seed=1)
        >>> y = layer(toolkit.ops.ones((1, 4, 4, 8)), training=True)
        >>> toolkit.ops.mean(y, axis=(1, 2)).tolist()
        [[0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]]
    """

    rank = 2


class SpatialDropout3D(_SpatialDropout):
    """Dropout of whole channels of volumes.

    Args:
        rate: the fraction of the channels to drop, in [0, 1].
        data_format: "channels_last" or "channels_first"; the global setting if None.
        seed: an integer or a SeedGenerator.
        name, dtype: as for all layers.

    Input and output shape: (batch, depth, height, width, channels) if channels last.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.SpatialDropout3D(0.5, seed=1)
        >>> y = layer(toolkit.ops.ones((1, 4, 4, 4, 8)), training=True)
        >>> toolkit.ops.mean(y, axis=(1, 2, 3)).tolist()
        [[0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]]
    """

    rank = 3


class GaussianNoise(Layer):
    """Additive Gaussian noise in training, with mean 0.

    Args:
        stddev: standard deviation of the noise.
        seed: an integer or a SeedGenerator.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.GaussianNoise(0.1, seed=1)
        >>> layer(toolkit.ops.ones((2, 2))).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        >>> y = layer(toolkit.ops.ones((1000,)), training=True)
        >>> round(float(toolkit.ops.std(y)), 1)
        0.1
    """

    def __init__(
        self,
        stddev: float,
        seed: Seed = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if stddev < 0:
            raise ArgumentError(
                f"GaussianNoise: stddev must be >= 0; received {stddev!r}"
            )
        self.stddev = stddev
        self.seed = seed
        if stddev > 0:
            self.seed_generator: random.SeedGenerator = as_generator(seed)
        self.supports_masking = True

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        if not training or self.stddev == 0:
            return inputs
        return inputs + random.normal(
            inputs.shape,
            stddev=self.stddev,
            dtype=self.compute_dtype,
            seed=self.seed_generator,
        )


class GaussianDropout(Layer):
    """Multiplicative Gaussian noise in training, with mean 1.

    Args:
        rate: the variance of the noise is `rate / (1 - rate)`; in [0, 1).
        seed: an integer or a SeedGenerator.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.GaussianDropout(0.5, seed=1)
        >>> layer(toolkit.ops.ones((2, 2))).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        >>> y = layer(toolkit.ops.ones((10000,)), training=True)
        >>> round(float(toolkit.ops.std(y)), 1)
        1.0
    """

    def __init__(
        self, rate: float, seed: Seed = None, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.rate: float = fraction(self, "rate", rate)
        if rate == 1:
            raise ArgumentError("GaussianDropout: rate must be below 1; received 1")
        self.seed = seed
        if rate > 0:
            self.seed_generator: random.SeedGenerator = as_generator(seed)
        self.supports_masking = True

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        if not training or self.rate == 0:
            return inputs
        return inputs * random.normal(
            ops.shape(inputs),
            mean=1.0,
            stddev=(self.rate / (1.0 - self.rate)) ** 0.5,
            dtype=self.compute_dtype,
            seed=self.seed_generator,
        )
