"""Common part of layers that change colors: ranges, draws, one data format."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed, is_real
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.image_layer import ImageLayer
from toolkit.ops.spatial import channels_last, in_format
from toolkit.random.seeds import as_generator
from toolkit.type_aliases import (
    DTypeLike,
    NumberOrRange,
    NumberRange,
    Range,
    RegularizedLayerOptions,
    SeedLike,
    TensorLike,
)

BYTES = (0.0, 255.0)  # the range of tables with 256 entries


def _is_number(value: object) -> bool:
    return is_real(value) and not isinstance(value, bool)


def factor_range(
    layer: Any, factor: Any, bounds: Range = (-1.0, 1.0), name: str = "factor"
) -> Range:
    """Return (lower, upper) for a pair, or for one number: from its negative or bound.

    Args:
        layer: the layer, for messages.
        factor: the argument.
        bounds: the allowed bounds; a pair must overlap them.
        name: the name of the argument.
    """
    low, high = bounds
    if _is_number(factor) and low <= factor <= high:
        return max(-abs(factor), low), abs(factor)
    if isinstance(factor, (tuple, list)) and len(factor) == 2:
        if all(map(_is_number, factor)) and factor[0] <= high and factor[1] >= low:
            return min(factor), max(factor)
    raise ArgumentError(
        f"{type(layer).__name__}: The `{name}` argument should be a number (or a list "
        f"of two numbers) in the range [{low:g}, {high:g}]. Received: {name}={factor!r}"
    )


def sorted_range(layer: Any, value_range: Any) -> Range:
    """Return the (lowest, highest) value of pixels."""
    if isinstance(value_range, (tuple, list)) and len(value_range) == 2:
        return min(value_range), max(value_range)
    raise ArgumentError(
        f"{type(layer).__name__}: The `value_range` argument should be a list of two "
        f"numbers. Received: value_range={value_range!r}"
    )


def rescaled(x: Any, source: Range, target: Range) -> Tensor:
    """Map values linearly from one range to another."""
    if tuple(source) == tuple(target):
        return x
    scale = (target[1] - target[0]) / (source[1] - source[0])
    return (x - source[0]) * scale + target[0]


def batch_size(data: Any) -> int:
    """Return the number of images; 1 for a single image."""
    shape = (data["images"] if isinstance(data, dict) else data).shape
    return shape[0] if len(shape) == 4 else 1


def per_image(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Reshape (n,) to (n, 1, 1, 1), to broadcast to n images."""
    x = ops.reshape(x, (-1, 1, 1, 1))
    return x if dtype is None or x.dtype == "bool" else ops.cast(x, dtype)


class ColorLayer(ImageLayer):
    """Base class of layers that change only colors, not labels, boxes or masks.

    A subclass defines `_adjusted`; its arguments after the images are the entries of
    the transformation.

    Args:
        value_range: (lowest, highest) value of the images.
        data_format: "channels_last", "channels_first", or None for the global default.
    """

    # Whether the layer is also active in inference.
    in_inference: ClassVar[bool] = False

    def __init__(
        self,
        value_range: NumberRange = (0, 255),
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.value_range: Range = sorted_range(self, value_range)

    def get_random_transformation(
        self, data: Any, training: bool = True, seed: SeedLike | None = None
    ) -> Any:
        return {}  # no random values

    def transform_images(
        self, images: TensorLike, transformation: Any = None, training: bool = True
    ) -> Tensor:
        images = ops.cast(images, self.compute_dtype)
        if not (training or self.in_inference):
            return images
        if transformation is None:
            transformation = self.get_random_transformation(images)
        x = channels_last(images, self.data_format)
        y = self._adjusted(x, **transformation)
        return in_format(ops.cast(y, self.compute_dtype), self.data_format)

    def _adjusted(self, *args: Any, **kwargs: Any) -> Any:
        """Return images (batch, height, width, channels) after the change."""
        raise NotImplementedError(f"{type(self).__name__} does not define _adjusted")

    def _clipped(self, x: TensorLike) -> Tensor:
        return ops.clip(x, *self.value_range)


class RandomColorLayer(ColorLayer):
    """Base class of layers that change the colors of each image by a random factor.

    Args:
        factor: a range (lower, upper), or one number; see `factor_range`.
        value_range: (lowest, highest) value of the images.
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.
    """

    bounds: ClassVar[Range] = (-1.0, 1.0)

    def __init__(
        self,
        factor: NumberOrRange,
        value_range: NumberRange = (0, 255),
        data_format: str | None = None,
        seed: Seed = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(value_range, data_format, **kwargs)
        self.factor: Range = factor_range(self, factor, self.bounds)
        self.seed = seed
        self.generator: random.SeedGenerator = as_generator(seed)

    def get_random_transformation(
        self, data: Any, training: bool = True, seed: SeedLike | None = None
    ) -> Any:
        """Return the random values of each image, by name; None in inference.

        Args:
            data: images, or a dict with "images".
            training: whether to run in training mode.
            seed: the source of random numbers; the layer's generator if None.
        """
        if not training:
            return None
        return self._draw_transformation(
            batch_size(data), self.generator if seed is None else seed
        )

    def _draw_transformation(self, n: int, seed: SeedLike) -> dict[str, Any]:
        """Return the transformation of n images."""
        return {"factor": self._uniform(n, seed)}

    def _uniform(self, n: int, seed: Any, bounds: Range | None = None) -> Tensor:
        """Return a random number for each of n images, of shape (n, 1, 1, 1)."""
        low, high = bounds or self.factor
        return random.uniform((n, 1, 1, 1), float(low), float(high), seed=seed)

    def _draw_is_selected(self, n: int, seed: SeedLike) -> Tensor:
        """Return a random boolean per image; its probability is drawn from `factor`."""
        return self._uniform(n, seed, (0.0, 1.0)) < self._uniform(n, seed)
