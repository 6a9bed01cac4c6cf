"""Layers that crop images, with their boxes and masks."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import ops, random
from toolkit.arguments import Seed
from toolkit.core.tensor import Tensor
from toolkit.layers.preprocessing.boxes import cut, scaled
from toolkit.layers.preprocessing.image_layer import ImageLayer, Size
from toolkit.random.seeds import as_generator
from toolkit.type_aliases import RegularizedLayerOptions, TensorLike

Window = tuple[Any, Any, int, int]  # top, left, height, width


class CroppingLayer(ImageLayer):
    """Base class of layers that crop images: by default to the center.

    The transformation is a dict of "window" and "input_size".

    Args:
        height: the output height, in pixels.
        width: the output width, in pixels.
        data_format: "channels_last", "channels_first", or None for the global default.
    """

    def __init__(
        self,
        height: int,
        width: int,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.height: int = height
        self.width: int = width

    def get_random_transformation(
        self, data: Any, training: bool = True, seed: Any = None
    ) -> Any:
        """Return the window to crop.

        Args:
            data: images, or a dict with "images".
            training: whether to run in training mode.
            seed: the source of random numbers; the layer's generator if None.
        """
        size = self.image_size(data["images"] if isinstance(data, dict) else data)
        return {"window": self._window(size, training, seed), "input_size": size}

    def _window(self, size: Size, training: bool, seed: Any) -> Window:
        """Return the window to keep."""
        height, width = self._window_size(size)
        return (size[0] - height) // 2, (size[1] - width) // 2, height, width

    def _window_size(self, size: Size) -> Size:
        """Return the window size; for small images, the largest of its aspect ratio."""
        height, width = size
        if height >= self.height and width >= self.width:
            return self.height, self.width
        return (
            max(min(height, width * self.height // self.width), 1),
            max(min(width, height * self.width // self.height), 1),
        )

    def _cropped(
        self, images: Tensor, transformation: Any, interpolation: str
    ) -> Tensor:
        if transformation is None:
            transformation = self.get_random_transformation(images)
        top, left, *extents = transformation["window"]
        images = ops.convert_to_tensor(images)
        start = images.ndim - (2 if self.data_format == "channels_first" else 3)
        starts, sizes = [0] * images.ndim, list(images.shape)
        starts[start : start + 2], sizes[start : start + 2] = (top, left), extents
        window = ops.slice(images, starts, sizes)
        size = self.height, self.width
        if size == tuple(extents):
            return window
        return ops.image.resize(
            window, size, interpolation, data_format=self.data_format
        )

    def transform_images(
        self, images: TensorLike, transformation: Any = None, training: bool = True
    ) -> Tensor:
        images = ops.cast(images, self.compute_dtype)
        return self._cropped(images, transformation, "bilinear")

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: bool = True
    ) -> Tensor:
        return self._cropped(segmentation_masks, transformation, "nearest")

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> dict[str, Tensor]:
        top, left, height, width = transformation["window"]
        scales = self.height / height, self.width / width

        def move(boxes: TensorLike) -> Tensor:
            return scaled(cut(boxes, top, left, height, width), *scales)

        new_size = self.height, self.width
        return self._move_boxes(
            bounding_boxes, transformation["input_size"], new_size, move
        )


class CenterCrop(CroppingLayer):
    """Center crop; a too small image is cropped to the aspect ratio and enlarged.

    Args:
        height: the output height, in pixels.
        width: the output width, in pixels.
        data_format: "channels_last", "channels_first", or None for the global default.
        bounding_box_format: the format of "bounding_boxes", if present.

    Call arguments:
        data: images (batch, height, width, channels) or one of them; or a dict of
            "images" and any of "labels", "bounding_boxes" and "segmentation_masks".

    Output shape: (batch, height, width, channels).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.reshape(toolkit.ops.arange(16), (4, 4, 1))
        >>> toolkit.layers.CenterCrop(2, 2)(x)[..., 0].tolist()
        [[5.0, 6.0], [9.0, 10.0]]
    """


class RandomCrop(CroppingLayer):
    """Random crop: in training, crops a batch to one random window.

    In inference it crops to the center. A too small image is cropped to the aspect
    ratio and enlarged.

    Args:
        height: the output height, in pixels.
        width: the output width, in pixels.
        seed: an integer, for reproducible draws, or a SeedGenerator.
        data_format: "channels_last", "channels_first", or None for the global default.
        bounding_box_format: the format of "bounding_boxes", if present.

    Call arguments:
        data: images (batch, height, width, channels) or one of them; or a dict of
            "images" and any of "labels", "bounding_boxes" and "segmentation_masks".
        training: whether the window is random; True by default.

    Output shape: (batch, height, width, channels).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.RandomCrop(2, 2, seed=1)
        >>> layer(toolkit.ops.ones((5, 4, 6, 3))).shape
        (5, 2, 2, 3)
    """

    def __init__(
        self,
        height: int,
        width: int,
        seed: Seed = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(height, width, data_format, **kwargs)
        self.seed = seed
        self.generator: random.SeedGenerator = as_generator(seed)

    def _window(self, size: Size, training: bool, seed: Any) -> Window:
        extents = self._window_size(size)
        if not training or extents != (self.height, self.width):
            return super()._window(size, training, seed)
        seed = self.generator if seed is None else seed
        top, left = (
            random.randint((), 0, extent - n + 1, seed=seed)
            for extent, n in zip(size, extents, strict=True)
        )
        return top, left, *extents
