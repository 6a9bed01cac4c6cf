"""Bounding boxes of objects in images: formats and clipping.

A set of boxes is (..., 4). With labels it is a dict of "boxes", (..., n, 4), and
"labels", (..., n) or (..., n, classes). Padding has the label -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.type_aliases import TensorLike

Coordinates = tuple[Any, Any, Any, Any]

# Conversions of each format to (left, top, right, bottom), and back.
_FORMATS: dict[str, tuple[Callable[..., Coordinates], Callable[..., Coordinates]]] = {
    "xyxy": (
        lambda x, y, right, bottom: (x, y, right, bottom),
        lambda x, y, right, bottom: (x, y, right, bottom),
    ),
    "yxyx": (
        lambda y, x, bottom, right: (x, y, right, bottom),
        lambda x, y, right, bottom: (y, x, bottom, right),
    ),
    "xywh": (
        lambda x, y, w, h: (x, y, x + w, y + h),
        lambda x, y, right, bottom: (x, y, right - x, bottom - y),
    ),
    "center_xywh": (
        lambda x, y, w, h: (x - w / 2, y - h / 2, x + w / 2, y + h / 2),
        lambda x, y, right, bottom: (
            *(x + (right - x) / 2, y + (bottom - y) / 2),
            *(right - x, bottom - y),
        ),
    ),
    "center_yxhw": (
        lambda y, x, h, w: (x - w / 2, y - h / 2, x + w / 2, y + h / 2),
        lambda x, y, right, bottom: (
            *(y + (bottom - y) / 2, x + (right - x) / 2),
            *(bottom - y, right - x),
        ),
    ),
}
_RELATIVE = ("rel_xyxy", "rel_yxyx", "rel_xywh", "rel_center_xywh")
FORMATS = (*_FORMATS, *_RELATIVE)


def coordinates(boxes: TensorLike) -> Coordinates:
    """Split boxes into four coordinates, (..., 1) each."""
    left, top, right, bottom = ops.split(boxes, 4, axis=-1)
    return left, top, right, bottom


def joined(coordinates_list: Sequence[Any]) -> Tensor:
    """Concatenate four coordinates to boxes (..., 4)."""
    return ops.concatenate(coordinates_list, axis=-1)


def _checked(name: str) -> str:
    if name.lower() not in FORMATS:
        raise unknown_choice("convert_format: Invalid format of boxes", name, FORMATS)
    return name.lower()


def convert_format(
    boxes: Any,
    source: str,
    target: str,
    height: Any = None,
    width: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Convert boxes to another format.

    Args:
        boxes: (..., 4), or a dict with boxes under "boxes".
        source: the format of the boxes: "xyxy" (left, top, right, bottom), "yxyx",
            "xywh" (left, top, width, height), "center_xywh", "center_yxhw"; or in
            fractions of the image size: "rel_xyxy", "rel_yxyx", "rel_xywh",
            "rel_center_xywh".
        target: the format of the result.
        height: the height of the image; required for relative formats.
        width: the width of the image; required for relative formats.
        dtype: the dtype of the result.

    Returns:
        The same structure with converted boxes.

    Raises:
        ArgumentError: if a format is unknown, or the image's size is missing.

    Example:
        >>> from toolkit.utils.bounding_boxes import convert_format
        >>> convert_format([[10, 20, 30, 60]], "xyxy", "center_xywh").tolist()
        [[20.0, 40.0, 20.0, 40.0]]
    """
    if isinstance(boxes, dict):
        plain = convert_format(boxes["boxes"], source, target, height, width, dtype)
        return {**boxes, "boxes": plain}
    boxes = ops.cast(boxes, dtype)
    if boxes.shape[-1] != 4:
        raise ShapeError(
            f"convert_format: `boxes` must have a last axis of 4; received shape "
            f"{tuple(boxes.shape)}"
        )
    source, target = _checked(source), _checked(target)
    relative = [name.startswith("rel_") for name in (source, target)]
    if any(relative) and (height is None or width is None):
        raise ArgumentError(
            "convert_format: must receive `height` and `width` to convert from or to a "
            f"relative format; received height={height} and width={width} for "
            f"{source!r} to {target!r}"
        )
    if source == target:
        return boxes
    corners = _FORMATS[source.removeprefix("rel_")][0](*coordinates(boxes))
    if relative[0] != relative[1]:
        sizes = [ops.cast(n, dtype) for n in (width, height, width, height)]
        scale = ops.multiply if relative[0] else ops.divide
        pairs = zip(corners, sizes, strict=True)
        left, top, right, bottom = (scale(x, n) for x, n in pairs)
        corners = left, top, right, bottom
    return joined(_FORMATS[target.removeprefix("rel_")][1](*corners))


