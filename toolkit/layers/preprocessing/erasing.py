"""Random erasing, and padding of boxes to a fixed number."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed, is_real
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.color_layer import (
    RandomColorLayer,
    batch_size,
    factor_range,
)
from toolkit.layers.preprocessing.image_layer import ImageLayer
from toolkit.type_aliases import (
    NumberOrRange,
    NumberRange,
    Range,
    RegularizedLayerOptions,
    SeedLike,
    TensorLike,
)


class RandomErasing(RandomColorLayer):
    """Random erasing: in training, fills a random rectangle with a value or noise.

    Args:
        factor: range (lower, upper) inside [0, 1] of each image's probability; a number
            f: (0, f).
        scale: range (lower, upper) inside [0, 1]. The rectangle's height and width, as
            fractions of the image's, are square roots of two random numbers from this
            range.
        fill_value: a number, or one for each of 3 channels; None: normal noise with the
            highest value as its standard deviation.
        value_range: (lowest, highest) value of the images; the fill is clipped to it.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images, or a dict with "images"; all other entries stay unchanged.
        training: whether to apply the transformation; True by default.

    Output shape: same as the inputs.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomErasing(scale=(0.25, 0.25), fill_value=9)
        >>> layer(toolkit.ops.ones((4, 4, 1))).shape
        (4, 4, 1)

    Reference: Zhong et al. 2017, https://arxiv.org/abs/1708.04896
    """

    bounds: ClassVar[Range] = (0.0, 1.0)

    def __init__(
        self,
        factor: NumberOrRange = 1.0,
        scale: NumberOrRange = (0.02, 0.33),
        fill_value: Any = None,
        value_range: NumberRange = (0, 255),
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(factor, value_range, data_format, seed, **kwargs)
        self.scale: Range = factor_range(self, scale, self.bounds, "scale")
        numbers = fill_value if isinstance(fill_value, (tuple, list)) else [0.0] * 3
        if len(numbers) != 3 or (
            numbers is not fill_value
            and fill_value is not None
            and not is_real(fill_value)
        ):
            raise ArgumentError(
                "RandomErasing: The `fill_value` argument should be a number (or a "
                f"list of three numbers). Received: fill_value={fill_value!r}"
            )
        self.fill_value: Any = fill_value

    def get_random_transformation(
        self, data: Any, training: bool = True, seed: SeedLike | None = None
    ) -> Any:
        if not training:
            return None
        images = data["images"] if isinstance(data, dict) else data
        n, seed = batch_size(images), self.generator if seed is None else seed
        height, width = self.image_size(images)
        low, high = map(float, self.scale)
        shares = ops.sqrt(random.uniform((2, n), low, high, seed=seed))
        first = 2 if self.data_format == "channels_first" else 1
        intervals = [
            _interval(extent, shares[i], first + axis, seed)
            for i, axis, extent in ((0, 1, width), (1, 0, height))
        ]
        return {
            "apply_erasing": ops.reshape(self._draw_is_selected(n, seed), (n,)),
            "batch_masks": ops.logical_and(*intervals),
            "fill_value": self._filling(tuple(images.shape), seed),
        }

    def _filling(self, shape: tuple[int, ...], seed: SeedLike) -> Tensor:
        """Return the values of erased pixels, broadcastable to images of that shape."""
        if self.fill_value is None:
            value = random.normal(shape, seed=seed) * self.value_range[1]
        else:
            value = ops.convert_to_tensor(self.fill_value, dtype="float32")
            if value.ndim and self.data_format == "channels_first":
                value = ops.reshape(value, (3, 1, 1))
        return self._clipped(value)

    def transform_images(
        self, images: TensorLike, transformation: Any = None, training: bool = True
    ) -> Tensor:
        images = ops.cast(images, self.compute_dtype)
        if not training or transformation is None:
            return images
        apply = ops.reshape(transformation["apply_erasing"], (-1, 1, 1, 1))
        erased = ops.logical_and(apply, transformation["batch_masks"])
        filling = ops.cast(transformation["fill_value"], images.dtype)
        return ops.where(erased, filling, images)


def _interval(extent: int, share: Tensor, axis: int, seed: SeedLike) -> Tensor:
    """Return, (n, ...) with 4 axes, which positions are in the interval."""
    n = share.shape[0]
    length = share * extent
    start = random.uniform((n,), dtype=share.dtype, seed=seed) * (extent - length)
    start, stop = (ops.reshape(x, (-1, 1, 1, 1)) for x in (start, start + length))
    shape = [1] * 4
    shape[axis] = extent
    positions = ops.reshape(ops.arange(extent, dtype=share.dtype), shape)
    return ops.logical_and(positions >= start, positions < stop)


class MaxNumBoundingBoxes(ImageLayer):
    """Layer that truncates or pads boxes to a fixed number per image.

    Args:
        max_number: the number of boxes.
        fill_value: the value of padding.
        bounding_box_format: the format of "bounding_boxes"; it stays unchanged.

    Call arguments:
        data: a dict of "images", "bounding_boxes" and other entries, which stay
            unchanged.

    Output shape: same as the inputs, with "boxes" (batch, max_number, 4) and "labels"
    (batch, max_number) or (batch, max_number, classes).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.MaxNumBoundingBoxes(2, bounding_box_format="xyxy")
        >>> ops = toolkit.ops
        >>> boxes = {"boxes": ops.ones((1, 4)), "labels": ops.array([7])}
        >>> data = {"images": ops.ones((4, 4, 1)), "bounding_boxes": boxes}
        >>> layer(data)["bounding_boxes"]["labels"].tolist()
        [7, -1]
    """

    def __init__(
        self,
        max_number: int,
        fill_value: int = -1,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.max_number: int = int(max_number)
        self.fill_value: int = int(fill_value)

    def transform_images(
        self, images: TensorLike, transformation: Any = None, training: bool = True
    ) -> Any:
        return images

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any = None, training: bool = True
    ) -> dict[str, Tensor]:
        fitted = {key: self._fitted(bounding_boxes[key]) for key in ("boxes", "labels")}
        return {**bounding_boxes, **fitted}

    def _fitted(self, x: Tensor) -> Tensor:
        """Truncate or pad (batch, n, ...) to `max_number` along the second axis."""
        x = ops.convert_to_tensor(x)[:, : self.max_number]
        padding = self.max_number - x.shape[1]
        widths = [(0, padding if axis == 1 else 0) for axis in range(x.ndim)]
        return ops.pad(x, widths, constant_values=self.fill_value)
