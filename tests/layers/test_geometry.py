"""Test layers that move the pixels of images, with their boxes and masks."""

from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.fixtures import geometry_cases
from tests.helpers import assert_close
from toolkit import layers
from toolkit.errors import ArgumentError, UnsupportedError

COUNT = np.arange(20.0, dtype="float32").reshape(1, 4, 5, 1)
# The layers, and deterministic arguments.
ALWAYS = {
    "RandomRotation": {"factor": (0.5, 0.5)},
    "RandomTranslation": {"height_factor": (0.25, 0.25), "width_factor": (-0.2, -0.2)},
    "RandomZoom": {"height_factor": (1.0, 1.0), "fill_mode": "constant"},
}
RANDOM = {
    **ALWAYS,
    "RandomFlip": {},
    "RandomCrop": {"height": 3, "width": 2},
    "RandomShear": {"x_factor": 0.5, "y_factor": (0.1, 0.2)},
    "RandomPerspective": {"scale": 0.5},
    "RandomElasticTransform": {"scale": (0.8, 0.9), "value_range": (0, 40)},
    "RandomErasing": {"scale": (0.1, 0.5)},
}


def to_channels_first(x):
    return np.moveaxis(x, -1, -3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("RandomRotation", COUNT[:, ::-1, ::-1]),
        ("RandomTranslation", COUNT[:, [0, 0, 1, 2]][:, :, [1, 2, 3, 4, 4]]),
        ("RandomZoom", None),
    ],
)
def test_values(name, expected):
    layer = getattr(layers, name)(**ALWAYS[name])
    if name == "RandomZoom":  # sampled at half pixels along the height
        rows = COUNT[0, :, :, 0]
        middle = [rows[[0, 1]].mean(0), rows[[2, 3]].mean(0)]
        expected = np.zeros_like(COUNT)
        expected[0, 1:3, 1:4, 0] = np.stack(middle)[:, [0, 2, 4]]
    assert_close(layer(COUNT), expected, factor=50)
    layer = getattr(layers, name)(**ALWAYS[name], data_format="channels_first")
    assert_close(
        layer(to_channels_first(COUNT)[0]), to_channels_first(expected)[0], factor=50
    )


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("name", RANDOM)
def test_masks_move_with_images(name, data_format):
    """A mask that equals its image still equals it after nearest-pixel sampling."""
    arguments = {**RANDOM[name], "seed": 3, "data_format": data_format}
    if name not in ("RandomFlip", "RandomCrop", "RandomErasing"):
        arguments["interpolation"] = "nearest"
    layer = getattr(layers, name)(**arguments)
    images = np.random.default_rng(0).random((6, 8, 9, 2)).astype("float32")
    images = to_channels_first(images) if data_format == "channels_first" else images
    data = {"images": images, "segmentation_masks": images, "labels": np.arange(6)}
    output = layer(data)
    if name != "RandomErasing":
        assert_close(output["images"], output["segmentation_masks"])
    assert output["labels"].tolist() == list(range(6))
    assert data["images"] is images
    restored = getattr(layers, name).from_config(layer.get_config())
    assert_close(restored(data)["images"], output["images"])
    single = layer(images[0])
    assert single.shape == tuple(output["images"].shape[1:])
    changed = (
        np.abs(output["images"].numpy() - images).max() if name != "RandomCrop" else 1
    )
    assert changed > 0
    if name != "RandomCrop":
        assert_close(layer(images, training=False), images)


@pytest.mark.parametrize("name", RANDOM)
def test_in_models_and_functions(name):
    inputs = toolkit.Input((8, 9, 2))
    arguments = {**RANDOM[name], "seed": 5}
    model = toolkit.Model(inputs, getattr(layers, name)(**arguments)(inputs))
    images = np.random.default_rng(0).random((2, 8, 9, 2)).astype("float32")
    eager = getattr(layers, name)(**arguments)(images)
    compiled = toolkit.function(lambda x: model(x, training=True))(images)
    assert model.output_shape == (None, *eager.shape[1:])
    assert_close(compiled, eager, factor=50)
    assert model.predict(images, verbose=0).shape == tuple(eager.shape)