def clip_to_image_size(
    bounding_boxes: dict[str, Any],
    height: Any = None,
    width: Any = None,
    bounding_box_format: str = "xyxy",
) -> dict[str, Any]:
    """Clip boxes to the image; empty boxes become -1.

    Args:
        bounding_boxes: a dict of "boxes" and, optionally, "labels".
        height: the height of the image, for "xyxy".
        width: the width of the image, for "xyxy".
        bounding_box_format: "xyxy" or "rel_xyxy".

    Returns:
        A dict with the same keys.

    Example:
        >>> import numpy as np
        >>> from toolkit.utils.bounding_boxes import clip_to_image_size
        >>> boxes = np.array([[-9.0, 2, 5, 8], [20, 20, 30, 30]])
        >>> given = {"boxes": boxes, "labels": np.array([3, 4])}
        >>> clipped = clip_to_image_size(given, height=10, width=10)
        >>> clipped["boxes"].tolist()[0], clipped["labels"].tolist()
        ([0.0, 2.0, 5.0, 8.0], [3, -1])
    """
    if bounding_box_format == "rel_xyxy":
        height = width = 1
    elif bounding_box_format != "xyxy":
        raise unknown_choice(
            "clip_to_image_size: bounding_box_format",
            bounding_box_format,
            ("xyxy", "rel_xyxy"),
        )
    if height is None or width is None:
        raise ArgumentError(
            "clip_to_image_size: `height` and `width` must be set for boxes in pixels; "
            f"received height={height} and width={width}"
        )
    boxes = cut(bounding_boxes["boxes"], 0, 0, height, width)
    result = {**bounding_boxes, "boxes": boxes}
    if bounding_boxes.get("labels") is not None:
        left, top, right, bottom = coordinates(boxes)
        filled = (right - left) * (bottom - top) > 0
        labels = ops.convert_to_tensor(bounding_boxes["labels"])
        if labels.ndim < boxes.ndim:
            filled = ops.squeeze(filled, -1)
        result["labels"] = ops.where(filled, labels, -1)
    return result


def cut(boxes: Any, top: Any, left: Any, height: Any, width: Any) -> Tensor:
    """Shift boxes "xyxy" to a window of the image and clip them."""
    boxes = ops.convert_to_tensor(boxes)
    offsets, sizes = (left, top, left, top), (width, height, width, height)
    rows = zip(coordinates(boxes), offsets, sizes, strict=True)
    return joined(
        tuple(
            ops.clip(x - ops.cast(o, boxes.dtype), 0, ops.cast(n, boxes.dtype))
            for x, o, n in rows
        )
    )


def shifted(boxes: Any, top: Any, left: Any) -> Tensor:
    """Shift boxes "xyxy" for an image with `top` more rows and `left` more columns."""
    boxes = ops.convert_to_tensor(boxes)
    offsets = (left, top, left, top)
    return joined(
        tuple(
            x + ops.cast(o, boxes.dtype)
            for x, o in zip(coordinates(boxes), offsets, strict=True)
        )
    )


def scaled(boxes: Any, height: float, width: float) -> Tensor:
    """Scale the rows and columns of boxes "xyxy"."""
    return boxes * ops.convert_to_tensor([width, height] * 2, dtype=boxes.dtype)


def checked_boxes(bounding_boxes: Any) -> dict[str, Any]:
    """Return the boxes of images as tensors, after a check.

    Raises:
        ArgumentError: if "boxes" or "labels" is missing, or their axes do not fit.
    """
    if not isinstance(bounding_boxes, dict) or not (
        {"boxes", "labels"} <= bounding_boxes.keys()
    ):
        raise ArgumentError(
            "expected `bounding_boxes` to be a dict with keys 'boxes' and 'labels'; "
            f"received {bounding_boxes!r}"
        )
    boxes = ops.cast(ops.convert_to_tensor(bounding_boxes["boxes"]), "float32")
    labels = ops.convert_to_tensor(bounding_boxes["labels"])
    if boxes.ndim not in (2, 3) or labels.ndim not in (boxes.ndim - 1, boxes.ndim):
        raise ArgumentError(
            "expected `bounding_boxes['boxes']` of shape (boxes, 4) or (batch, "
            "boxes, 4), and labels with the same number of axes or one less; "
            f"received {tuple(boxes.shape)} and {tuple(labels.shape)}"
        )
    return {**bounding_boxes, "boxes": boxes, "labels": labels}
