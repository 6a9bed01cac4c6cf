"""Layers that rotate, translate, zoom and shear images at random."""

from __future__ import annotations

import math
from typing import Any, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed
from toolkit.core.tensor import Tensor
from toolkit.layers.preprocessing.boxes import coordinates, joined, shifted
from toolkit.layers.preprocessing.color_layer import factor_range
from toolkit.layers.preprocessing.geometric_layer import (
    AffineLayer,
    expand_like,
    symmetric_range,
)
from toolkit.layers.preprocessing.image_layer import Size
from toolkit.type_aliases import (
    NumberOrRange,
    Range,
    RegularizedLayerOptions,
    SeedLike,
    TensorLike,
)


def _uniform(bounds: Any, n: int, seed: Any, offset: float = 0.0) -> Tensor:
    """Return random numbers (n, 1), one for each image."""
    low, high = (float(x) + offset for x in bounds)
    return random.uniform((n, 1), low, high, seed=seed)


class RandomRotation(AffineLayer):
    """Random rotation: in training, rotates each image around its center.

    Args:
        factor: range (lower, upper) of the angle as a fraction of 360 degrees, inside
            [-1, 1]; a number f: (-f, f). Positive is counterclockwise.
        fill_mode: values outside of the image: "constant"; "nearest" repeats the edge
            pixel; "reflect" mirrors including the edge pixel, "mirror" without it;
            "wrap" repeats the image.
        interpolation: "nearest" or "bilinear"; masks always use "nearest".
        seed: an integer, for reproducible draws, or a SeedGenerator.
        fill_value: the value outside of the image in mode "constant".
        data_format: "channels_last", "channels_first", or None for the global default.
        bounding_box_format: the format of "bounding_boxes", if present.

    Call arguments:
        data: images, or a dict with "images"; all other entries are transformed to
            match.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomRotation((0.5, 0.5))
        >>> x = layer(toolkit.ops.array([[[1.0], [2.0]], [[3.0], [4.0]]]))
        >>> toolkit.ops.round(x)[..., 0].tolist()
        [[4.0, 3.0], [2.0, 1.0]]
    """

    def __init__(
        self,
        factor: NumberOrRange,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Seed = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(
            interpolation, fill_mode, fill_value, seed, data_format, **kwargs
        )
        self.factor: Range = factor_range(self, factor)

    def _draw_transformation(
        self, n: int, size: Size, seed: SeedLike
    ) -> dict[str, Any]:
        degrees = [360.0 * x for x in self.factor]
        return {"angle": ops.squeeze(_uniform(degrees, n, seed), -1)}

    def _matrix(self, transformation: Any, size: Size) -> tuple[Tensor, ...]:
        angle = ops.cast(transformation["angle"], "float32") * (math.pi / 180)
        cos, sin = ops.cos(angle), ops.sin(angle)
        y, x = ((n - 1) / 2 for n in size)
        return (*(cos, -sin, x - x * cos + y * sin), *(sin, cos, y - x * sin - y * cos))


class RandomTranslation(AffineLayer):
    """Random translation: in training, shifts each image.

    Args:
        height_factor: range (lower, upper) of the shift down, as a fraction of the
            height, inside [-1, 1]; a number f: (-f, f). Negative is up.
        width_factor: range of the shift to the right, as a fraction of the width.
        fill_mode: values outside of the image: "constant"; "nearest" repeats the edge
            pixel; "reflect" mirrors including the edge pixel, "mirror" without it;
            "wrap" repeats the image.
        interpolation: "nearest" or "bilinear"; masks always use "nearest".
        seed: an integer, for reproducible draws, or a SeedGenerator.
        fill_value: the value outside of the image in mode "constant".
        data_format: "channels_last", "channels_first", or None for the global default.
        bounding_box_format: the format of "bounding_boxes", if present.

    Call arguments:
        data: images, or a dict with "images"; all other entries are transformed to
            match.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomTranslation(0, (0.5, 0.5), "constant")
        >>> layer(toolkit.ops.array([[[1.0], [2.0]], [[3.0], [4.0]]]))[..., 0].tolist()
        [[0.0, 1.0], [0.0, 3.0]]
    """

    def __init__(
        self,
        height_factor: NumberOrRange,
        width_factor: NumberOrRange,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Seed = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(
            interpolation, fill_mode, fill_value, seed, data_format, **kwargs
        )
        self.height_factor: NumberOrRange = height_factor
        self.width_factor: NumberOrRange = width_factor
        self._ranges = [
            symmetric_range(self, name, factor, (-1.0, 1.0))
            for name, factor in (
                ("height_factor", height_factor),
                ("width_factor", width_factor),
            )
        ]

    def _draw_transformation(
        self, n: int, size: Size, seed: SeedLike
    ) -> dict[str, Any]:
        pairs = zip(self._ranges, size, strict=True)
        down, right = (_uniform(bounds, n, seed) * extent for bounds, extent in pairs)
        return {"translations": ops.concatenate([right, down], axis=1)}

    def _matrix(
        self, transformation: Any, size: Size
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        right, down = ops.unstack(transformation["translations"], axis=-1)
        one, zero = ops.ones_like(right), ops.zeros_like(right)
        return one, zero, -right, zero, one, -down

    def _moved_boxes(
        self, boxes: TensorLike, transformation: Any, size: Size
    ) -> Tensor:
        distances = ops.unstack(transformation["translations"], axis=-1)
        right, down = (expand_like(x, boxes) for x in distances)
        return shifted(boxes, down, right)


class RandomZoom(AffineLayer):
    """Random zoom: in training, scales the content of each image around its center.

    Args:
        height_factor: range (lower, upper) of z; the output shows 1 + z times the
            height. Positive zooms out, negative zooms in; inside (-1, 1]; a number f:
            (-f, f).
        width_factor: range for the width; None keeps the aspect ratio.
        fill_mode: values outside of the image: "constant"; "nearest" repeats the edge
            pixel; "reflect" mirrors including the edge pixel, "mirror" without it;
            "wrap" repeats the image.
        interpolation: "nearest" or "bilinear"; masks always use "nearest".
        seed: an integer, for reproducible draws, or a SeedGenerator.
        fill_value: the value outside of the image in mode "constant".
        data_format: "channels_last", "channels_first", or None for the global default.
        bounding_box_format: the format of "bounding_boxes", if present.

    Call arguments:
        data: images, or a dict with "images"; all other entries are transformed to
            match.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomZoom((1.0, 1.0), fill_mode="constant")
        >>> layer(toolkit.ops.ones((4, 4, 1)))[:, 1, 0].tolist()
        [0.0, 1.0, 1.0, 0.0]
    """

    def __init__(
        self,
        height_factor: NumberOrRange,
        width_factor: NumberOrRange | None = None,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Seed = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(
            interpolation, fill_mode, fill_value, seed, data_format, **kwargs
        )
        self.height_factor: NumberOrRange = height_factor
        self.width_factor: NumberOrRange | None = width_factor
        factors = {"height_factor": height_factor, "width_factor": width_factor}
        self._ranges = [
            symmetric_range(self, name, factor, (-1.0, 1.0), open_low=True)
            for name, factor in factors.items()
            if factor is not None or name == "height_factor"
        ]

    def _draw_transformation(
        self, n: int, size: Size, seed: SeedLike
    ) -> dict[str, Any]:
        zooms = [_uniform(bounds, n, seed, offset=1.0) for bounds in self._ranges]
        return {"height_zoom": zooms[0], "width_zoom": zooms[-1]}

    def _matrix(
        self, transformation: Any, size: Size
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        names = "height_zoom", "width_zoom"
        down, right = (ops.cast(transformation[name], "float32") for name in names)
        zero = ops.zeros_like(down)
        offset_y, offset_x = (
            (n - 1) / 2 * (1 - zoom)
            for n, zoom in zip(size, (down, right), strict=True)
        )
        return right, zero, offset_x, zero, down, offset_y


class RandomShear(AffineLayer):
    """Random shear: in training, shifts rows horizontally and columns vertically.

    Row y moves by `x_factor * y` pixels, column x by `y_factor * x`. Half of the images
    are sheared in the opposite direction.

    Args:
        x_factor: range (lower, upper) inside [0, 1]; a number f: (-f, f).
        y_factor: range for columns, like `x_factor`.
        interpolation: "nearest" or "bilinear"; masks always use "nearest".
        fill_mode: values outside of the image: "constant"; "nearest" repeats the edge
            pixel; "reflect" mirrors including the edge pixel, "mirror" without it;
            "wrap" repeats the image.
        fill_value: the value outside of the image in mode "constant".
        data_format: "channels_last", "channels_first", or None for the global default.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        bounding_box_format: the format of "bounding_boxes", if present. They are
            sheared in fractions of the image size, which is exact for square images.

    Call arguments:
        data: images, or a dict with "images"; all other entries are transformed to
            match.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomShear((1.0, 1.0), seed=1)
        >>> layer(toolkit.ops.ones((4, 4, 1))).shape
        (4, 4, 1)
    """

    def __init__(
        self,
        x_factor: NumberOrRange = 0.0,
        y_factor: NumberOrRange = 0.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        data_format: str | None = None,
        seed: Seed = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(
            interpolation, fill_mode, fill_value, seed, data_format, **kwargs
        )
        self.x_factor: Range = symmetric_range(self, "x_factor", x_factor, (0.0, 1.0))
        self.y_factor: Range = symmetric_range(self, "y_factor", y_factor, (0.0, 1.0))

    def _draw_transformation(
        self, n: int, size: Size, seed: SeedLike
    ) -> dict[str, Any]:
        sides = ops.where(random.uniform((n, 1), seed=seed) > 0.5, -1.0, 1.0)
        factors = [
            _uniform(bounds, n, seed) for bounds in (self.x_factor, self.y_factor)
        ]
        return {"shear_factor": ops.concatenate(factors, axis=1) * sides}

    def _matrix(
        self, transformation: Any, size: Size
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        x, y = ops.unstack(transformation["shear_factor"], axis=-1)
        one, zero = ops.ones_like(x), ops.zeros_like(x)
        return one, x, zero, y, one, zero

    def _moved_boxes(self, boxes: Any, transformation: Any, size: Size) -> Tensor:
        height, width = size
        factors = ops.cast(transformation["shear_factor"], boxes.dtype)
        by_x, by_y = (ops.reshape(x, (-1, 1, 1)) for x in ops.unstack(factors, axis=-1))
        left, top, right, bottom = coordinates(boxes)
        # In fractions of the size, and in two successive steps, as in Keras.
        by_x, by_y = by_x * (width / height), by_y * (height / width)
        ends = by_x * top, by_x * bottom
        left, right = left - ops.maximum(*ends), right - ops.minimum(*ends)
        ends = by_y * left, by_y * right
        return joined(
            (left, top - ops.maximum(*ends), right, bottom - ops.minimum(*ends))
        )
