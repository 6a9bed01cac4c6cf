"""Test image layers: sizes, and the boxes, masks and labels of images."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import layers
from toolkit.errors import ArgumentError, ShapeError

BOXES = np.array([[2.0, 1, 4, 3], [6, 4, 8, 6], [0, 0, 0, 0]])


def sample(shape=(10, 8, 3)):
    return {
        "images": np.random.default_rng(0).random(shape).astype("float32"),
        "bounding_boxes": {"boxes": BOXES, "labels": np.array([1, 2, -1])},
        "segmentation_masks": np.ones((*shape[:2], 1), "int32"),
        "labels": np.array(3),
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [[5.0, 2, 10, 6], [15, 8, 20, 12], [0, 0, 0, 0]]),
        (
            {"pad_to_aspect_ratio": True},
            [[6.0, 2, 10, 6], [14, 8, 18, 12], [0, 0, 0, 0]],
        ),
        (
            {"crop_to_aspect_ratio": True},
            [[5.0, 0.5, 10, 5.5], [15, 8, 20, 13], [0, 0, 0, 0]],
        ),
    ],
)
def test_resizing_moves_boxes(arguments, expected):
    layer = layers.Resizing(20, 20, bounding_box_format="xyxy", **arguments)
    output = layer(sample())
    assert_close(output["bounding_boxes"]["boxes"], expected)
    assert output["images"].shape == (20, 20, 3)
    assert output["segmentation_masks"].shape == (20, 20, 1)
    assert output["segmentation_masks"].dtype == "int32"
    assert int(output["labels"]) == 3


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_center_crop(data_format):
    x = np.arange(9 * 11 * 2.0).reshape(1, 9, 11, 2).astype("float32")
    expected = x[:, 2:7, 2:9]
    if data_format == "channels_first":
        x, expected = (np.moveaxis(array, -1, 1) for array in (x, expected))
    layer = layers.CenterCrop(5, 7, data_format=data_format)
    assert_close(layer(x), expected)
    assert_close(layer(x[0]), expected[0])


def test_center_crop_of_small_images_resizes_without_stretching():
    x = np.random.default_rng(0).random((2, 9, 11, 3)).astype("float32")
    resizing = layers.Resizing(10, 17, crop_to_aspect_ratio=True)
    assert_close(layers.CenterCrop(10, 17)(x), resizing(x))


def test_center_crop_moves_boxes():
    layer = layers.CenterCrop(6, 4, bounding_box_format="xyxy")
    boxes = layer(sample())["bounding_boxes"]
    assert_close(boxes["boxes"][:2], [[0.0, 0, 2, 1], [4, 2, 4, 4]])
    assert boxes["labels"].tolist() == [1, -1, -1]


def test_images_in_a_model_and_a_function():
    inputs = toolkit.Input((None, None, 3))
    x = layers.CenterCrop(6, 6)(layers.Resizing(8, 10)(inputs))
    model = toolkit.Model(inputs, x)
    assert model.output_shape == (None, 6, 6, 3)
    images = np.random.default_rng(0).random((2, 12, 13, 3)).astype("float32")
    assert_close(model(images), toolkit.function(model)(images))


def test_errors():
    layer = layers.Resizing(4, 4)
    with pytest.raises(ArgumentError, match="bounding_box_format"):
        layer(sample())
    with pytest.raises(ShapeError, match="rank 3 or 4"):
        layer(np.ones((4, 4), "float32"))
    with pytest.raises(ArgumentError, match="'boxes' and 'labels'"):
        layers.Resizing(4, 4, bounding_box_format="xyxy")(
            {"images": np.ones((4, 4, 3)), "bounding_boxes": {"boxes": BOXES}}
        )
