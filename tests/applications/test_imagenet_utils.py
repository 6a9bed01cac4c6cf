"""Tests of input scaling, class names and input shapes of ImageNet models."""

import json

import numpy as np
import pytest

import toolkit
from toolkit.applications import imagenet_utils, mobilenet_v3, resnet
from toolkit.errors import ArgumentError

MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
ORACLES = {
    "tf": lambda x: x / 127.5 - 1,
    "torch": lambda x: (x / 255 - MEAN) / DEVIATION,
    "caffe": lambda x: x[..., ::-1] - [103.939, 116.779, 123.68],
}


@pytest.mark.parametrize("mode", ORACLES)
@pytest.mark.parametrize("shape", [(4, 5, 3), (2, 4, 5, 3)])
def test_preprocessing(mode, shape):
    x = np.random.default_rng(0).uniform(0, 255, shape)
    expected = ORACLES[mode](x)
    axes = (*range(len(shape) - 3), -1, -3, -2)
    first = np.transpose(x, [a % len(shape) for a in axes])
    for make in (np.array, lambda x: toolkit.Tensor(x.astype("float32"))):
        actual = imagenet_utils.preprocess_input(make(x), mode=mode)
        np.testing.assert_allclose(np.asarray(actual), expected, atol=1e-4)
        actual = imagenet_utils.preprocess_input(make(first), "channels_first", mode)
        actual = np.moveaxis(np.asarray(actual), -3, -1)
        np.testing.assert_allclose(actual, expected, atol=1e-4)
    integers = imagenet_utils.preprocess_input(np.full(shape, 7), mode=mode)
    np.testing.assert_allclose(integers, ORACLES[mode](np.full(shape, 7.0)), atol=1e-4)


def test_symbols_and_float_arrays():
    x = toolkit.Input((4, 5, 3))
    assert resnet.preprocess_input(x).shape == x.shape
    pixels = np.full((1, 2, 2, 3), 255.0)
    imagenet_utils.preprocess_input(pixels, mode="tf")
    assert (pixels == 1).all()  # overwritten in place
    assert mobilenet_v3.preprocess_input(pixels) is pixels


def test_predictions(monkeypatch, tmp_path):
    path = tmp_path / "index.json"
    path.write_text(json.dumps({str(i): [f"n{i}", f"name{i}"] for i in range(1000)}))
    monkeypatch.setattr(imagenet_utils, "get_file", lambda *_, **__: str(path))
    imagenet_utils._class_index.cache_clear()
    scores = np.zeros((2, 1000))
    scores[0, 7], scores[0, 9], scores[1, 999] = 0.9, 0.1, 1.0
    first, second = resnet.decode_predictions(scores, top=2)
    assert first == [("n7", "name7", 0.9), ("n9", "name9", 0.1)]
    assert second[0] == ("n999", "name999", 1.0)
    imagenet_utils._class_index.cache_clear()
    with pytest.raises(ArgumentError, match="predictions"):
        resnet.decode_predictions(np.zeros((2, 10)))


def test_downloads_are_checked():
    assert set(map(len, imagenet_utils._hashes().values())) == {32, 64}
    assert "vgg16_weights_tf_dim_ordering_tf_kernels.h5" in imagenet_utils._hashes()


@pytest.mark.parametrize(
    "shape, size, flatten, weights, expected",
    [
        (None, 224, True, None, (224, 224, 3)),
        (None, 224, False, None, (None, None, 3)),
        ((150, 150, 1), 224, False, None, (150, 150, 1)),
        (None, 224, True, "imagenet", (224, 224, 3)),
    ],
)
def test_input_shapes(shape, size, flatten, weights, expected):
    arguments = (shape, size, 32, "channels_last", flatten, weights)
    assert imagenet_utils.obtain_input_shape(*arguments) == expected


@pytest.mark.parametrize(
    "shape, flatten, weights",
    [
        ((16, 16, 3), False, None),
        ((64,), False, None),
        ((64, 64, 1), False, "imagenet"),
        ((64, 64, 3), True, "imagenet"),
        ((None, None, 3), True, None),
    ],
)
def test_wrong_input_shapes(shape, flatten, weights):
    with pytest.raises(ArgumentError):
        imagenet_utils.obtain_input_shape(
            shape, 224, 32, "channels_last", flatten, weights
        )


def test_unusual_channels_warn():
    with pytest.warns(UserWarning, match="1 or 3 input channels"):
        imagenet_utils.obtain_input_shape((64, 64, 5), 224, 32, "channels_last", False)
    with pytest.raises(ArgumentError):
        imagenet_utils.preprocess_input(np.zeros((2, 2, 3)), mode="other")
