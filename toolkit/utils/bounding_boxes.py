"""Bounding boxes in images, with the names of `keras.utils.bounding_boxes`."""

from __future__ import annotations

import math
from typing import Any

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.layers.preprocessing.boxes import (
    clip_to_image_size,
    convert_format,
    coordinates,
    cut,
    joined,
    shifted,
)
from toolkit.settings import epsilon

__all__ = [
    "affine_transform",
    "clip_to_image_size",
    "compute_ciou",
    "compute_iou",
    "convert_format",
    "crop",
    "decode_deltas_to_boxes",
    "encode_box_to_deltas",
    "pad",
]

_CENTERS = ("center_xywh", "center_yxhw")


def _check_format(function: str, bounding_box_format: str) -> None:
    if bounding_box_format != "xyxy":
        raise unknown_choice(
            f"{function}: bounding_box_format", bounding_box_format, ("xyxy",)
        )


def crop(
    boxes: Any,
    top: Any,
    left: Any,
    height: Any,
    width: Any,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Return boxes relative to a window of the image, clipped to it.

    Args:
        boxes: (..., 4).
        top: first row of the window.
        left: first column of the window.
        height: rows of the window.
        width: columns of the window.
        bounding_box_format: only "xyxy".

    Returns:
        Boxes, (..., 4).

    Example:
        >>> from toolkit.utils.bounding_boxes import crop
        >>> crop([[10.0, 10.0, 50.0, 50.0]], 5, 20, 20, 40).tolist()
        [[0.0, 5.0, 30.0, 20.0]]
    """
    _check_format("crop", bounding_box_format)
    return cut(boxes, top, left, height, width)


def pad(
    boxes: Any,
    top: Any,
    left: Any,
    height: Any = None,
    width: Any = None,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Return boxes in an image with `top` more rows and `left` more columns.

    Args:
        boxes: (..., 4).
        top: rows before the image.
        left: columns before the image.
        height, width: size of the image; no effect on boxes in pixels.
        bounding_box_format: only "xyxy".

    Returns:
        Boxes, (..., 4).

    Example:
        >>> from toolkit.utils.bounding_boxes import pad
        >>> pad([[0.0, 0.0, 5.0, 5.0]], 10, 20).tolist()
        [[20.0, 10.0, 25.0, 15.0]]
    """
    _check_format("pad", bounding_box_format)
    return shifted(boxes, top, left)


def affine_transform(
    boxes: Any,
    angle: Any,
    translate_x: Any,
    translate_y: Any,
    scale: Any,
    shear_x: Any,
    shear_y: Any,
    height: Any,
    width: Any,
    center_x: Any = None,
    center_y: Any = None,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Return the smallest upright boxes around rotated, translated and sheared boxes.

    Args:
        boxes: (batch, n, 4).
        angle: (batch,), in degrees.
        translate_x: (batch,), as fractions of the width.
        translate_y: (batch,), as fractions of the height.
        scale: (batch,), a factor.
        shear_x: (batch,), in degrees.
        shear_y: (batch,), in degrees.
        height: height of the image.
        width: width of the image.
        center_x: fixed point, as a fraction of the width; the middle if None.
        center_y: fixed point, as a fraction of the height; the middle if None.
        bounding_box_format: only "xyxy".

    Returns:
        Boxes, (batch, n, 4).

    Example:
        >>> from toolkit.utils.bounding_boxes import affine_transform
        >>> boxes = [[[2.0, 2.0, 4.0, 4.0]]]
        >>> zero, one = [0.0], [1.0]
        >>> affine_transform(boxes, zero, zero, zero, [2.0], zero, zero, 8, 8).shape
        (1, 1, 4)
    """
    _check_format("affine_transform", bounding_box_format)
    angle, shear_x, shear_y = (
        -ops.cast(x, "float32") * (math.pi / 180) for x in (angle, shear_x, shear_y)
    )
    a = ops.cos(angle - shear_y) / ops.cos(shear_y)
    c = -ops.sin(angle - shear_y) / ops.cos(shear_y)
    b = a * ops.tan(shear_x) + ops.sin(angle)
    d = ops.cos(angle) - c * ops.tan(shear_x)
    x = (0.5 if center_x is None else center_x) * (width - 1)
    y = (0.5 if center_y is None else center_y) * (height - 1)
    from_x = x - ops.multiply(translate_x, width - 1)
    from_y = y - ops.multiply(translate_y, height - 1)
    corners = _corners(ops.cast(boxes, "float32"))
    transformed = []
    for origin, by_x, by_y in ((x, d, -b), (y, -c, a)):
        by_x, by_y = by_x * scale, by_y * scale
        offset = origin - by_x * from_x - by_y * from_y
        by_x, by_y, offset = (ops.reshape(n, (-1, 1, 1)) for n in (by_x, by_y, offset))
        transformed.append(corners[0] * by_x + corners[1] * by_y + offset)
    bounds = [
        f(n, axis=-1, keepdims=True) for f in (ops.min, ops.max) for n in transformed
    ]
    return joined(tuple(bounds))


def _corners(boxes: Any) -> tuple[Any, Any]:
    """Return columns and rows of the four corners of boxes, (..., 4) each."""
    x1, y1, x2, y2 = coordinates(boxes)
    return joined((x1, x2, x2, x1)), joined((y1, y1, y2, y2))


def _image_size(image_shape: Any) -> tuple[Any, Any]:
    """Return (height, width) of an image with this shape."""
    return (None, None) if image_shape is None else tuple(image_shape)[:2]


def _intersection_area(first: Any, second: Any) -> Any:
    """Return the intersection area of boxes "xyxy"."""
    x1, y1, x2, y2 = (
        f(a, b)
        for f, a, b in zip(
            (ops.maximum, ops.maximum, ops.minimum, ops.minimum),
            first,
            second,
            strict=True,
        )
    )
    return ops.maximum(x2 - x1, 0) * ops.maximum(y2 - y1, 0)


def _area(corners: Any) -> Any:
    x1, y1, x2, y2 = corners
    return (x2 - x1) * (y2 - y1)


def compute_iou(
    boxes1: Any,
    boxes2: Any,
    bounding_box_format: str,
    use_masking: bool = False,
    mask_val: float = -1,
    image_shape: Any = None,
) -> Any:
    """Compute the intersection over union (IoU) of each pair of boxes.

    Args:
        boxes1: (m, 4) or (batch, m, 4).
        boxes2: (n, 4) or (batch, n, 4).
        bounding_box_format: format of both, see `convert_format`.
        use_masking: whether boxes with only negative numbers are padding.
        mask_val: the result for padding.
        image_shape: (height, width, channels); needed if the format is relative.

    Returns:
        (m, n) or (batch, m, n), float32 in [0, 1].

    Example:
        >>> from toolkit.utils.bounding_boxes import compute_iou
        >>> compute_iou([[0, 0, 2, 2]], [[0, 0, 2, 2], [0, 1, 2, 3]], "xyxy").tolist()
        [[1.0, 0.3333333432674408]]
    """
    height, width = _image_size(image_shape)
    sets = [
        convert_format(boxes, bounding_box_format, "xyxy", height, width)
        for boxes in (boxes1, boxes2)
    ]
    if any(boxes.ndim not in (2, 3) for boxes in sets):
        raise ShapeError(
            "compute_iou() expects boxes1 and boxes2 to be both batched or both "
            f"unbatched; received shapes {[boxes.shape for boxes in sets]}"
        )
    first = coordinates(ops.expand_dims(sets[0], -2))
    second = coordinates(ops.expand_dims(sets[1], -3))
    intersection = _intersection_area(first, second)
    union = _area(first) + _area(second) - intersection
    iou = ops.squeeze(intersection / (union + epsilon()), -1)
    if not use_masking:
        return iou
    padding = [ops.less(ops.max(boxes, axis=-1), 0) for boxes in sets]
    pairs = ops.logical_or(padding[0][..., :, None], padding[1][..., None, :])
    return ops.where(pairs, ops.cast(mask_val, iou.dtype), iou)


def compute_ciou(
    boxes1: Any, boxes2: Any, bounding_box_format: str, image_shape: Any = None
) -> Tensor:
    """Compute the complete IoU, which penalizes center distance and aspect ratio.

    `iou - d**2 / diagonal**2 - v**2 / (v - iou + 1)`, where d is the distance of the
    centers, diagonal belongs to the box around both, and v compares aspect ratios.

    Args:
        boxes1: (..., 4).
        boxes2: (..., 4).
        bounding_box_format: format of both, see `convert_format`.
        image_shape: (height, width, channels); needed if the format is relative.

    Returns:
        (...), float32, at most 1.

    Example:
        >>> from toolkit.utils.bounding_boxes import compute_ciou
        >>> boxes = [[0.0, 0.0, 2.0, 2.0]]
        >>> [round(x, 4) for x in compute_ciou(boxes, boxes, "xyxy").tolist()]
        [1.0]

    Reference: https://arxiv.org/abs/1911.08287
    """
    height, width = _image_size(image_shape)
    (x1, y1, x2, y2), (x3, y3, x4, y4) = first, second = [
        coordinates(convert_format(boxes, bounding_box_format, "xyxy", height, width))
        for boxes in (boxes1, boxes2)
    ]
    small = epsilon()
    intersection = _intersection_area(first, second)
    ratios = [
        ops.arctan((right - left) / (bottom - top + small))
        for left, top, right, bottom in (first, second)
    ]
    union = _area(first) + _area(second) - intersection
    iou = intersection / (union + 2 * small)
    extents = (
        ops.maximum(x2, x4) - ops.minimum(x1, x3),
        ops.maximum(y2, y4) - ops.minimum(y1, y3),
    )
    diagonal = extents[0] ** 2 + extents[1] ** 2 + small
    distance = ((x1 + x2 - x3 - x4) ** 2 + (y1 + y2 - y3 - y4) ** 2) / 4
    v = (4 / math.pi**2) * (ratios[1] - ratios[0]) ** 2
    penalty = distance / diagonal + v * v / (v - iou + (1 + small))
    return ops.squeeze(iou - penalty, -1)


def _check_variance(function: str, variance: Any, encoding: str) -> Any:
    if encoding not in _CENTERS:
        raise unknown_choice(f"{function}: format of deltas", encoding, _CENTERS)
    factors = ops.cast([1.0] * 4 if variance is None else variance, "float32")
    if factors.shape[-1] != 4:
        raise ArgumentError(
            f"{function}: `variance` must be length 4; received {variance}"
        )
    return factors


def encode_box_to_deltas(
    anchors: Any,
    boxes: Any,
    anchor_format: str,
    box_format: str,
    encoding_format: str = "center_yxhw",
    variance: Any = None,
    image_shape: Any = None,
) -> Any:
    """Encode boxes relative to anchors: offsets of centers, and logs of sizes.

    `(center - anchor center) / anchor size` and `log(size / anchor size)`.

    Args:
        anchors: (n, 4).
        boxes: (n, 4) or (batch, n, 4).
        anchor_format: format of the anchors, see `convert_format`.
        box_format: format of the boxes.
        encoding_format: "center_yxhw" or "center_xywh": the order of the result.
        variance: four divisors of the result.
        image_shape: (height, width, channels); needed if a format is relative.

    Returns:
        Deltas with the shape of `boxes`.

    Example:
        >>> from toolkit.utils.bounding_boxes import encode_box_to_deltas
        >>> anchors, boxes = [[0.0, 0.0, 2.0, 2.0]], [[1.0, 1.0, 3.0, 3.0]]
        >>> encode_box_to_deltas(anchors, boxes, "xyxy", "xyxy").tolist()
        [[0.5, 0.5, 0.0, 0.0]]
    """
    factors = _check_variance("encode_box_to_deltas", variance, encoding_format)
    size = _image_size(image_shape)
    anchors = convert_format(anchors, anchor_format, encoding_format, *size)
    boxes = convert_format(boxes, box_format, encoding_format, *size)
    sizes = ops.maximum(anchors[..., 2:], epsilon())
    offsets = (boxes[..., :2] - anchors[..., :2]) / sizes
    scales = ops.log(ops.maximum(boxes[..., 2:], epsilon()) / sizes)
    return ops.concatenate([offsets, scales], axis=-1) / factors


def decode_deltas_to_boxes(
    anchors: Any,
    boxes_delta: Any,
    anchor_format: str,
    box_format: str,
    encoded_format: str = "center_yxhw",
    variance: Any = None,
    image_shape: Any = None,
) -> Any:
    """Decode the boxes from the result of `encode_box_to_deltas`.

    Args:
        anchors: (n, 4), or a dict of such arrays.
        boxes_delta: (n, 4) or (batch, n, 4), or a dict with the same keys.
        anchor_format: format of the anchors, see `convert_format`.
        box_format: format of the result.
        encoded_format: "center_yxhw" or "center_xywh": the order of the deltas.
        variance: four factors of the deltas.
        image_shape: (height, width, channels); needed if a format is relative.

    Returns:
        Boxes with the shape of `boxes_delta`.

    Example:
        >>> from toolkit.utils.bounding_boxes import decode_deltas_to_boxes
        >>> anchors, deltas = [[0.0, 0.0, 2.0, 2.0]], [[0.5, 0.5, 0.0, 0.0]]
        >>> decode_deltas_to_boxes(anchors, deltas, "xyxy", "xyxy").tolist()
        [[1.0, 1.0, 3.0, 3.0]]
    """
    if isinstance(anchors, dict) and isinstance(boxes_delta, dict):
        options = (anchor_format, box_format, encoded_format, variance, image_shape)
        return {
            level: decode_deltas_to_boxes(level_anchors, boxes_delta[level], *options)
            for level, level_anchors in anchors.items()
        }
    factors = _check_variance("decode_deltas_to_boxes", variance, encoded_format)
    size = _image_size(image_shape)
    anchors = convert_format(anchors, anchor_format, encoded_format, *size)
    deltas = ops.cast(boxes_delta, "float32") * factors
    centers = deltas[..., :2] * anchors[..., 2:] + anchors[..., :2]
    sizes = ops.exp(deltas[..., 2:]) * anchors[..., 2:]
    boxes = ops.concatenate([centers, sizes], axis=-1)
    return convert_format(boxes, encoded_format, box_format, *size)
