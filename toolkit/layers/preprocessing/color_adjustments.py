"""Layers that change the colors of images at random, pixel by pixel."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from toolkit import ops, settings
from toolkit.arguments import Seed
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.color_layer import (
    RandomColorLayer,
    per_image,
    rescaled,
)
from toolkit.type_aliases import (
    Array,
    NumberOrRange,
    NumberRange,
    Range,
    RegularizedLayerOptions,
    SeedLike,
    TensorLike,
)


class RandomBrightness(RandomColorLayer):
    """Random brightness: in training, adds a random number to each image.

    `clip(x + delta * (high - low), low, high)`, where (low, high) is the value range.

    Args:
        factor: range (lower, upper) of delta inside [-1, 1]; a number f: (-f, f).
        value_range: (lowest, highest) value of the images.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomBrightness((0.2, 0.2), value_range=(0, 1))
        >>> float(layer(toolkit.ops.full((4, 4, 1), 0.5))[0, 0, 0])
        0.699999988079071
    """

    def __init__(
        self,
        factor: NumberOrRange,
        value_range: NumberRange = (0, 255),
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(factor, value_range, data_format, seed, **kwargs)

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        low, high = self.value_range
        return {"rgb_delta": self._uniform(n, seed) * (high - low)}

    def _adjusted(self, x: Tensor, rgb_delta: Array | Tensor) -> Tensor:
        return self._clipped(x + per_image(rgb_delta, x.dtype))


class RandomContrast(RandomColorLayer):
    """Random contrast: in training, scales the difference to the mean of the channel.

    `clip((x - mean) * contrast + mean, low, high)`, with the mean over the image.

    Args:
        factor: (lower, upper) inside [0, 1]: contrast is in [1 - lower, 1 + upper];
            a number f: (0, f).
        value_range: (lowest, highest) value of the images.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomContrast((0.0, 0.0))
        >>> layer(toolkit.ops.array([[[1.0], [3.0]]])).tolist()
        [[[1.0], [3.0]]]
    """

    bounds: ClassVar[Range] = (0.0, 1.0)

    def __init__(
        self,
        factor: NumberOrRange,
        value_range: NumberRange = (0, 255),
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(factor, value_range, data_format, seed, **kwargs)

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        bounds = 1.0 - self.factor[0], 1.0 + self.factor[1]
        return {"contrast_factor": self._uniform(n, seed, bounds)}

    def _adjusted(self, x: Tensor, contrast_factor: Array | Tensor) -> Tensor:
        mean = ops.mean(x, axis=(1, 2), keepdims=True)
        return self._clipped((x - mean) * per_image(contrast_factor, x.dtype) + mean)


class RandomSaturation(RandomColorLayer):
    """Random saturation: in training, multiplies the saturation of colors.

    With f from the range of `factor`, saturations are multiplied by `f / (1 - f)`: 0
    means gray, 0.5 no change, 1 the maximum of `value_range`.

    Args:
        factor: range (lower, upper) of f; a number f: (-f, f).
        value_range: the bounds to which saturations, initially in [0, 1], are clipped,
            as in Keras; (0, 1) keeps valid colors.
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.

    Call arguments:
        data: images with 3 channels, or a dict with "images"; all other entries stay
            unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomSaturation((0.0, 0.0))
        >>> layer(toolkit.ops.array([[[0.25, 0.5, 1.0]]])).tolist()
        [[[1.0, 1.0, 1.0]]]
    """

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        factor = self._uniform(n, seed)
        return {"factor": factor / (1 - factor + settings.epsilon())}

    def _adjusted(self, x: Tensor, factor: Array | Tensor) -> Tensor:
        hsv = ops.image.rgb_to_hsv(x, "channels_last")
        hue, saturation, value = ops.split(hsv, 3, axis=-1)
        saturation = self._clipped(saturation * per_image(factor, x.dtype))
        hsv = ops.concatenate([hue, saturation, value], axis=-1)
        return ops.image.hsv_to_rgb(hsv, "channels_last")


class RandomHue(RandomColorLayer):
    """Random hue: in training, rotates the hues of colors.

    Args:
        factor: range (lower, upper) inside [0, 1] of the rotation in units of 180
            degrees, in both directions; a number f: (0, f).
        value_range: (lowest, highest) value of the images.
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.

    Call arguments:
        data: images with 3 channels, or a dict with "images"; all other entries stay
            unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomHue((1.0, 1.0), value_range=(0, 1))
        >>> layer(toolkit.ops.array([[[1.0, 0.0, 0.0]]])).tolist()
        [[[0.0, 1.0, 1.0]]]
    """

    bounds: ClassVar[Range] = (0.0, 1.0)

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        sign = ops.where(self._uniform(n, seed, (0.0, 1.0)) > 0.5, -1.0, 1.0)
        return {"factor": sign * self._uniform(n, seed) * 0.5}

    def _adjusted(self, x: Tensor, factor: Array | Tensor) -> Tensor:
        x = rescaled(x, self.value_range, (0, 1))
        hsv = ops.image.rgb_to_hsv(x, "channels_last")
        hue, saturation, value = ops.split(hsv, 3, axis=-1)
        hue = hue + per_image(factor, x.dtype)
        hue = ops.where(hue > 1, hue - 1, ops.where(hue < 0, hue + 1, hue))
        hsv = ops.concatenate([hue, saturation, value], axis=-1)
        rgb = ops.clip(ops.image.hsv_to_rgb(hsv, "channels_last"), 0, 1)
        return rescaled(rgb, (0, 1), self.value_range)


class RandomColorDegeneration(RandomColorLayer):
    """Random desaturation: in training, mixes images with gray: `x + f * (gray - x)`.

    Args:
        factor: range (lower, upper) of f inside [-1, 1], where 1 means gray; a number
            f: (-f, f).
        value_range: (lowest, highest) value of the images.
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.

    Call arguments:
        data: images with 3 channels, or a dict with "images"; all other entries stay
            unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomColorDegeneration((0.0, 0.0))
        >>> layer(toolkit.ops.array([[[1.0, 2.0, 3.0]]])).tolist()
        [[[1.0, 2.0, 3.0]]]
    """

    def _adjusted(self, x: Tensor, factor: Array | Tensor) -> Tensor:
        gray = ops.image.rgb_to_grayscale(x, "channels_last")
        return self._clipped(x + per_image(factor, x.dtype) * (gray - x))


class RandomGrayscale(RandomColorLayer):
    """Random grayscale: in training, makes some images gray; they keep their channels.

    Args:
        factor: the probability, in [0, 1].
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.

    Call arguments:
        data: images with 3 channels, or a dict with "images"; all other entries stay
            unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomGrayscale(factor=0.0)
        >>> layer(toolkit.ops.array([[[1.0, 2.0, 3.0]]])).tolist()
        [[[1.0, 2.0, 3.0]]]
    """

    def __init__(
        self,
        factor: float = 0.5,
        data_format: str | None = None,
        seed: Seed = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        if isinstance(factor, (tuple, list)) or not 0 <= factor <= 1:
            raise ArgumentError(
                "RandomGrayscale: `factor` should be between 0 and 1. Received: "
                f"factor={factor!r}"
            )
        super().__init__((factor, factor), data_format=data_format, seed=seed, **kwargs)

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        return {"should_apply": self._uniform(n, seed, (0.0, 1.0)) < self.factor[0]}

    def _adjusted(self, x: TensorLike, should_apply: Array | Tensor) -> Tensor:
        gray = ops.image.rgb_to_grayscale(x, "channels_last")
        return ops.where(per_image(should_apply), gray, x)


class RandomInvert(RandomColorLayer):
    """Random inversion: in training, inverts some of the images: `high - x`.

    Args:
        factor: range (lower, upper) inside [0, 1] of each image's probability; a number
            f: (0, f).
        value_range: (lowest, highest) value of the images.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomInvert((1.0, 1.0))
        >>> layer(toolkit.ops.array([[[0.0], [55.0]]])).tolist()
        [[[255.0], [200.0]]]
    """

    bounds: ClassVar[Range] = (0.0, 1.0)

    def __init__(
        self,
        factor: NumberOrRange = 1.0,
        value_range: NumberRange = (0, 255),
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(factor, value_range, data_format, seed, **kwargs)

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        return {"apply_inversion": self._draw_is_selected(n, seed)}

    def _adjusted(self, x: Tensor, apply_inversion: Array | Tensor) -> Tensor:
        return ops.where(per_image(apply_inversion), self.value_range[1] - x, x)
