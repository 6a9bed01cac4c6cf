"""Test that RandAugment and AugMix equal their separate layers."""

import numpy as np
import pytest

import toolkit
from tests.helpers import assert_close
from toolkit import layers
from toolkit.errors import ArgumentError

SHAPE = (4, 12, 10, 3)
NAMES = (
    *("random_shear", "random_translation", "random_rotation"),
    *("random_brightness", "random_color_degeneration", "random_contrast"),
    *("random_sharpness", "random_posterization", "solarization"),
    *("auto_contrast", "equalization"),
)


def sample():
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 5, (4, 3, 2))
    boxes = np.concatenate([corners, corners + 5], -1).astype("float32")
    return {
        "images": rng.uniform(0, 255, SHAPE).astype("float32"),
        "segmentation_masks": rng.integers(0, 3, (*SHAPE[:3], 1)),
        "bounding_boxes": {"boxes": boxes, "labels": np.ones((4, 3), "int32")},
        "labels": np.arange(4.0),
    }


def make(name, **arguments):
    return getattr(layers, name)(seed=3, bounding_box_format="xyxy", **arguments)


def apply_layer(layer, key, x, names, draws):
    for name in names:
        x = getattr(layer._steps[name], f"transform_{key}")(x, draws[name])
    return x


@pytest.mark.parametrize(
    ("first", "second"), list(zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True))
)
def test_rand_augment_equals_its_layers(first, second):
    names = first, second
    layer, data = make("RandAugment"), sample()
    transformation = layer.get_random_transformation(data)
    transformation["layer_idxes"] = np.array([NAMES.index(name) for name in names])
    draws = transformation["transforms"]
    for key in ("images", "segmentation_masks"):
        y = getattr(layer, f"transform_{key}")(data[key], transformation)
        assert_close(y, apply_layer(layer, key, data[key], names, draws))
    boxes = layer.transform_bounding_boxes(data["bounding_boxes"], transformation)
    expected = apply_layer(
        layer, "bounding_boxes", data["bounding_boxes"], names, draws
    )
    assert_close(boxes["boxes"], expected["boxes"])
    assert_close(boxes["labels"], expected["labels"])


@pytest.mark.parametrize("all_ops", [False, True])
def test_aug_mix_equals_its_chains(all_ops):
    layer, data = make("AugMix", num_chains=2, chain_depth=2, all_ops=all_ops), sample()
    names = [n for n in NAMES if n in layer._steps]
    assert len(names) == (11 if all_ops else 7)
    transformation = layer.get_random_transformation(data)
    transformation["layer_idxes"] = np.array([[0, len(names)], [len(names) - 1, 1]])
    chains = [(names[0],), (names[-1], names[1])]
    x, total = data["images"], 0.0
    for i, chain in enumerate(chains):
        y = x
        for j, name in enumerate(chain):
            draws = transformation["chain_transforms"][i][j]
            y = apply_layer(layer, "images", y, [name], draws)
        total = total + transformation["chain_mixing_weights"][i] * y
    weight = transformation["weight_sample"]
    expected = (weight * x + (1 - weight) * total).numpy().clip(0, 255)
    assert_close(layer.transform_images(x, transformation), expected, factor=10)
    assert float(
        toolkit.ops.sum(transformation["chain_mixing_weights"])
    ) == pytest.approx(1)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("name", ["RandAugment", "AugMix"])
@pytest.mark.one_in(3)
def test_seeds_shapes_and_functions(name, data_format):
    data = sample()
    if data_format == "channels_first":
        for key in ("images", "segmentation_masks"):
            data[key] = np.moveaxis(data[key], -1, 1)
    layer = make(name, data_format=data_format)
    y = layer(data)
    for key in ("images", "segmentation_masks", "labels"):
        assert y[key].shape == data[key].shape
    assert not np.allclose(y["images"].numpy(), data["images"])
    assert_close(make(name, data_format=data_format)(data)["images"], y["images"])
    traced = toolkit.function(make(name, data_format=data_format))(data["images"])
    assert_close(
        traced, make(name, data_format=data_format)(data["images"]), factor=100
    )
    assert_close(layer(data, training=False)["images"], data["images"])
    assert layer(data["images"][0]).shape == data["images"].shape[1:]


def test_empty_policies_and_errors():
    x = sample()["images"]
    assert_close(make("RandAugment", num_ops=0)(x), x)
    with pytest.raises(ArgumentError, match="alpha > 0"):
        make("AugMix", alpha=0)
    with pytest.raises(ArgumentError, match="in the range .0, 1."):
        make("RandAugment", factor=1.5)
