"""`tf.image`: boxes in images. A box is (top, left, bottom, right) in [0, 1]."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from toolkit import dtypes, ops
from toolkit.compat.tensorflow.arguments import extents
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, DTypeError, ShapeError, unknown_choice
from toolkit.type_aliases import Array, TensorLike

__all__ = (
    "crop_and_resize",
    "draw_bounding_boxes",
    "non_max_suppression",
    "non_max_suppression_with_scores",
)
_METHODS = ("bilinear", "nearest")
# Default colours of boxes, used cyclically.
_COLORS = np.array(
    [
        *([1, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1], [0.5, 0, 0.5, 1]),
        *([0.5, 0.5, 0, 1], [0.5, 0, 0, 1], [0, 0, 0.5, 1], [0, 1, 1, 1]),
        [1, 0, 1, 1],
    ]
)


def crop_and_resize(
    image: TensorLike,
    boxes: TensorLike,
    box_indices: TensorLike,
    crop_size: TensorLike,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Crop images to boxes and resize the parts to one size; float32.

    Args:
        image: (batch, height, width, channels).
        boxes: (boxes, 4): top, left, bottom and right; 1 is the last row or column. The
            part is flipped if bottom is less than top.
        box_indices: (boxes,): the image index of each box.
        crop_size: (height, width) of the parts.
        method: "bilinear" or "nearest".
        extrapolation_value: the value outside of the images.

    Returns:
        (boxes, height, width, channels).
    """
    if method not in _METHODS:
        raise unknown_choice("crop_and_resize: method", method, _METHODS)
    x, corners = convert(image, "float32"), convert(boxes, "float32")
    numbers, (height, width) = convert(box_indices, "int32"), extents(crop_size)
    if x.ndim != 4 or corners.shape != (*numbers.shape, 4) or numbers.ndim != 1:
        raise ShapeError(
            "crop_and_resize: expected a batch of pictures, boxes (boxes, 4) and "
            f"box_indices (boxes,); received shapes {tuple(x.shape)}, "
            f"{tuple(corners.shape)} and {tuple(numbers.shape)}"
        )
    static_numbers = numbers.static_value()
    if (
        static_numbers is not None
        and static_numbers.size
        and not 0 <= static_numbers.min() <= static_numbers.max() < len(x)
    ):
        raise ArgumentError(
            f"crop_and_resize: expected box_indices in [0, {len(x)}); received "
            f"{static_numbers.tolist()!r:.60}"
        )
    rows = _sample_coordinates(corners[:, 0], corners[:, 2], x.shape[1], height)
    columns = _sample_coordinates(corners[:, 1], corners[:, 3], x.shape[2], width)
    y = ops.expand_dims(rows, 2)
    z = ops.expand_dims(columns, 1)
    is_inside = (y >= 0) & (y <= x.shape[1] - 1) & (z >= 0) & (z <= x.shape[2] - 1)
    pixels = (_bilinear if method == "bilinear" else _nearest)(x, numbers, y, z)
    return ops.where(ops.expand_dims(is_inside, 3), pixels, float(extrapolation_value))


def _sample_coordinates(low: Tensor, high: Tensor, extent: int, count: int) -> Tensor:
    """Return the pixel coordinates of parts along an axis: (boxes, count)."""
    last = float(extent - 1)
    if count == 1:
        return ops.expand_dims(0.5 * (low + high) * last, 1)
    step = (high - low) * (last / (count - 1))
    steps = convert(np.arange(count, dtype="float32"))
    return ops.expand_dims(low * last, 1) + ops.expand_dims(step, 1) * steps


