"""Layers that apply other layers of images, drawn at random or each in turn."""

from __future__ import annotations

from typing import Any

from toolkit.layers.preprocessing.color_layer import RandomColorLayer
from toolkit.layers.preprocessing.colors import (
    RandomBrightness,
    RandomContrast,
    RandomHue,
    RandomSaturation,
)


class RandomColorJitter(RandomColorLayer):
    """In training, changes brightness, contrast, saturation and hue, in this order.

    Args:
        value_range: (lowest, highest) value of the images.
        brightness_factor: of RandomBrightness; None: brightness stays.
        contrast_factor: of RandomContrast; None: contrast stays.
        saturation_factor: of RandomSaturation; None: saturation stays.
        hue_factor: of RandomHue; None: hues stay.
        seed: an integer, for the same draws every time; or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict of "images" and more, which stays as it is.
        training: whether to change the images; by default they are.

    Output shape: that of the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomColorJitter(brightness_factor=(0.5, 0.5))
        >>> layer(toolkit.ops.array([[[0.0], [200.0]]])).tolist()
        [[[127.5], [255.0]]]
    """

    def __init__(
        self,
        value_range: Any = (0, 255),
        brightness_factor: Any = None,
        contrast_factor: Any = None,
        saturation_factor: Any = None,
        hue_factor: Any = None,
        seed: Any = None,
        data_format: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(0.0, value_range, data_format, seed, **kwargs)
        self.brightness_factor, self.contrast_factor = (
            brightness_factor,
            contrast_factor,
        )
        self.saturation_factor, self.hue_factor = saturation_factor, hue_factor
        given = {
            "random_brightness": (RandomBrightness, brightness_factor),
            "random_contrast": (RandomContrast, contrast_factor),
            "random_saturation": (RandomSaturation, saturation_factor),
            "random_hue": (RandomHue, hue_factor),
        }
        shared = {"data_format": "channels_last", "dtype": self.dtype_policy}
        self._steps = {
            name: cls(factor, self.value_range, seed=seed, **shared)
            for name, (cls, factor) in given.items()
            if factor is not None
        }

    def _drawn(self, n: int, seed: Any) -> dict[str, Any]:
        return {name: step._drawn(n, seed) for name, step in self._steps.items()}

    def _adjusted(self, x: Any, **drawn: Any) -> Any:
        for name, step in self._steps.items():
            x = step.transform_images(x, drawn[name])
        return x
