"""Common part of image layers: batches and single images, labels, boxes and masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from toolkit import ops, tree
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.preprocessing.boxes import (
    checked_boxes,
    clip_to_image_size,
    convert_format,
)
from toolkit.layers.preprocessing.data_layer import DataLayer
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import RegularizedLayerOptions, SeedLike, TensorLike

Size = tuple[int, int]


class ImageLayer(DataLayer):
    """Base class of layers that change images with their labels, boxes and masks.

    A subclass defines `transform_images`, and the other `transform_...` methods for
    data that changes, too. They receive batches, also for a single image.

    Args:
        bounding_box_format: the format of "bounding_boxes", if present; see
            `toolkit.utils.bounding_boxes.convert_format`.
        data_format: "channels_last", "channels_first", or None for the global default.

    Call arguments:
        data: images (batch, height, width, channels) or one of them, or a dict of
            "images" and any of "labels", "bounding_boxes" and "segmentation_masks".
        training: whether to run in training mode.
    """

    def __init__(
        self,
        bounding_box_format: str | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.bounding_box_format = bounding_box_format
        self.data_format: str = standardize_data_format(data_format)

    def call(self, data: Any, training: bool = True) -> Any:
        sample = dict(data) if isinstance(data, dict) else {"images": data}
        if "bounding_boxes" in sample:
            if not self.bounding_box_format:
                raise ArgumentError(
                    f"{type(self).__name__}: the inputs have 'bounding_boxes'; set "
                    "their format with the argument `bounding_box_format`, such as "
                    "'xyxy'"
                )
            sample["bounding_boxes"] = checked_boxes(sample["bounding_boxes"])
        rank = len(sample["images"].shape)
        if rank not in (3, 4):
            raise ShapeError(
                f"{type(self).__name__}: Expected the input image to be rank 3 or 4 (a "
                f"batch). Received: shape {tuple(sample['images'].shape)}"
            )
        if rank == 3:
            sample = tree.map_structure(lambda x: ops.expand_dims(x, 0), sample)
        sample = self._transformed(sample, training)
        if rank == 3:
            sample = tree.map_structure(lambda x: ops.squeeze(x, 0), sample)
        return sample if isinstance(data, dict) else sample["images"]

    def _transformed(self, sample: dict[str, Any], training: bool) -> dict[str, Any]:
        """Transform the parts of a batch, each by its method, with one random draw."""
        transformation = self.get_random_transformation(sample, training=training)
        result = dict(sample)
        for key in ("images", "bounding_boxes", "labels", "segmentation_masks"):
            if key in sample:
                transform = getattr(self, f"transform_{key}")
                result[key] = transform(sample[key], transformation, training)
        return result

    def image_size(self, images: Any) -> Size:
        """Return (height, width) of images.

        Args:
            images: images, with or without a batch.
        """
        return self.size_in(images.shape)

    def size_in(self, shape: Any) -> Size:
        """Return (height, width) in the shape of images.

        Args:
            shape: the shape of images, with or without a batch.
        """
        start = -2 if self.data_format == "channels_first" else -3
        return shape[start], shape[start + 1]

    def get_random_transformation(
        self, data: Any, training: bool = True, seed: SeedLike | None = None
    ) -> Any:
        """Return the arguments of `transform_...`: by default (height, width).

        Args:
            data: images, or a dict with "images".
            training: whether to run in training mode.
            seed: the source of random numbers; the layer's generator if None.
        """
        return self.image_size(data["images"] if isinstance(data, dict) else data)

    def transform_images(
        self, images: TensorLike, transformation: Any, training: bool = True
    ) -> Any:
        """Return images (batch, height, width, channels) after the transformation.

        Args:
            images: the images of a batch.
            transformation: the result of `get_random_transformation`.
            training: whether to run in training mode.

        Returns:
            The transformed images.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define transform_images"
        )

    def transform_labels(
        self, labels: TensorLike, transformation: Any, training: bool = True
    ) -> Any:
        """Return labels (batch, ...) after the transformation; by default unchanged.

        Args:
            labels: the labels of a batch.
            transformation: the result of `get_random_transformation`.
            training: whether to run in training mode.

        Returns:
            The transformed labels.
        """
        return labels

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        """Return a dict of "boxes" and "labels" after the transformation.

        Args:
            bounding_boxes: the bounding boxes of a batch.
            transformation: the result of `get_random_transformation`.
            training: whether to run in training mode.

        Returns:
            The transformed bounding boxes.
        """
        return bounding_boxes

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: bool = True
    ) -> Any:
        """Return masks (batch, height, width, channels) after the transformation.

        Args:
            segmentation_masks: the segmentation masks of a batch.
            transformation: the result of `get_random_transformation`.
            training: whether to run in training mode.

        Returns:
            The transformed segmentation masks.
        """
        return segmentation_masks

    def _move_boxes(
        self, boxes: Any, size: Size, new_size: Size, move: Callable[[Any], Any]
    ) -> dict[str, Tensor]:
        """Apply `move` to the corners "xyxy" of boxes, in pixels, and clip the boxes.

        Args:
            boxes: a dict of "boxes" and "labels".
            size: (height, width) of the images before the transformation.
            new_size: (height, width) after it.
            move: a function from (..., 4) to (..., 4).
        """
        of_layer: Any = self.bounding_box_format  # None raises an error with the reason
        boxes = convert_format(boxes, of_layer, "xyxy", *size)
        boxes = {**boxes, "boxes": move(boxes["boxes"])}
        boxes = clip_to_image_size(boxes, *new_size)
        return convert_format(boxes, "xyxy", of_layer, *new_size)