def draw_box(box, shape=(40, 40)):
    """Return an image (1, height, width, 1) that is 1 inside of a box."""
    left, top, right, bottom = box
    image = np.zeros((1, *shape, 1), "float32")
    image[0, top:bottom, left:right] = 1
    return image


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("RandomFlip", {"mode": "horizontal"}),
        ("RandomFlip", {"mode": "vertical"}),
        ("RandomFlip", {}),
        ("RandomCrop", {"height": 35, "width": 37}),
        ("RandomCrop", {"height": 60, "width": 50}),
        ("RandomRotation", {"factor": 0.05}),
        ("RandomTranslation", {"height_factor": 0.2, "width_factor": 0.2}),
        ("RandomZoom", {"height_factor": 0.3, "width_factor": 0.3}),
        ("RandomShear", {"x_factor": 0.3}),
        ("RandomPerspective", {"scale": 0.3}),
    ],
)
@pytest.mark.parametrize("box_format", ["xyxy", "rel_xyxy", "center_xywh"])
def test_boxes_move_with_images(name, arguments, box_format):
    """The new box bounds the old content of the box, within two pixels."""
    from toolkit.utils.bounding_boxes import convert_format

    layer = getattr(layers, name)(**arguments, bounding_box_format=box_format, seed=11)
    if hasattr(layer, "fill_mode"):
        layer.fill_mode = "constant"
    box = (15, 18, 24, 26)
    boxes = convert_format(np.array([[box]], float), "xyxy", box_format, 40, 40)
    data = {
        "images": draw_box(box),
        "bounding_boxes": {"boxes": boxes, "labels": np.array([[2]])},
    }
    for _ in range(4):
        output = layer(data)
        image = output["images"].numpy()[0, :, :, 0]
        rows, columns = np.nonzero(image > 0.3)
        expected = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        moved_boxes = output["bounding_boxes"]["boxes"]
        moved_boxes = convert_format(moved_boxes, box_format, "xyxy", *image.shape)
        np.testing.assert_allclose(
            moved_boxes[0, 0].numpy(), np.array(expected, "float32"), atol=2.5, rtol=0
        )
        assert output["bounding_boxes"]["labels"].tolist() == [[2]]


def test_boxes_outside_of_the_image_lose_their_label():
    layer = layers.RandomTranslation((0.5, 0.5), 0, bounding_box_format="xyxy")
    boxes = {
        "boxes": np.array([[0.0, 0, 4, 4], [5, 6, 8, 8]]),
        "labels": np.array([1, 2]),
    }
    output = layer({"images": np.ones((8, 8, 1)), "bounding_boxes": boxes})
    output = output["bounding_boxes"]
    assert_close(output["boxes"], [[0.0, 4, 4, 8], [5, 8, 8, 8]])
    assert output["labels"].tolist() == [1, -1]


def test_crop_is_a_window_of_the_image():
    layer = layers.RandomCrop(2, 3, seed=0)
    crops = set()
    for _ in range(60):
        crop = layer(COUNT)[0, :, :, 0].numpy()
        assert_close(crop - crop[0, 0], [[0.0, 1, 2], [5, 6, 7]])
        crops.add(float(crop[0, 0]))
    assert len(crops) == 9
    middle = layer(COUNT, training=False)
    assert_close(middle, layers.CenterCrop(2, 3)(COUNT))


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("fill_value", [7, (1.0, 2.0, 3.0), None])
def test_erasing_fills_a_rectangle(fill_value, data_format):
    layer = layers.RandomErasing(
        factor=(1.0, 1.0),
        scale=(0.25, 0.25),
        fill_value=fill_value,
        data_format=data_format,
    )
    images = np.full((5, 8, 8, 3), -1.0, "float32")
    inputs = to_channels_first(images) if data_format == "channels_first" else images
    output = layer(inputs).numpy()
    output = np.moveaxis(output, 1, -1) if data_format == "channels_first" else output
    for image in output:
        rows, columns = np.nonzero(image[:, :, 0] != -1)
        assert len(rows) == 16 and np.ptp(rows) == np.ptp(columns) == 3
        if fill_value is not None:
            color = np.broadcast_to(fill_value, (3,))
            assert_close(image[rows[0], columns[0]], color.astype("float32"))


