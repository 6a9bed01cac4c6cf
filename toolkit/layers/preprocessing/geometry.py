"""Layers that flip and distort images at random."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, UnsupportedError, unknown_choice
from toolkit.layers.preprocessing.boxes import coordinates, joined
from toolkit.layers.preprocessing.color_layer import factor_range, sorted_range
from toolkit.layers.preprocessing.geometric_layer import (
    GeometricLayer,
    expand_like,
    upright,
)
from toolkit.layers.preprocessing.image_layer import Size
from toolkit.ops.image.warping import homographies
from toolkit.random.elastic import distort_elastically
from toolkit.random.seeds import draw_seed
from toolkit.type_aliases import (
    NumberOrRange,
    NumberRange,
    Range,
    RegularizedLayerOptions,
    SeedLike,
    TensorLike,
)

_MODES = ("horizontal", "vertical", "horizontal_and_vertical")


def _draw_selection(factor: Any, n: int, seed: SeedLike) -> Tensor:
    """Return a random boolean per image, (n,), with a probability from `factor`."""
    low, high = map(float, factor)
    probability = random.uniform((n,), low, high, seed=seed)
    return random.uniform((n,), seed=seed) < probability


class RandomFlip(GeometricLayer):
    """Random flip: in training, flips each image with probability 1/2.

    Args:
        mode: "horizontal" swaps left and right, "vertical" top and bottom,
            "horizontal_and_vertical" both at once.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.
        bounding_box_format: the format of "bounding_boxes", if present.

    Call arguments:
        data: images, or a dict with "images"; all other entries are transformed to
            match.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomFlip("horizontal", seed=1)
        >>> layer(toolkit.ops.ones((2, 4, 4, 3))).shape
        (2, 4, 4, 3)
    """

    def __init__(
        self,
        mode: str = "horizontal_and_vertical",
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        if mode not in _MODES:
            raise unknown_choice("RandomFlip: mode", mode, _MODES)
        self.mode = mode

    def _draw_transformation(
        self, n: int, size: Size, seed: SeedLike
    ) -> dict[str, Any]:
        return {"flips": random.uniform((n, 1, 1, 1), seed=seed) <= 0.5}

    def _moved(self, x: TensorLike, transformation: Any, interpolation: str) -> Tensor:
        width = -1 if self.data_format == "channels_first" else -2
        axes = [
            axis
            for name, axis in (("horizontal", width), ("vertical", width - 1))
            if name in self.mode
        ]
        flips = expand_like(transformation["flips"], x)
        return ops.where(flips, ops.flip(x, axis=axes), x)

    def _moved_boxes(
        self, boxes: TensorLike, transformation: Any, size: Size
    ) -> Tensor:
        height, width = size
        left, top, right, bottom = coordinates(boxes)
        if "horizontal" in self.mode:
            left, right = width - right, width - left
        if "vertical" in self.mode:
            top, bottom = height - bottom, height - top
        flips = expand_like(transformation["flips"], boxes)
        return ops.where(flips, joined((left, top, right, bottom)), boxes)


class RandomPerspective(GeometricLayer):
    """Random perspective: in training, moves the corners of images.

    Args:
        factor: range (lower, upper) inside [0, 1] of each image's probability; a number
            f: (0, f).
        scale: the maximum shift of corners, in [0, 1]; 1 means half of the size.
        interpolation: "nearest" or "bilinear"; masks always use "nearest".
        fill_value: the value outside of the image.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.
        bounding_box_format: the format of "bounding_boxes", if present.

    Call arguments:
        data: images, or a dict with "images"; all other entries are transformed to
            match.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomPerspective(0.5, scale=0.2)
        >>> layer(toolkit.ops.ones((2, 4, 4, 3))).shape
        (2, 4, 4, 3)
    """

    def __init__(
        self,
        factor: NumberOrRange = 1.0,
        scale: float = 1.0,
        interpolation: str = "bilinear",
        fill_value: float = 0.0,
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(
            interpolation, "constant", fill_value, seed, data_format, **kwargs
        )
        self.factor: Range = factor_range(self, factor, (0.0, 1.0))
        if not 0 <= scale <= 1:
            raise ArgumentError(
                "RandomPerspective: The `scale` argument should be a number in the "
                f"range [0,1]. Received: scale={scale}"
            )
        self.scale = scale

    def _draw_transformation(
        self, n: int, size: Size, seed: SeedLike
    ) -> dict[str, Any]:
        height, width = size
        is_selected = _draw_selection(self.factor, n, seed)
        bound = 0.5 * self.scale
        moves = random.uniform((n, 4, 2), -bound, bound, seed=seed)
        right, bottom = width - 1, height - 1
        corners = [[0, 0], [right, 0], [0, bottom], [right, bottom]]
        start = ops.convert_to_tensor([corners], dtype=moves.dtype)
        start = ops.broadcast_to(start, (n, 4, 2))
        return {
            "apply_perspective": is_selected,
            "start_points": start,
            "end_points": start * (1 + moves),
        }

    def _points(self, transformation: Any) -> list[Any]:
        names = "start_points", "end_points"
        return [ops.cast(transformation[name], "float32") for name in names]

    def _moved(self, x: TensorLike, transformation: Any, interpolation: str) -> Tensor:
        start, end = self._points(transformation)
        y = ops.image.perspective_transform(
            x,
            start,
            end,
            interpolation=interpolation,
            fill_value=self.fill_value,
            data_format=self.data_format,
        )
        return ops.where(expand_like(transformation["apply_perspective"], x), y, x)

    def _moved_boxes(
        self, boxes: TensorLike, transformation: Any, size: Size
    ) -> Tensor:
        start, end = self._points(transformation)
        a0, a1, a2, b0, b1, b2, c0, c1 = (
            ops.reshape(x, (-1, 1, 1))
            for x in ops.unstack(homographies(end, start), axis=1)
        )

        def map_point(x: TensorLike, y: Tensor) -> tuple[Any, Any]:
            depth = c0 * x + c1 * y + 1
            return (a0 * x + a1 * y + a2) / depth, (b0 * x + b1 * y + b2) / depth

        is_selected = expand_like(transformation["apply_perspective"], boxes)
        return ops.where(is_selected, upright(boxes, map_point), boxes)


class RandomElasticTransform(GeometricLayer):
    """Random elastic transform: in training, distorts images and their masks.

    Args:
        factor: range (lower, upper) inside [0, 1] of each image's probability; a number
            f: (0, f).
        scale: the strength s, in [0, 1]; or its range, drawn once per batch; a number
            s: (0, s). See `ops.image.elastic_transform`: alpha is `0.1 * s *
            max(height, width)`, sigma `0.05 * s * min(height, width)`.
        interpolation: "nearest" or "bilinear"; masks always use "nearest".
        fill_mode: values outside of the image: "constant"; "nearest" repeats the edge
            pixel; "reflect" mirrors including the edge pixel, "mirror" without it;
            "wrap" repeats the image.
        fill_value: the value outside of the image in mode "constant".
        value_range: (lowest, highest) value of the images; values outside are clipped.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict of "images" and any of "labels" and
            "segmentation_masks"; the effect on boxes is undefined.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomElasticTransform(scale=0.5)
        >>> layer(toolkit.ops.ones((2, 8, 8, 3))).shape
        (2, 8, 8, 3)

    Reference: Simard et al. 2003, doi:10.1109/ICDAR.2003.1227801
    """

    def __init__(
        self,
        factor: NumberOrRange = 1.0,
        scale: NumberOrRange = 1.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        value_range: NumberRange = (0, 255),
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(
            interpolation, fill_mode, fill_value, seed, data_format, **kwargs
        )
        self.factor: Range = factor_range(self, factor, (0.0, 1.0))
        self.scale: Range = factor_range(self, scale, (0.0, 1.0), "scale")
        self.value_range: Range = sorted_range(self, value_range)

    def get_random_transformation(
        self, data: Any, training: bool = True, seed: SeedLike | None = None
    ) -> Any:
        if self.factor[1] == 0 or self.scale[1] == 0:
            return None
        return super().get_random_transformation(data, training, seed)

    def _draw_transformation(
        self, n: int, size: Size, seed: SeedLike
    ) -> dict[str, Any]:
        low, high = map(float, self.scale)
        return {
            "apply_transform": _draw_selection(self.factor, n, seed),
            "distortion_factor": random.uniform((), low, high, seed=seed),
            # Images and masks use the same displacement fields.
            "seed": draw_seed(seed),
        }

    def transform_images(
        self, images: TensorLike, transformation: Any = None, training: bool = True
    ) -> Tensor:
        y = super().transform_images(images, transformation, training)
        if not training or transformation is None:
            return y
        return ops.clip(y, *self.value_range)

    def _moved(self, x: TensorLike, transformation: Any, interpolation: str) -> Tensor:
        size = self.image_size(x)
        scale = ops.cast(transformation["distortion_factor"], "float32")
        # The kernel size fits the largest sigma; a sigma of 0 is not a Gaussian.
        sigma = ops.maximum(0.05 * min(size) * scale, 1e-6)
        reach = int(6 * 0.05 * min(size) * self.scale[1]) | 1
        y = distort_elastically(
            x,
            0.1 * max(size) * scale,
            sigma,
            reach,
            interpolation,
            (self.fill_mode, self.fill_value),
            transformation["seed"],
            self.data_format,
        )
        return ops.where(expand_like(transformation["apply_transform"], x), y, x)

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        raise UnsupportedError(
            "RandomElasticTransform: it does not support bounding boxes; use masks"
        )