def _gather_pixels(x: Tensor, numbers: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Return the pixels at integer coordinates, clipped to the images."""
    _, height, width, channels = x.shape
    row = ops.cast(ops.clip(y, 0, height - 1), "int32")
    column = ops.cast(ops.clip(z, 0, width - 1), "int32")
    picture = ops.reshape(numbers, (-1, 1, 1))
    offsets = (picture * height + row) * width + column
    return ops.take(ops.reshape(x, (-1, channels)), offsets, axis=0)


def _nearest(x: Tensor, numbers: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return _gather_pixels(x, numbers, ops.floor(y + 0.5), ops.floor(z + 0.5))


def _bilinear(x: Tensor, numbers: Tensor, y: Tensor, z: Tensor) -> Tensor:
    top, x0 = ops.floor(y), ops.floor(z)
    down, right = ops.expand_dims(y - top, 3), ops.expand_dims(z - x0, 3)

    def line(row: Tensor) -> Tensor:
        first = _gather_pixels(x, numbers, row, x0)
        return first + (_gather_pixels(x, numbers, row, ops.ceil(z)) - first) * right

    above = line(top)
    return above + (line(ops.ceil(y)) - above) * down


# --- selection of boxes
# -----------------------------------------------------------------


def non_max_suppression(
    boxes: TensorLike,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    name: str | None = None,
) -> Tensor:
    """Return the indices of the best boxes without overlap; int32.

    Args:
        boxes: (boxes, 4): two opposite corners.
        scores: (boxes,).
        max_output_size: the maximum number of boxes.
        iou_threshold: the maximum intersection over union of two boxes, in [0, 1].
        score_threshold: the lower bound of scores, excluded.
    """
    limits = (max_output_size, iou_threshold, score_threshold)
    selected = _select_boxes("non_max_suppression", boxes, scores, *limits, 0.0)
    return convert(np.array([number for number, _ in selected], "int32"))


def non_max_suppression_with_scores(
    boxes: TensorLike,
    scores: Any,
    max_output_size: int,
    iou_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"),
    soft_nms_sigma: Any = 0.0,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the indices of `non_max_suppression`, and the scores of these boxes.

    Args:
        boxes, scores, max_output_size, iou_threshold, score_threshold: as in
            `non_max_suppression`.
        soft_nms_sigma: above 0, overlapping boxes stay, and their scores are multiplied
            by exp(-overlap ** 2 / (2 * soft_nms_sigma)).
    """
    limits = (max_output_size, iou_threshold, score_threshold)
    function = "non_max_suppression_with_scores"
    selected = _select_boxes(function, boxes, scores, *limits, float(soft_nms_sigma))
    numbers = np.array([number for number, _ in selected], "int32")
    selected_scores = np.array([score for _, score in selected], "float32")
    return convert(numbers), convert(selected_scores)


def _select_boxes(
    function: str,
    boxes: TensorLike,
    scores: TensorLike,
    limit: Any,
    overlap: Any,
    threshold: Any,
    sigma: Any,
) -> list[tuple[int, float]]:
    """Return (index, score) of the selected boxes, best first."""
    corners, values = np.asarray(convert(boxes)), np.asarray(convert(scores))
    if corners.shape != (*values.shape, 4) or values.ndim != 1:
        raise ShapeError(
            f"{function}: expected boxes (boxes, 4) and scores (boxes,); received "
            f"shapes {corners.shape} and {values.shape}"
        )
    overlap, threshold = float(overlap), float(threshold)
    if not 0 <= overlap <= 1:
        raise ArgumentError(
            f"{function}: iou_threshold: expected a number in [0, 1]; received "
            f"{overlap}"
        )
    low, high = corners[:, :2], corners[:, 2:]
    ends = np.minimum(low, high), np.maximum(low, high)
    # Best first, then the lowest index. The third number is the count of selected boxes
    # with which the box was already compared.
    queue = [(-float(v), i, 0) for i, v in enumerate(values) if v > threshold]
    heapq.heapify(queue)
    selected: list[tuple[int, float]] = []
    while queue and len(selected) < int(limit):
        negative, number, begin = heapq.heappop(queue)
        score = -negative
        for other, _ in reversed(selected[begin:]):
            shared = _intersection_over_union(*ends, number, other)
            if sigma > 0:
                score *= float(np.exp(-0.5 / sigma * shared * shared))
            elif shared > overlap:
                score = float("-inf")
            if score <= threshold:
                break
        if score == -negative:
            selected.append((number, score))
        elif score > threshold:
            heapq.heappush(queue, (-score, number, len(selected)))
    return selected


def _intersection_over_union(low: Array, high: Array, i: int, j: int) -> float:
    """Return the intersection over union of two boxes."""
    areas = [float(np.prod(high[k] - low[k])) for k in (i, j)]
    if min(areas) <= 0:
        return 0.0
    sides = np.minimum(high[i], high[j]) - np.maximum(low[i], low[j])
    shared = float(np.prod(np.maximum(sides, 0)))
    return shared / (sum(areas) - shared)


# --- drawing --------------------------------------------------------------------------


def draw_bounding_boxes(
    images: TensorLike, boxes: TensorLike, colors: Any, name: str | None = None
) -> Tensor:
    """Draw the outlines of boxes, one pixel wide.

    Args:
        images: (batch, height, width, 1, 3 or 4 channels) of floats.
        boxes: (batch, boxes, 4): top, left, bottom and right; 1 is the last row or
            column. A box whose bottom is less than its top is not drawn.
        colors: (colors, channels), used cyclically; None for ten colours, or white for
            images of one channel.
    """
    x, corners = convert(images), np.asarray(convert(boxes))
    if not dtypes.is_float(x.dtype):
        raise DTypeError(f"draw_bounding_boxes: expected floats; received {x.dtype}")
    if x.ndim != 4 or corners.ndim != 3 or corners.shape[::2] != (len(x), 4):
        raise ShapeError(
            "draw_bounding_boxes: expected images (batch, height, width, channels) and "
            f"boxes (batch, boxes, 4); received shapes {tuple(x.shape)} and "
            f"{corners.shape}"
        )
    channels = x.shape[-1]
    palette = _COLORS if colors is None else np.asarray(convert(colors))
    if colors is None and channels == 1:
        palette = np.ones((1, 1))
    if not len(palette):
        palette = _COLORS
    lines = np.zeros(tuple(x.shape), "float32")
    is_drawn = np.zeros((*tuple(x.shape)[:3], 1), bool)
    for picture, image_boxes in enumerate(corners):
        for number, box in enumerate(image_boxes):
            for region in _outline_slices(box, *x.shape[1:3]):
                lines[picture][region] = palette[number % len(palette)][:channels]
                is_drawn[picture][region] = True
    return ops.where(convert(is_drawn), convert(lines, str(x.dtype)), x)


def _outline_slices(box: Array, height: int, width: int) -> list[Any]:
    """Return the visible sides of a box, as slices of the image."""
    scales = np.array([height - 1, width - 1] * 2, "float32")
    top, x0, bottom, right = (int(n) for n in box.astype("float32") * scales)
    if top > bottom or x0 > right:
        return []
    if top >= height or bottom < 0 or x0 >= width or right < 0:
        return []
    rows = slice(max(top, 0), min(bottom, height - 1) + 1)
    columns = slice(max(x0, 0), min(right, width - 1) + 1)
    sides: list[Any] = [(row, columns) for row in (top, bottom) if 0 <= row < height]
    return sides + [(rows, column) for column in (x0, right) if 0 <= column < width]


make_operations(__name__)
