"""Common part of layers that move the pixels of images at random."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed, is_real
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.boxes import coordinates, joined
from toolkit.layers.preprocessing.color_layer import batch_size
from toolkit.layers.preprocessing.image_layer import ImageLayer, Size
from toolkit.ops.image.warping import check_mode
from toolkit.random.seeds import as_generator
from toolkit.type_aliases import Range, RegularizedLayerOptions, SeedLike, TensorLike


def symmetric_range(
    layer: Any, name: str, factor: Any, bounds: Range, open_low: bool = False
) -> Range:
    """Return (lower, upper) for two numbers inside of bounds, or for f: (-|f|, |f|).

    Args:
        layer: the layer, for messages.
        name: the name of the argument.
        factor: the argument.
        bounds: (lowest, highest) of each number.
        open_low: whether the lowest value is excluded.
    """
    ends = factor if isinstance(factor, (tuple, list)) else (factor, factor)
    low, high = bounds
    if len(ends) != 2 or not all(
        is_real(x) and low <= x <= high and not (open_low and x == low) for x in ends
    ):
        raise ArgumentError(
            f"{type(layer).__name__}: The `{name}` argument should be a number (or a "
            f"list of two numbers) in the range {'(' if open_low else '['}{low:.1f}, "
            f"{high:.1f}]. Received: {name}={factor!r}"
        )
    if ends is factor:
        return min(ends), max(ends)
    return -abs(factor), abs(factor)


def expand_like(x: TensorLike, y: Any) -> Tensor:
    """Reshape (n,) numbers, one per image, to the rank of y."""
    return ops.reshape(x, (-1, *(1,) * (len(y.shape) - 1)))


class GeometricLayer(ImageLayer):
    """Base class of layers that move pixels, with masks and boxes.

    A subclass defines `_drawn`, `_moved` and `_moved_boxes`.

    Args:
        interpolation: "nearest" or "bilinear"; masks always use "nearest".
        fill_mode: values outside of the image: "constant"; "nearest" repeats the edge
            pixel; "reflect" mirrors including the edge pixel, "mirror" without it;
            "wrap" repeats the image.
        fill_value: the value outside of the image in mode "constant".
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.
    """

    def __init__(
        self,
        interpolation: str = "bilinear",
        fill_mode: str = "constant",
        fill_value: float = 0.0,
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        check_mode(type(self).__name__, interpolation, fill_mode)
        self.interpolation: str = interpolation
        self.fill_mode: str = fill_mode
        self.fill_value: float = fill_value
        self.seed: Seed = seed
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
        images = data["images"] if isinstance(data, dict) else data
        seed = self.generator if seed is None else seed
        draws = self._draw_transformation(
            batch_size(images), self.image_size(images), seed
        )
        return {**draws, "input_shape": tuple(images.shape)}

    def transform_images(
        self, images: TensorLike, transformation: Any = None, training: bool = True
    ) -> Tensor:
        images = ops.cast(images, self.compute_dtype)
        if not training or transformation is None:
            return images
        return self._moved(images, transformation, self.interpolation)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: bool = True
    ) -> Tensor:
        if not training or transformation is None:
            return segmentation_masks
        masks = ops.convert_to_tensor(segmentation_masks)
        return self._moved(masks, transformation, "nearest")

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any = None, training: bool = True
    ) -> dict[str, Tensor]:
        if not training or transformation is None:
            return bounding_boxes
        size = self.size_in(transformation["input_shape"])

        def move(boxes: TensorLike) -> Tensor:
            return self._moved_boxes(boxes, transformation, size)

        return self._move_boxes(bounding_boxes, size, size, move)

    def _draw_transformation(
        self, n: int, size: Size, seed: SeedLike
    ) -> dict[str, Any]:
        """Return the random transformation of n images."""
        raise NotImplementedError(f"{type(self).__name__} does not define _drawn")

    def _moved(self, x: TensorLike, transformation: Any, interpolation: str) -> Any:
        """Return images or masks after the transformation, in the same dtype."""
        raise NotImplementedError(f"{type(self).__name__} does not define _moved")

    def _moved_boxes(self, boxes: TensorLike, transformation: Any, size: Size) -> Any:
        """Return boxes (batch, n, 4), "xyxy" in pixels, after the transformation."""
        raise NotImplementedError(f"{type(self).__name__} does not define _moved_boxes")


class AffineLayer(GeometricLayer):
    """Base class of layers that read each pixel at an affine function of its position.

    A subclass defines `_drawn` and `_matrix`. The arguments are the same as in
    GeometricLayer.
    """

    def _matrix(self, transformation: Any, size: Size) -> Any:
        """Return a0, a1, a2, b0, b1, b2 of `affine_transform`, each (n,)."""
        raise NotImplementedError(f"{type(self).__name__} does not define _matrix")

    def _numbers(self, transformation: Any, size: Size) -> list[Any]:
        """Return the coefficients as float32, (n,) each."""
        rows = self._matrix(transformation, size)
        rows = [ops.reshape(ops.cast(x, "float32"), (-1,)) for x in rows]
        n = max(row.shape[0] for row in rows)
        return [ops.broadcast_to(row, (n,)) for row in rows]

    def _moved(self, x: TensorLike, transformation: Any, interpolation: str) -> Tensor:
        numbers = self._numbers(transformation, self.image_size(x))
        zeros = ops.zeros_like(numbers[0])
        transform = ops.stack([*numbers, zeros, zeros], axis=-1)
        return ops.image.affine_transform(
            x,
            transform,
            interpolation=interpolation,
            fill_mode=self.fill_mode,
            fill_value=self.fill_value,
            data_format=self.data_format,
        )

    def _moved_boxes(
        self, boxes: TensorLike, transformation: Any, size: Size
    ) -> Tensor:
        a0, a1, a2, b0, b1, b2 = (
            ops.reshape(x, (-1, 1, 1)) for x in self._numbers(transformation, size)
        )
        determinant = a0 * b1 - a1 * b0

        def map_point(x: TensorLike, y: Tensor) -> tuple[Any, Any]:
            x, y = x - a2, y - b2
            return (b1 * x - a1 * y) / determinant, (a0 * y - b0 * x) / determinant

        return upright(boxes, map_point)


def upright(boxes: TensorLike, map_point: Any) -> Tensor:
    """Return axis-aligned bounding boxes of the corners of boxes, mapped by `place`."""
    left, top, right, bottom = coordinates(boxes)
    corners = [(left, top), (right, top), (left, bottom), (right, bottom)]
    columns, rows = zip(*(map_point(x, y) for x, y in corners), strict=True)
    ends = []
    for bound in (ops.min, ops.max):
        for numbers in (columns, rows):
            wide = ops.concatenate(numbers, axis=-1)
            ends.append(bound(wide, axis=-1, keepdims=True))
    return joined(ends)
