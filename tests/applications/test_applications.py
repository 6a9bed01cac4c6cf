"""Tests of the architectures: Keras's parameters, names and shapes, and arguments."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.applications.expected import EXPECTED
from tests.fixtures import application_cases
from toolkit import applications, layers
from toolkit.errors import ArgumentError, DatasetError

QUICK = {
    *("MobileNet", "MobileNetV2", "MobileNetV3Small", "MobileNetV3Large", "ResNet50"),
    *("ResNet50V2", "VGG16", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0"),
    *("Xception", "InceptionV3", "InceptionResNetV2", "NASNetMobile", "ConvNeXtTiny"),
}
LARGER = {"InceptionResNetV2": 96, "InceptionV3": 96, "Xception": 96}
VARIABLE = ["MobileNetV2", "ResNet50V2", "Xception", "EfficientNetB0", "NASNetMobile"]


KERAS_LOGITS = json.loads(
    Path(application_cases.__file__).with_name("applications.json").read_text("utf-8")
)["logits"]
DOWNLOADED = {"MobileNet", "MobileNetV2", "MobileNetV3Small", "EfficientNetB0"}


def marked(names, quick=QUICK):
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


def build(name, **kwargs):
    toolkit.backend.clear_session()
    size = LARGER.get(name, 64)
    kwargs = {"weights": None, "input_shape": (size, size, 3), "classes": 10, **kwargs}
    return getattr(applications, name)(**kwargs)


def randomize(model, seed=0):
    """Replace the initial weights, so that a wrong order is visible."""
    rng = np.random.default_rng(seed)
    model.set_weights([rng.uniform(0.01, 0.1, w.shape) for w in model.weights])


def test_every_architecture_is_expected():
    assert {n for n in applications.__all__ if n[0].isupper()} == set(EXPECTED)


@pytest.mark.parametrize("name", marked(EXPECTED))
@pytest.mark.one_in(4)
def test_architecture_matches_keras(name):
    parameters, without_top, features, digest = EXPECTED[name]
    model = build(name)
    assert model.count_params() == parameters
    assert model.output_shape == (None, 10)
    structure = [[x.name for x in model.layers], [list(w.shape) for w in model.weights]]
    assert hashlib.sha256(json.dumps(structure).encode()).hexdigest()[:12] == digest
    bare = build(name, include_top=False, pooling="avg")
    assert bare.count_params() == without_top
    assert bare.output_shape == (None, features)


@pytest.mark.parametrize("name", marked(application_cases.NAMES, DOWNLOADED))
@pytest.mark.one_in(2)
def test_logits_match_keras(name):
    """Compare logits of seeded weights with Keras (`fixtures/applications.json`)."""
    toolkit.backend.clear_session()
    expected = np.array(KERAS_LOGITS[name])
    actual = application_cases.logits(applications, name)
    assert np.ptp(expected, axis=0).max() > 1e-2 * np.abs(expected).max()
    assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", VARIABLE)
@pytest.mark.one_in(3)
def test_images_of_any_size(name):
    model = build(name, include_top=False, input_shape=(None, None, 3))
    features = EXPECTED[name][2]
    assert model.output_shape == (None, None, None, features)
    fixed = build(name, include_top=False, input_shape=(96, 96, 3))
    fixed.set_weights(model.get_weights())
    x = np.random.default_rng(0).uniform(-1, 1, (1, 96, 96, 3)).astype("float32")
    np.testing.assert_allclose(
        model(x).numpy(), fixed(x).numpy(), rtol=1e-4, atol=1e-5, strict=True
    )


def test_nasnet_accepts_odd_extents():
    model = build("NASNetMobile", include_top=False, input_shape=(None, None, 3))
    assert model(np.zeros((1, 75, 101, 3), "float32")).shape == (1, 3, 4, 1056)


@pytest.mark.parametrize("name", ["MobileNetV2", "EfficientNetB0", "InceptionV3"])
@pytest.mark.one_in(3)
def test_channels_first(name):
    size = LARGER.get(name, 64)
    last = build(name, include_top=False)
    randomize(last)
    toolkit.config.set_image_data_format("channels_first")
    try:
        first = build(name, include_top=False, input_shape=(3, size, size))
    finally:
        toolkit.config.set_image_data_format("channels_last")
    first.set_weights(last.get_weights())
    x = np.random.default_rng(0).uniform(-1, 1, (1, size, size, 3)).astype("float32")
    outputs = first(x.transpose(0, 3, 1, 2)).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(outputs, last(x).numpy(), rtol=1e-3)


@pytest.mark.parametrize("name", ["MobileNetV3Small", "ConvNeXtTiny"])
@pytest.mark.one_in(2)
def test_weights_of_a_file(tmp_path, name):
    model = build(name)
    randomize(model)
    path = tmp_path / "own.weights.h5"
    model.save_weights(path)
    restored = build(name, weights=path)
    for a, b in zip(model.get_weights(), restored.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "name",
    ["ConvNeXtTiny", pytest.param("InceptionResNetV2", marks=pytest.mark.slow)],
)
def test_full_models_with_custom_layers(tmp_path, name):
    model = build(name, include_top=False, pooling="max")
    model.save(tmp_path / "model.keras")
    restored = toolkit.models.load_model(tmp_path / "model.keras")
    assert restored.count_params() == model.count_params()


def test_input_tensor():
    start = layers.Input((128, 128, 4))
    x = layers.Conv2D(3, 2, strides=2)(start)
    for name in ("MobileNetV2", "EfficientNetV2B0"):
        model = build(name, include_top=False, input_tensor=x, input_shape=None)
        assert model.input_shape in ((None, 128, 128, 4), [(None, 128, 128, 4)])
        assert isinstance(model.layers[1], layers.Conv2D)


@pytest.mark.parametrize(
    "name, kwargs",
    [
        ("ResNet50", {"weights": "nowhere.h5"}),
        ("ResNet50", {"weights": "imagenet", "include_top": True}),
        ("VGG16", {"input_shape": (16, 16, 3), "include_top": False}),
        ("VGG16", {"input_shape": (None, None, 3)}),
        ("Xception", {"input_shape": (64, 64, 3)}),
        ("DenseNet121", {"pooling": "mean"}),
        ("DenseNet121", {"input_tensor": np.zeros((1, 64, 64, 3))}),
        ("MobileNetV3Small", {"input_shape": (16, 16, 3)}),
        (
            "MobileNet",
            {"weights": "imagenet", "include_top": False, "alpha": 0.3},
        ),
    ],
)
def test_bad_arguments_are_refused(name, kwargs):
    with pytest.raises(ArgumentError):
        build(name, **kwargs)


def test_unsupported_channels_first_is_refused():
    toolkit.config.set_image_data_format("channels_first")
    try:
        for name in ("ConvNeXtTiny", "DenseNet121", "NASNetMobile"):
            with pytest.raises(ArgumentError, match="channels_first"):
                build(name, input_shape=(3, 64, 64))
    finally:
        toolkit.config.set_image_data_format("channels_last")


@pytest.mark.parametrize("name", marked(EXPECTED, DOWNLOADED))
def test_imagenet_weights_are_requested_with_their_hash(monkeypatch, name):
    requests = []

    def get_file(origin, cache_subdir, file_hash):
        requests.append((origin, file_hash))
        raise DatasetError("no network")

    monkeypatch.setattr("toolkit.applications.imagenet_utils.get_file", get_file)
    with pytest.raises(DatasetError):
        build(
            name,
            weights="imagenet",
            include_top=False,
            input_shape=(224, 224, 3),
        )
    ((origin, file_hash),) = requests
    assert origin.startswith("https://storage.googleapis.com/")
    assert bool(file_hash) == (name not in ("MobileNet", "MobileNetV2"))


def test_download_error_names_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path))
    monkeypatch.setattr(
        "toolkit.utils.files._open_url",
        lambda *_, **__: (_ for _ in ()).throw(OSError()),
    )
    with pytest.raises(DatasetError, match=r"resnet50_weights.*_notop\.h5"):
        build("ResNet50", weights="imagenet", include_top=False)
