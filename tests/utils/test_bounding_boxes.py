"""Test boxes: formats, overlap, deltas to anchors, and affine transforms."""

import numpy as np
import pytest

from tests.helpers import assert_close
from toolkit.errors import ArgumentError, ShapeError
from toolkit.utils import bounding_boxes

FORMATS = {
    "xyxy": [10, 20, 30, 60],
    "yxyx": [20, 10, 60, 30],
    "xywh": [10, 20, 20, 40],
    "center_xywh": [20, 40, 20, 40],
    "center_yxhw": [40, 20, 40, 20],
    "rel_xyxy": [0.1, 0.1, 0.3, 0.3],
    "rel_yxyx": [0.1, 0.1, 0.3, 0.3],
    "rel_xywh": [0.1, 0.1, 0.2, 0.2],
    "rel_center_xywh": [0.2, 0.2, 0.2, 0.2],
}


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_formats_of_boxes(source, target):
    convert = bounding_boxes.convert_format
    result = convert([FORMATS[source]], source, target, height=200, width=100)
    assert_close(result, np.array([FORMATS[target]], "float32"))


def test_formats_of_boxes_are_checked():
    convert = bounding_boxes.convert_format
    with pytest.raises(ArgumentError, match="`height` and `width`"):
        convert([[1, 2, 3, 4]], "xyxy", "rel_xyxy")
    with pytest.raises(ArgumentError, match="Invalid"):
        convert([[1, 2, 3, 4]], "xyxy", "corners")


def some_boxes(*shape):
    """Return boxes "xyxy" in an image of 100 by 100 pixels."""
    corners = np.random.default_rng(len(shape)).uniform(0, 100, (*shape, 2, 2))
    return np.sort(corners, axis=-2).reshape(*shape, 4).astype("float32")


def iou(a, b):
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    first, second = ((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return shared / (first + second - shared)


def test_iou_of_pairs():
    first, second = some_boxes(2, 3), some_boxes(4)
    expected = [[[iou(a, b) for b in second] for a in rows] for rows in first]
    assert_close(bounding_boxes.compute_iou(first, second, "xyxy"), expected)
    relative = bounding_boxes.compute_iou(
        first / 100, second / 100, "rel_xyxy", image_shape=(100, 100, 3)
    )
    assert_close(relative, expected)


def test_iou_of_padding():
    boxes = some_boxes(2)
    boxes[0] = -1
    result = bounding_boxes.compute_iou(boxes, boxes, "xyxy", use_masking=True)
    assert_close(result, [[-1.0, -1], [-1, 1]])
    with pytest.raises(ShapeError, match="batched"):
        bounding_boxes.compute_iou(boxes[0], boxes, "xyxy")


def test_complete_iou():
    box = np.array([[10.0, 10, 30, 50]])
    distant = box + np.array([40.0, 0, 40, 0])
    result = bounding_boxes.compute_ciou(
        np.stack([box, box]), np.stack([box, distant]), "xyxy"
    )
    assert_close(result, [[1.0], [-(40**2) / (60**2 + 40**2)]])


@pytest.mark.parametrize("encoding", ["center_xywh", "center_yxhw"])
def test_deltas_round_trip(encoding):
    anchors, boxes, variance = some_boxes(3), some_boxes(2, 3), [0.1, 0.1, 0.2, 0.2]
    deltas = bounding_boxes.encode_box_to_deltas(
        anchors, boxes, "xyxy", "xyxy", encoding, variance
    )
    back = bounding_boxes.decode_deltas_to_boxes(
        {"level": anchors}, {"level": deltas}, "xyxy", "xyxy", encoding, variance
    )
    assert_close(back["level"], boxes, factor=10)
    with pytest.raises(ArgumentError, match="length 4"):
        bounding_boxes.encode_box_to_deltas(
            anchors, boxes, "xyxy", "xyxy", variance=[1.0]
        )


def test_affine_transform_rotates_and_shifts():
    def change(angle=0.0, x=0.0, scale=1.0, **center):
        angle, x, scale, none = (np.array([n], "float32") for n in (angle, x, scale, 0))
        return bounding_boxes.affine_transform(
            [[[0.0, 0, 20, 10]]], angle, x, none, scale, none, none, 101, 101, **center
        )[0, 0]

    assert_close(change(), [0.0, 0, 20, 10])
    assert_close(change(angle=180), [80.0, 90, 100, 100])
    top_left = {"center_x": 0.0, "center_y": 0.0}
    assert_close(change(scale=2, **top_left), [0.0, 0, 40, 20])
    assert_close(change(x=0.1), [10.0, 0, 30, 10])
    with pytest.raises(ArgumentError, match="xyxy"):
        change(bounding_box_format="xywh")