def test_only_a_fraction_of_the_images_changes():
    images = np.random.default_rng(0).random((200, 4, 4, 1)).astype("float32")
    for name in ("RandomErasing", "RandomPerspective", "RandomElasticTransform"):
        layer = getattr(layers, name)(factor=(0.3, 0.3), seed=1)
        changed = np.any(layer(images).numpy() != images, axis=(1, 2, 3))
        assert 0.2 < changed.mean() < 0.4
        assert_close(getattr(layers, name)(factor=0)(images), images)


def test_number_of_boxes():
    layer = layers.MaxNumBoundingBoxes(3, fill_value=-2, bounding_box_format="xyxy")
    for n in (2, 5):
        boxes = np.random.default_rng(0).random((2, n, 4)).astype("float32")
        labels = np.arange(2 * n).reshape(2, n)
        inputs = {"boxes": boxes, "labels": labels}
        output = layer({"images": np.ones((2, 4, 4, 1)), "bounding_boxes": inputs})
        output = output["bounding_boxes"]
        assert output["boxes"].shape == (2, 3, 4)
        expected_count = min(n, 3)
        assert_close(output["boxes"][:, :expected_count], boxes[:, :expected_count])
        assert (
            output["labels"][:, :expected_count].tolist()
            == labels[:, :expected_count].tolist()
        )
        assert np.all(output["labels"][:, expected_count:].numpy() == -2)


@pytest.mark.parametrize(
    ("name", "arguments", "match"),
    [
        ("RandomFlip", {"mode": "diagonal"}, "mode"),
        ("RandomTranslation", {"height_factor": -1.1, "width_factor": 0}, "height_fac"),
        (
            "RandomTranslation",
            {"height_factor": 0, "width_factor": [1]},
            "width_factor",
        ),
        ("RandomZoom", {"height_factor": (-1.0, 0.0)}, "range"),
        ("RandomZoom", {"height_factor": 0.1, "fill_mode": "black"}, "fill_mode"),
        ("RandomShear", {"x_factor": -0.1}, "x_factor"),
        ("RandomRotation", {"factor": 0.1, "interpolation": "cubic"}, "interpolation"),
        ("RandomPerspective", {"scale": 2.0}, "scale"),
        ("RandomErasing", {"fill_value": [1, 2]}, "fill_value"),
        ("RandomElasticTransform", {"factor": "all"}, "factor"),
    ],
)
def test_errors(name, arguments, match):
    with pytest.raises(ArgumentError, match=match):
        getattr(layers, name)(**arguments)


def test_elastic_transform_refuses_boxes():
    layer = layers.RandomElasticTransform(bounding_box_format="xyxy")
    boxes = {"boxes": np.zeros((1, 4)), "labels": np.zeros(1)}
    with pytest.raises(UnsupportedError, match="masks"):
        layer({"images": COUNT[0], "bounding_boxes": boxes})


def test_values_equal_those_of_keras():
    with np.load(Path(geometry_cases.__file__).with_name("geometry.npz")) as file:
        expected = dict(file)
    results = geometry_cases.results(toolkit)
    assert results.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(results[name], values, atol=1e-4, err_msg=name)


def test_subclasses_written_for_keras_find_functions():
    class Upside(layers.RandomFlip):
        def transform_images(self, images, transformation, training=True):
            return self.backend.numpy.flip(self.backend.cast(images, "float32"), 1)

    assert_close(Upside()(COUNT), COUNT[:, ::-1])
