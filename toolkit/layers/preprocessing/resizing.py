"""Resizing: a layer that interpolates images to one size."""

from __future__ import annotations

from typing import Any, Unpack

from toolkit import dtypes, ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.layers.preprocessing.boxes import scaled
from toolkit.layers.preprocessing.image_layer import ImageLayer
from toolkit.type_aliases import RegularizedLayerOptions, TensorLike


class Resizing(ImageLayer):
    """Layer that resizes images by interpolation.

    Args:
        height: the output height, in pixels; None if it is set later, before a call.
        width: the output width, in pixels; likewise.
        interpolation: "nearest", "bilinear", "bicubic", "lanczos3" or "lanczos5".
        crop_to_aspect_ratio: whether to crop to the aspect ratio, at both sides,
            instead of stretching.
        pad_to_aspect_ratio: whether to pad to the aspect ratio, at both sides.
        fill_mode: the padding mode; only "constant".
        fill_value: the value of padding.
        antialias: whether to apply an antialiasing filter when images shrink.
        data_format: "channels_last", "channels_first", or None for the global default.
        bounding_box_format: the format of "bounding_boxes", if present.

    Call arguments:
        data: images (batch, height, width, channels) or one of them; or a dict of
            "images" and any of "labels", "bounding_boxes" and "segmentation_masks".

    Output shape: (batch, height, width, channels). Integers keep their dtype, rounded
        from the interpolated values; floats are cast to the layer's dtype before the
        interpolation, also if it is an integer dtype.

    Example:
        >>> import toolkit
        >>> images = toolkit.ops.ones((2, 30, 40, 3))
        >>> toolkit.layers.Resizing(8, 10)(images).shape
        (2, 8, 10, 3)
    """

    def __init__(
        self,
        height: int | None,
        width: int | None,
        interpolation: str = "bilinear",
        crop_to_aspect_ratio: bool = False,
        pad_to_aspect_ratio: bool = False,
        fill_mode: str = "constant",
        fill_value: float = 0.0,
        antialias: bool = False,
        data_format: str | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.height = height
        self.width = width
        self.interpolation = interpolation
        self.crop_to_aspect_ratio = crop_to_aspect_ratio
        self.pad_to_aspect_ratio = pad_to_aspect_ratio
        self.fill_mode: str = fill_mode
        self.fill_value: float = fill_value
        self.antialias: bool = bool(antialias)

    @property
    def _size(self) -> tuple[int, int]:
        if self.height is None or self.width is None:
            raise ArgumentError(
                f"{self.name}: expected height and width to be set before a call; "
                f"received height={self.height}, width={self.width}"
            )
        return self.height, self.width

    def _resized(self, images: TensorLike, interpolation: str) -> Tensor:
        return ops.image.resize(
            images,
            self._size,
            interpolation=interpolation,
            antialias=self.antialias,
            crop_to_aspect_ratio=self.crop_to_aspect_ratio,
            pad_to_aspect_ratio=self.pad_to_aspect_ratio,
            fill_mode=self.fill_mode,
            fill_value=self.fill_value,
            data_format=self.data_format,
        )

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Tensor:
        if dtypes.is_float(images.dtype):
            images = ops.cast(images, self.compute_dtype)
        return self._resized(images, self.interpolation)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        return self._resized(segmentation_masks, "nearest")

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> dict[str, Tensor]:
        (height, width), (new_height, new_width) = transformation, self._size
        scales = new_height / height, new_width / width
        top = left = 0.0
        if self.pad_to_aspect_ratio or self.crop_to_aspect_ratio:
            scale = min(scales) if self.pad_to_aspect_ratio else max(scales)
            scales = scale, scale
            top = _margin(new_height, height * scale)
            left = _margin(new_width, width * scale)

        def move(boxes: Tensor) -> Tensor:
            padding = ops.all(boxes == 0, axis=-1, keepdims=True)
            none = ops.all(boxes == -1, axis=-1, keepdims=True)
            offset = ops.convert_to_tensor([left, top] * 2, dtype=boxes.dtype)
            moved = scaled(boxes, *scales) + offset
            return ops.where(ops.logical_or(padding, none), 0.0, moved)

        return self._move_boxes(bounding_boxes, transformation, self._size, move)


def _margin(size: int, filled: float) -> float:
    """Return the padding before the image of `size` pixels; < 0 means cropping."""
    return (size - filled) // 2 if filled <= size else -((filled - size) // 2)
