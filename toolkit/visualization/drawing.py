"""Boxes and masks drawn on batches of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import settings
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    ShapeError,
    unknown_choice,
)
from toolkit.layers.preprocessing.boxes import convert_format
from toolkit.visualization.text import Pixels, draw_text, fill

_PALETTE = np.array([2**25 - 1, 2**15 - 1, 2**21 - 1])  # as in Keras
_FORMATS = ("channels_last", "channels_first")


def is_channels_first(function: str, data_format: str | None) -> bool:
    """Return whether the second axis of images is the color axis."""
    data_format = data_format or settings.image_data_format()
    if data_format not in _FORMATS:
        raise unknown_choice(f"{function}: data_format", data_format, _FORMATS)
    return data_format == "channels_first"


def batch_of_images(function: str, images: Any, channels_first: bool = False) -> Any:
    """Return images as an array (n, height, width, channels)."""
    images = np.asarray(images)
    if images.ndim != 4:
        raise ShapeError(
            f"{function}: `images` must be batched, a 4D tensor; received shape "
            f"{images.shape}"
        )
    return np.moveaxis(images, 1, -1) if channels_first else images


def _as_bytes(images: Any) -> Pixels:
    """Return a copy as uint8; floats are in [0, 1] or, if any is larger, [0, 255]."""
    if images.dtype.kind not in "bui" and images.size:
        images = images.astype("float64")
        images = np.clip(images, 0, 255) if images.max() > 1 else images * 255
    return np.clip(images, 0, 255).astype("uint8")


def draw_bounding_boxes(
    images: Any,
    bounding_boxes: dict[str, Any],
    bounding_box_format: str,
    class_mapping: dict[int, str] | None = None,
    color: Any = (128, 128, 128),
    line_thickness: int = 2,
    text_thickness: int = 1,
    font_scale: float = 1.0,
    data_format: str | None = None,
) -> Pixels:
    """Draw boxes on images, with the names of their classes.

    Args:
        images: (n, height, width, channels), from 0 to 255, or floats from 0 to 1.
        bounding_boxes: a dict of "boxes" (n, boxes, 4), "labels" (n, boxes), where -1
            means no box, and optionally "confidences" (n, boxes).
        bounding_box_format: such as "xyxy"; see `utils.bounding_boxes.convert_format`.
        class_mapping: label -> the name to draw; None: no names.
        color: one number from 0 to 255 for each channel.
        line_thickness: thickness of the lines, in pixels; negative for filled boxes.
        text_thickness: thickness of the letters, in pixels.
        font_scale: 1 for capital letters 19 pixels high.
        data_format: "channels_last" or "channels_first": the layout of the images.

    Returns:
        uint8, shaped like `images`.

    Example:
        >>> import numpy as np
        >>> from toolkit.visualization import draw_bounding_boxes
        >>> boxes = {"boxes": [[[1, 1, 4, 4]]], "labels": [[0]]}
        >>> image = np.zeros((1, 6, 6, 1))
        >>> draw_bounding_boxes(image, boxes, "xyxy", color=9, line_thickness=1)[
        ...     0, :, :, 0
        ... ]
        array([[0, 0, 0, 0, 0, 0],
               [0, 9, 9, 9, 9, 0],
               [0, 9, 0, 0, 9, 0],
               [0, 9, 0, 0, 9, 0],
               [0, 9, 9, 9, 9, 0],
               [0, 0, 0, 0, 0, 0]], dtype=uint8)
    """
    channels_first = is_channels_first("draw_bounding_boxes", data_format)
    canvas = _as_bytes(batch_of_images("draw_bounding_boxes", images, channels_first))
    boxes = _corners(bounding_boxes, bounding_box_format, *canvas.shape[1:3])
    labels = np.asarray(bounding_boxes["labels"]).astype("int32")
    confidences = bounding_boxes.get("confidences")
    names = class_mapping or {}
    size = max(round(3 * font_scale), 1)
    for image, box in np.ndindex(*labels.shape):
        label = int(labels[image, box])
        if label == -1:
            continue
        x1, y1, x2, y2 = (int(number) for number in boxes[image, box])
        _frame(canvas[image], x1, y1, x2, y2, line_thickness, color)
        if label in names:
            text = names[label]
            if confidences is not None:
                text = f"{text} | {float(np.asarray(confidences)[image, box]):.2f}"
            x, y = _foot(x1, y1, size, text_thickness)
            draw_text(canvas[image], text, x, y, size, text_thickness, color)
    return np.moveaxis(canvas, -1, 1) if channels_first else canvas


def _corners(bounding_boxes: Any, source: str, height: int, width: int) -> Any:
    """Return the boxes as left, top, right, bottom in pixels."""
    if not isinstance(bounding_boxes, dict):
        raise ArgumentTypeError(
            "draw_bounding_boxes: `bounding_boxes` should be a dict; received "
            f"{type(bounding_boxes).__name__}"
        )
    if not {"boxes", "labels"} <= bounding_boxes.keys():
        raise ArgumentError(
            "draw_bounding_boxes: `bounding_boxes` should be a dict containing 'boxes' "
            f"and 'labels' keys; received {sorted(bounding_boxes)}"
        )
    boxes = np.asarray(bounding_boxes["boxes"], "float32")
    return np.asarray(convert_format(boxes, source, "xyxy", height, width))


def _frame(
    image: Pixels, x1: int, y1: int, x2: int, y2: int, thickness: int, color: Any
) -> None:
    """Draw the four sides of a box, centered on the lines through its corners."""
    if thickness < 0:
        return fill(image, x1, y1, x2 + 1, y2 + 1, color)
    low, high = thickness // 2, thickness - thickness // 2
    for y in (y1, y2):
        fill(image, x1 - low, y - low, x2 + high, y + high, color)
    for x in (x1, x2):
        fill(image, x - low, y1 - low, x + high, y2 + high, color)


def _foot(x: int, y: int, size: int, thickness: int) -> tuple[int, int]:
    """Return the origin of a text: above the box, or inside if there is no room."""
    if y - 8 - 7 * size >= 0:
        return x, y - 8
    return x + 3 + thickness, y + 3 + thickness + 7 * size


def draw_segmentation_masks(
    images: Any,
    segmentation_masks: Any,
    num_classes: int | None = None,
    color_mapping: dict[int, Any] | None = None,
    alpha: float = 0.8,
    blend: bool = True,
    ignore_index: int = -1,
    data_format: str | None = None,
) -> Pixels:
    """Color the pixels of images by their classes.

    Args:
        images: (n, height, width, channels), from 0 to 255, or floats from 0 to 1.
        segmentation_masks: integers (n, height, width), or with an extra axis of extent
            1 at the color axis of the images. Class 0 is the background.
        num_classes: default colors are used for classes 1 to this number; the largest
            class in `segmentation_masks` if None.
        color_mapping: class -> color, for the classes to color.
        alpha: opacity of the colors, from 0 to 1.
        blend: whether to blend with the images; False means an alpha of 1.
        ignore_index: a class that is not coloured.
        data_format: "channels_last" or "channels_first": the layout of the images.

    Returns:
        uint8, shaped like `images`.

    Example:
        >>> import numpy as np
        >>> from toolkit.visualization import draw_segmentation_masks
        >>> mask = np.array([[[0, 1], [2, 0]]])
        >>> image = np.full((1, 2, 2, 1), 10)
        >>> colors = {1: [20], 2: [110]}
        >>> draw_segmentation_masks(image, mask, None, colors, alpha=0.5)[0, :, :, 0]
        array([[10, 15],
               [60, 10]], dtype=uint8)
    """
    name = "draw_segmentation_masks"
    channels_first = is_channels_first(name, data_format)
    canvas = _as_bytes(batch_of_images(name, images, channels_first))
    masks = np.asarray(segmentation_masks)
    if masks.dtype.kind not in "iu":
        raise DTypeError(
            f"{name}: `segmentation_masks` must be integers; received {masks.dtype}"
        )
    if masks.ndim == 4:
        masks = np.squeeze(masks, 1 if channels_first else -1)
    if masks.shape != canvas.shape[:3]:
        raise ShapeError(
            f"{name}: `segmentation_masks` must be {canvas.shape[:3]} like the images; "
            f"received shape {np.shape(segmentation_masks)}"
        )
    if not 0 <= alpha <= 1:
        raise ArgumentError(f"{name}: alpha must be from 0 to 1; received {alpha!r}")
    if color_mapping is None:
        last = int(masks.max(initial=0)) if num_classes is None else num_classes
        color_mapping = {i: i * _PALETTE % 255 for i in range(1, last + 1)}
    share = alpha if blend else 1.0
    for index, color in color_mapping.items():
        if index != ignore_index:
            selected = masks == index
            mixed = canvas[selected] * (1 - share) + np.asarray(color) * share
            canvas[selected] = np.clip(np.round(mixed, 6), 0, 255).astype("uint8")
    return np.moveaxis(canvas, -1, 1) if channels_first else canvas
