"""Operators whose result sizes depend on values.

NumPy computes them: compiled graphs have static shapes.
"""

from __future__ import annotations

import numpy as np

from toolkit import ops
from toolkit.errors import ModelFileError
from toolkit.models.importing.call import Call, Operator, axis_of
from toolkit.models.importing.values import Value
from toolkit.type_aliases import Array

_Array = Array


def _nonzero(call: Call, x: Value) -> Value:
    return Value.of(np.array(np.nonzero(call.static_array(x, "the input")), np.int64))


def _compress(call: Call, x: Value, condition: Value) -> Value:
    axis = call.integer("axis", None)
    positions = np.flatnonzero(call.static_array(condition, "the condition"))
    if axis is None:
        return Value(ops.take(ops.reshape(x.tensor, (-1,)), positions, axis=0))
    return Value(ops.take(x.tensor, positions, axis=axis_of(axis, x.ndim)))


def _unique(call: Call, x: Value) -> tuple[Value, ...]:
    axis, is_sorted = call.integer("axis", None), call.integer("sorted", 1)
    array = call.static_array(x, "the input")
    axis = None if axis is None else axis_of(axis, x.ndim)
    y, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not is_sorted:  # in the order of their first indices
        order = np.argsort(first, kind="stable")
        y = np.take(y, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        inverse = ranks[inverse]
    selected = (first, inverse, counts)
    return Value.of(y), *(Value.of(array.astype(np.int64)) for array in selected)


# --- boxes ----------------------------------------------------------------------------


def _non_max_suppression(
    call: Call,
    boxes: Value,
    scores: Value,
    max_boxes: Value | None = None,
    overlap: Value | None = None,
    min_score: Value | None = None,
) -> Value:
    is_center = call.integer("center_point_box", 0)
    limit = max(int(call.static_number(max_boxes, 0, "the number of boxes")), 0)
    threshold = float(call.static_number(overlap, 0.0, "the overlap threshold"))
    fits = boxes.ndim == scores.ndim == 3 and boxes.shape[2] == 4
    fits = fits and (scores.shape[0], scores.shape[2]) == boxes.shape[:2]
    if not fits or is_center not in (0, 1):
        raise ModelFileError(
            f"boxes of shape {boxes.shape} do not fit scores of shape {scores.shape}"
        )
    lowest = None
    if min_score is not None and min_score.size:
        lowest = float(call.static_number(min_score, None, "the score threshold"))
    corners = _corners(call.static_array(boxes, "the boxes"), bool(is_center))
    selected = [
        (batch, label, box)
        for batch, rows in enumerate(call.static_array(scores, "the scores"))
        for label, row in enumerate(rows)
        for box in _best(corners[batch], row, limit, threshold, lowest)
    ]
    return Value.of(np.array(selected, np.int64).reshape((-1, 3)))


def _corners(boxes: _Array, is_center: bool) -> _Array:
    """Return the two lower coordinates of boxes, and then the two upper ones."""
    if is_center:
        half = boxes[..., 2:] / 2
        return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)
    first, second = boxes[..., :2], boxes[..., 2:]
    pairs = np.minimum(first, second), np.maximum(first, second)
    return np.concatenate(pairs, axis=-1)


def _best(
    boxes: _Array, scores: _Array, limit: int, threshold: float, lowest: float | None
) -> list[int]:
    """Return the highest-scoring boxes that do not overlap a better one too much."""
    candidates = np.arange(len(scores))
    if lowest is not None:
        candidates = np.flatnonzero(scores > lowest)
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    selected: list[int] = []
    while len(candidates) and len(selected) < limit:
        best, candidates = candidates[0], candidates[1:]
        selected.append(int(best))
        candidates = candidates[_overlaps(boxes[best], boxes[candidates]) <= threshold]
    return selected


def _overlaps(box: _Array, boxes: _Array) -> _Array:
    """Return the intersection over union of a box with each of `boxes`."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    area, areas = np.prod(box[2:] - box[:2]), np.prod(boxes[:, 2:] - boxes[:, :2], 1)
    union = area + areas - common
    counts = (common > 0) & (areas > 0) & (union > 0) & (area > 0)
    return np.where(counts, common / np.where(counts, union, 1), 0)


OPERATORS = (
    Operator("NonZero", _nonzero, host=(0,)),
    Operator("Compress", _compress, host=(1,)),
    Operator("Unique", _unique, host=(0,)),
    Operator("NonMaxSuppression", _non_max_suppression, host=(2, 3, 4)),
)
