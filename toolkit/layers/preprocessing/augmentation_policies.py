"""Layers that apply other image layers, at random or in order."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from toolkit import ops, random, tree
from toolkit.arguments import Seed
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.affine import (
    RandomRotation,
    RandomShear,
    RandomTranslation,
)
from toolkit.layers.preprocessing.color_adjustments import (
    RandomBrightness,
    RandomColorDegeneration,
    RandomContrast,
    RandomHue,
    RandomSaturation,
)
from toolkit.layers.preprocessing.color_filters import (
    RandomPosterization,
    RandomSharpness,
    Solarization,
)
from toolkit.layers.preprocessing.color_layer import RandomColorLayer
from toolkit.layers.preprocessing.histograms import AutoContrast, Equalization
from toolkit.type_aliases import (
    NumberOrRange,
    NumberRange,
    Range,
    RegularizedLayerOptions,
    TensorLike,
)


class RandomColorJitter(RandomColorLayer):
    """Random color jitter: brightness, contrast, saturation and hue, in this order.

    Args:
        value_range: (lowest, highest) value of the images.
        brightness_factor: the factor of RandomBrightness; None disables it.
        contrast_factor: the factor of RandomContrast; None disables it.
        saturation_factor: the factor of RandomSaturation; None disables it.
        hue_factor: the factor of RandomHue; None disables it.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomColorJitter(brightness_factor=(0.5, 0.5))
        >>> layer(toolkit.ops.array([[[0.0], [200.0]]])).tolist()
        [[[127.5], [255.0]]]
    """

    def __init__(
        self,
        value_range: NumberRange = (0, 255),
        brightness_factor: NumberOrRange | None = None,
        contrast_factor: NumberOrRange | None = None,
        saturation_factor: NumberOrRange | None = None,
        hue_factor: NumberOrRange | None = None,
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(0.0, value_range, data_format, seed, **kwargs)
        self.brightness_factor: NumberOrRange | None = brightness_factor
        self.contrast_factor: NumberOrRange | None = contrast_factor
        self.saturation_factor: NumberOrRange | None = saturation_factor
        self.hue_factor: NumberOrRange | None = hue_factor
        factors: dict[str, tuple[Any, NumberOrRange | None]] = {
            "random_brightness": (RandomBrightness, brightness_factor),
            "random_contrast": (RandomContrast, contrast_factor),
            "random_saturation": (RandomSaturation, saturation_factor),
            "random_hue": (RandomHue, hue_factor),
        }
        shared: dict[str, Any] = {
            "data_format": "channels_last",
            "dtype": self.dtype_policy,
        }
        self._steps = {
            name: cls(factor, self.value_range, seed=seed, **shared)
            for name, (cls, factor) in factors.items()
            if factor is not None
        }

    def _draw_transformation(self, n: int, seed: Any) -> dict[str, Any]:
        return {
            name: step._draw_transformation(n, seed)
            for name, step in self._steps.items()
        }

    def _adjusted(self, x: Tensor, **draws: Any) -> Tensor:
        for name, step in self._steps.items():
            x = step.transform_images(x, draws[name])
        return x


class _AugmentationPolicy(RandomColorLayer):
    """Base class of layers that apply other layers of one strength in random order."""

    bounds: ClassVar[Range] = (0.0, 1.0)

    def __init__(
        self,
        value_range: NumberRange,
        factor: NumberOrRange,
        interpolation: str,
        seed: Seed,
        data_format: str | None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(factor, value_range, data_format, seed, **kwargs)
        self.interpolation = interpolation
        self._steps = self._create_layers()

    def _create_layers(self) -> dict[str, Any]:
        """Return the layers to choose from, by name."""
        shared: dict[str, Any] = {
            "data_format": self.data_format,
            "bounding_box_format": self.bounding_box_format,
            "dtype": self.dtype_policy,
        }
        moving: dict[str, Any] = {"interpolation": self.interpolation, **shared}
        coloring: dict[str, Any] = {"value_range": self.value_range, **shared}
        f, bits = self.factor, max(1, int(8 * self.factor[1]))
        return {
            "random_shear": RandomShear(f, f, **moving),
            "random_translation": RandomTranslation(f, f, **moving),
            "random_rotation": RandomRotation(f, **moving),
            "random_brightness": RandomBrightness(f, **coloring),
            "random_color_degeneration": RandomColorDegeneration(f, **coloring),
            "random_contrast": RandomContrast(f, **coloring),
            "random_sharpness": RandomSharpness(f, **coloring),
            "random_posterization": RandomPosterization(bits, **coloring),
            "solarization": Solarization(f, f, **coloring),
            "auto_contrast": AutoContrast(**coloring),
            "equalization": Equalization(**coloring),
        }

    def get_random_transformation(
        self, data: Any, training: bool = True, seed: Any = None
    ) -> Any:
        if not training:
            return None
        return self._drawn_for(data, self.generator if seed is None else seed)

    def _drawn_for(self, data: Any, seed: Any) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define _drawn_for")

    def _draws(self, data: Any, seed: Any) -> dict[str, Any]:
        """Return the random transformation of each layer."""
        return {
            name: step.get_random_transformation(data, seed=seed)
            for name, step in self._steps.items()
        }

    def _step(self, key: str, x: Any, index: Any, draws: dict[str, Any]) -> Any:
        """Apply the layer of this index to a part of the data, or the identity."""

        def through(name: str) -> Any:
            change = getattr(self._steps[name], f"transform_{key}")
            y = change(x, draws[name])
            return tree.map_structure(lambda a, b: ops.cast(a, b.dtype), y, x)

        branches = [lambda name=name: through(name) for name in self._steps]
        return ops.switch(index, [*branches, lambda: x])

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Tensor:
        images = ops.cast(images, self.compute_dtype)
        if not training:
            return images
        if transformation is None:
            transformation = self.get_random_transformation(images)
        return self._combined("images", images, transformation)

    def transform_segmentation_masks(
        self,
        segmentation_masks: Any,
        transformation: Any,
        training: bool = True,
    ) -> Tensor:
        if not training:
            return segmentation_masks
        masks = ops.convert_to_tensor(segmentation_masks)
        return self._combined("segmentation_masks", masks, transformation)

    def _combined(self, key: str, x: Any, transformation: dict[str, Any]) -> Any:
        """Return a part of the data after the transformation."""
        raise NotImplementedError(f"{type(self).__name__} does not define _combined")


class RandAugment(_AugmentationPolicy):
    """RandAugment: in training, applies randomly selected layers to a batch of images.

    The candidates are RandomShear, RandomTranslation, RandomRotation, RandomBrightness,
    RandomColorDegeneration, RandomContrast, RandomSharpness, RandomPosterization,
    Solarization, AutoContrast and Equalization.

    Args:
        value_range: (lowest, highest) value of the images.
        num_ops: the number of applied layers.
        factor: the strength, the factor of the layers: a range (lower, upper) inside
            [0, 1]; a number f: (0, f).
        interpolation: "nearest" or "bilinear", for the geometric layers.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images of 3 channels, or a dict of "images" and any of "labels",
            "bounding_boxes" and "segmentation_masks".
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandAugment(value_range=(0, 1), seed=1)
        >>> layer(toolkit.random.uniform((2, 8, 8, 3))).shape
        (2, 8, 8, 3)

    Reference: https://arxiv.org/abs/1909.13719
    """

    def __init__(
        self,
        value_range: NumberRange = (0, 255),
        num_ops: int = 2,
        factor: NumberOrRange = 0.5,
        interpolation: str = "bilinear",
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(
            value_range, factor, interpolation, seed, data_format, **kwargs
        )
        self.num_ops = num_ops

    def _drawn_for(self, data: Any, seed: Any) -> dict[str, Any]:
        indices = random.randint((self.num_ops,), 0, len(self._steps), seed=seed)
        return {"layer_idxes": indices, "transforms": self._draws(data, seed)}

    def _combined(self, key: str, x: Any, transformation: dict[str, Any]) -> Any:
        for i in range(self.num_ops):
            index = transformation["layer_idxes"][i]
            x = self._step(key, x, index, transformation["transforms"])
        return x

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        if not training:
            return bounding_boxes
        boxes = ops.cast(bounding_boxes["boxes"], self.compute_dtype)
        labels = ops.convert_to_tensor(bounding_boxes["labels"])
        return self._combined(
            "bounding_boxes", {"boxes": boxes, "labels": labels}, transformation
        )


# Layers that AugMix uses only with `all_ops`.
_FOR_ALL_OPS = {
    *("random_brightness", "random_color_degeneration"),
    *("random_contrast", "random_sharpness"),
}


class AugMix(_AugmentationPolicy):
    """AugMix: in training, mixes images with averages of several augmentation chains.

    `w * x + (1 - w) * sum(w_i * chain_i(x))`. Each chain applies randomly selected
    layers, or the identity. Masks are mixed in the same way.

    Args:
        value_range: (lowest, highest) value of the images.
        num_chains: the number of chains.
        chain_depth: the number of random selections (a layer or the identity) per
            chain.
        factor: the strength, the factor of the layers: a range (lower, upper) inside
            [0, 1]; a number f: (0, f).
        alpha: w has the distribution Beta(alpha, alpha), and the w_i have
            Dirichlet(alpha, ..., alpha).
        all_ops: whether to add RandomBrightness, RandomColorDegeneration,
            RandomContrast and RandomSharpness to the candidates RandomShear,
            RandomTranslation, RandomRotation, RandomPosterization, Solarization,
            AutoContrast and Equalization.
        interpolation: "nearest" or "bilinear", for the geometric layers.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images with 3 channels, or a dict of "images" and any of "labels",
            "bounding_boxes" and "segmentation_masks"; labels and boxes stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.AugMix(value_range=(0, 1), seed=1)
        >>> layer(toolkit.random.uniform((2, 8, 8, 3))).shape
        (2, 8, 8, 3)

    Reference: https://arxiv.org/abs/1912.02781
    """

    def __init__(
        self,
        value_range: NumberRange = (0, 255),
        num_chains: int = 3,
        chain_depth: int = 3,
        factor: NumberOrRange = 0.3,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: str = "bilinear",
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(
            value_range, factor, interpolation, seed, data_format, **kwargs
        )
        if not alpha > 0:
            raise ArgumentError(f"AugMix: expected alpha > 0; received {alpha!r}")
        self.num_chains: int = num_chains
        self.chain_depth: int = chain_depth
        self.alpha: float = alpha
        self.all_ops = all_ops
        for name in () if all_ops else _FOR_ALL_OPS:
            del self._steps[name]

    def _drawn_for(self, data: Any, seed: Any) -> dict[str, Any]:
        shares = random.gamma((self.num_chains,), self.alpha, seed=seed)
        size = self.num_chains, self.chain_depth
        return {
            "chain_mixing_weights": shares / ops.sum(shares),
            "weight_sample": random.beta((), self.alpha, self.alpha, seed=seed),
            "layer_idxes": random.randint(size, 0, len(self._steps) + 1, seed=seed),
            "chain_transforms": [
                [self._draws(data, seed) for _ in range(self.chain_depth)]
                for _ in range(self.num_chains)
            ],
        }

    def _combined(
        self, key: str, x: TensorLike, transformation: dict[str, Any]
    ) -> Tensor:
        total = 0
        for i, draws in enumerate(transformation["chain_transforms"]):
            y = x
            for j in range(self.chain_depth):
                y = self._step(key, y, transformation["layer_idxes"][i, j], draws[j])
            total = total + transformation["chain_mixing_weights"][i] * y
        weight = transformation["weight_sample"]
        mixed = weight * x + (1 - weight) * total
        if key == "images":
            mixed = self._clipped(mixed)
        return ops.cast(mixed, self.compute_dtype)
