"""`tf.image`: non-maximum suppression in batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.image_boxes import non_max_suppression
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ShapeError
from toolkit.type_aliases import TensorLike

__all__ = (
    "combined_non_max_suppression",
    "non_max_suppression_overlaps",
    "non_max_suppression_padded",
)
_LOWEST = float("-inf")


class CombinedNonMaxSuppression(NamedTuple):
    """The result of `combined_non_max_suppression`."""

    nmsed_boxes: Any
    nmsed_scores: Any
    nmsed_classes: Any
    valid_detections: Any


def non_max_suppression_padded(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size: int,
    iou_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = _LOWEST,
    pad_to_max_output_size: bool = False,
    name: str | None = None,
    sorted_input: bool = False,
    canonicalized_coordinates: bool = False,
    tile_size: int = 512,
) -> tuple[Tensor, Tensor]:
    """Return the indices of the selected boxes, and their count.

    Args:
        boxes: (..., boxes, 4): two opposite corners.
        scores: (..., boxes).
        max_output_size: the maximum number of boxes.
        iou_threshold: the maximum overlap of two boxes, in [0, 1].
        score_threshold: the lower bound of scores, excluded.
        pad_to_max_output_size: whether to pad the indices with zeros to
            max_output_size; batches need it.
        sorted_input, canonicalized_coordinates, tile_size: have no effect.

    Returns:
        (..., kept), int32, and (...), int32.
    """
    corners, values = np.asarray(convert(boxes)), np.asarray(convert(scores))
    if corners.shape != (*values.shape, 4) or not values.ndim:
        raise ShapeError(
            "non_max_suppression_padded: expected boxes (..., boxes, 4) and scores "
            f"(..., boxes); received shapes {corners.shape} and {values.shape}"
        )
    lead, limit = values.shape[:-1], int(max_output_size)
    if lead and not pad_to_max_output_size:
        raise ShapeError(
            "non_max_suppression_padded: batches need pad_to_max_output_size=True; "
            f"received scores of shape {values.shape}"
        )
    limits = limit, iou_threshold, score_threshold
    rows = [
        np.asarray(non_max_suppression(corners[index], values[index], *limits))
        for index in np.ndindex(lead)
    ]
    counts = np.array([len(row) for row in rows], "int32").reshape(lead)
    if pad_to_max_output_size:
        rows = [np.pad(row, (0, limit - len(row))) for row in rows]
    return convert(np.stack(rows).reshape(*lead, -1)), convert(counts)


def non_max_suppression_overlaps(
    overlaps: TensorLike,
    scores: TensorLike,
    max_output_size: int,
    overlap_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    name: str | None = None,
) -> Tensor:
    """Return the indices of the selected boxes, int32, for given overlaps.

    Args:
        overlaps: (boxes, boxes).
        scores: (boxes,).
        max_output_size: the maximum number of boxes.
        overlap_threshold: the maximum overlap of two selected boxes.
        score_threshold: the lower bound of scores, excluded.
    """
    shared, values = np.asarray(convert(overlaps)), np.asarray(convert(scores))
    if values.ndim != 1 or shared.shape != (*values.shape, *values.shape):
        raise ShapeError(
            "non_max_suppression_overlaps: expected overlaps (boxes, boxes) and scores "
            f"(boxes,); received shapes {shared.shape} and {values.shape}"
        )
    limit, overlap = int(max_output_size), float(overlap_threshold)
    numbers: list[int] = []
    for number in np.argsort(-values, kind="stable"):
        if len(numbers) == limit or not values[number] > float(score_threshold):
            break
        if not (shared[number, numbers] > overlap).any():
            numbers.append(int(number))
    return convert(np.array(numbers, "int32"))


def combined_non_max_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size_per_class: int,
    max_total_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = _LOWEST,
    pad_per_class: bool = False,
    clip_boxes: bool = True,
    name: str | None = None,
) -> CombinedNonMaxSuppression:
    """Return the selected boxes of all classes together, best first.

    Args:
        boxes: (batch, boxes, classes, 4), or 1 instead of classes: the same boxes for
            all classes.
        scores: (batch, boxes, classes).
        max_output_size_per_class: the maximum number of boxes per class.
        max_total_size: the maximum number of boxes per image.
        iou_threshold: the maximum overlap of two boxes of a class, in [0, 1].
        score_threshold: the lower bound of scores, excluded.
        pad_per_class: whether to return at most max_output_size_per_class * classes.
        clip_boxes: whether to clip corners to [0, 1].

    Returns:
        Boxes (batch, kept, 4), scores and classes (batch, kept), float32, padded with
        zeros; and the numbers of valid boxes, (batch,), int32.
    """
    corners, values = np.asarray(convert(boxes)), np.asarray(convert(scores))
    shapes = [(*values.shape[:2], count, 4) for count in (1, *values.shape[2:])]
    if values.ndim != 3 or corners.shape not in shapes:
        raise ShapeError(
            "combined_non_max_suppression: expected boxes (batch, boxes, 1 or classes, "
            f"4) and scores (batch, boxes, classes); received shapes {corners.shape} "
            f"and {values.shape}"
        )
    batch, _, classes = values.shape
    corners = np.broadcast_to(corners, (*values.shape, 4))
    per_class, total = int(max_output_size_per_class), int(max_total_size)
    total = min(total, per_class * classes) if pad_per_class else total
    result = np.zeros((batch, total, 6), "float32")
    counts = np.zeros(batch, "int32")
    for picture in range(batch):
        candidates = []
        for number in range(classes):
            pair = corners[picture, :, number], values[picture, :, number]
            limits = per_class, iou_threshold, score_threshold
            selected = np.asarray(non_max_suppression(*pair, *limits))
            candidates += [(*pair[0][i], pair[1][i], number) for i in selected.tolist()]
        candidates = sorted(candidates, key=lambda box: -box[4])[:total]
        counts[picture] = len(candidates)
        if candidates:
            result[picture, : len(candidates)] = candidates
    if clip_boxes:
        result[..., :4] = np.clip(result[..., :4], 0.0, 1.0)
    return CombinedNonMaxSuppression(
        convert(result[..., :4]),
        convert(result[..., 4]),
        convert(result[..., 5]),
        convert(counts),
    )


make_operations(__name__)
