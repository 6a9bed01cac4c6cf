"""Test that files of Keras 2 have the results of Keras 2."""

import io
import json
import zipfile
from operator import attrgetter
from pathlib import Path

import h5py
import numpy as np
import pytest

from toolkit import activations, layers, models, saving
from toolkit.errors import ArgumentError, ModelFileError, UnsupportedError

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "keras_2.zip"
with zipfile.ZipFile(ARCHIVE) as archive:
    FILES = {name: archive.read(name) for name in archive.namelist()}
NAMES = sorted(name.removesuffix(".npz") for name in FILES if name.endswith(".npz"))
WHOLE = sorted(name for name in FILES if name.endswith((".h5", ".keras")))
COMPILED = [name for name in WHOLE if name.startswith("compiled")]
X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
Y = np.eye(2, dtype="float32")[np.arange(8) % 2]


def numbers(name):
    arrays = np.load(io.BytesIO(FILES[f"{name.split('.')[0]}.npz"]))
    groups = {"x": [], "y": []}
    for kind, variables in groups.items():
        while f"{kind}{len(variables)}" in arrays:
            variables.append(arrays[f"{kind}{len(variables)}"])
    return groups["x"], groups["y"], arrays


def assert_predicts(model, name):
    inputs, expected, _ = numbers(name)
    predictions = model.predict(inputs if len(inputs) > 1 else inputs[0], verbose=0)
    predictions = (
        predictions if isinstance(predictions, (list, tuple)) else [predictions]
    )
    tolerance = 2e-3 if name.startswith("half") else 2e-5
    for a, b in zip(predictions, expected, strict=True):
        np.testing.assert_allclose(a, b, tolerance, tolerance)


@pytest.fixture
def load(tmp_path):
    def load(name, change=None):
        path = tmp_path / name
        path.write_bytes(FILES[name])
        if change:
            with h5py.File(path, "r+") as file:
                change(file.attrs)
        return saving.load_model(path)

    return load


@pytest.mark.parametrize("name", WHOLE)
def test_predictions_equal_keras_2(name, load):
    model = load(name)
    assert_predicts(model, name)


@pytest.mark.parametrize("name", NAMES)
def test_architectures_as_json(name, tmp_path):
    model = models.model_from_json(FILES[f"{name}.json"].decode())
    path = tmp_path / "x.h5"
    path.write_bytes(FILES[f"{name}.h5"])
    model.load_weights(path)
    assert_predicts(model, name)


@pytest.mark.parametrize("name", COMPILED)
def test_training_continues(name, load):
    model = load(name)
    losses = [model.train_on_batch(X, Y, return_dict=True)["loss"] for _ in range(3)]
    expected = numbers(name)[2]["losses"]
    # Keras 2 stores legacy optimizers in `.h5` files only.
    if not name.startswith("compiled_old") or name.endswith("h5"):
        np.testing.assert_allclose(losses, expected, 1e-4)


@pytest.mark.parametrize("name", ["dense.h5", "gru.keras", "functions.h5"])
def test_saved_copy_has_the_same_numbers(name, load, tmp_path):
    for suffix in ("keras", "h5"):
        load(name).save(tmp_path / f"again.{suffix}")
        assert_predicts(saving.load_model(tmp_path / f"again.{suffix}"), name)


def test_hard_sigmoid_of_keras_2():
    x = np.linspace(-4, 4, 33).astype("float32")
    expected = np.clip(0.2 * x + 0.5, 0, 1)
    np.testing.assert_allclose(activations.legacy_hard_sigmoid(x), expected, 1e-6)
    layer = layers.Dense(2, activation="legacy_hard_sigmoid")
    restored = layers.Dense.from_config(layer.get_config())
    assert restored.activation is activations.legacy_hard_sigmoid
    assert layers.Dense(2, "hard_sigmoid").activation is activations.hard_sigmoid


def test_version_determines_the_meaning(load):
    def claim_keras_3(attributes):
        attributes["keras_version"] = "3.0.0"
        text = attributes["model_config"]
        config = json.loads(text)
        for layer in config["config"]["layers"]:
            shape = layer["config"].pop("batch_input_shape", None)
            layer["config"] |= {"batch_shape": shape} if shape else {}
        attributes["model_config"] = json.dumps(config)

    assert load("dense.h5").layers[0].activation is activations.legacy_hard_sigmoid
    renewed = load("dense.h5", claim_keras_3)
    assert renewed.layers[0].activation is activations.hard_sigmoid


def architecture(*stack, **members):
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": stack}}
    return json.dumps({**config, "keras_version": "2.4.0", **members})


def layer(class_name, **config):
    return {"class_name": class_name, "config": config}


def shape(*extents):
    return {"class_name": "__tuple__", "items": [None, *extents]}


# The first layers of earlier versions of Keras 2, and their meanings.
EARLIER = [
    (layer("Dense", name="d", units=3, batch_input_shape=shape(4)), {"units": 3}),
    (
        layer(
            "Dense",
            units=3,
            batch_input_shape=[None, 4],
            kernel_initializer=layer(
                "VarianceScaling", scale=1.0, distribution="normal", dtype="float32"
            ),
            bias_initializer=layer("Zeros", dtype="float32"),
            dtype=layer("Policy", name="float32"),
        ),
        {"use_bias": True},
    ),
    (
        layer("GRU", units=3, batch_input_shape=[None, 4, 2], implementation=1),
        {"cell.reset_after": False},
    ),
    (
        layer("BatchNormalizationV1", axis=[2], batch_input_shape=[None, 4, 2]),
        {"axis": 2},
    ),
    (
        layer(
            "LeakyReLU",
            alpha={"type": "ndarray", "value": 0.25},
            batch_input_shape=[None, 4],
        ),
        {"negative_slope": 0.25},
    ),
    (
        layer("Embedding", input_dim=9, output_dim=2, batch_input_shape=[None, 4]),
        {"input_dim": 9},
    ),
    (
        layer("Activation", activation="softmax_v2", batch_input_shape=[None, 4]),
        {"activation": activations.softmax},
    ),
    (
        layer("CategoryEncoding", max_tokens=4, output_mode="binary"),
        {"num_tokens": 4, "output_mode": "multi_hot"},
    ),
]


@pytest.mark.parametrize(("first", "attributes"), EARLIER)
def test_configs_of_earlier_versions(first, attributes):
    model = models.model_from_json(architecture(first))
    for name, value in attributes.items():
        assert attrgetter(name)(model.layers[0]) == value


def test_sequential_config_may_be_a_list_of_layers():
    stack = [layer("Dense", units=3, batch_input_shape=[None, 4])]
    text = json.dumps({"class_name": "Sequential", "config": stack})
    assert models.model_from_json(text).output_shape == (None, 3)


def test_layers_of_users_keep_their_arguments():
    class Scaled(layers.Layer):
        def __init__(self, groups, sparse, activation, **kwargs):
            super().__init__(**kwargs)
            self.groups, self.sparse = groups, sparse
            self.activation = activations.get(activation)

        def call(self, inputs):
            return self.activation(inputs)

    layer_scope = layer(
        "Scaled",
        groups=4,
        sparse=True,
        activation="hard_sigmoid",
        batch_input_shape=[None, 3],
    )
    model = models.model_from_json(architecture(layer_scope), {"Scaled": Scaled})
    assert (model.layers[0].groups, model.layers[0].sparse) == (4, True)
    assert model.layers[0].activation is activations.legacy_hard_sigmoid


def triple(x):
    return 3 * x


def test_functions_of_lambda_layers_are_passed_by_the_reader():
    own = layer(
        "Lambda",
        name="own",
        function="triple",
        function_type="function",
        output_shape=None,
        output_shape_type="raw",
        module="__main__",
        batch_input_shape=[None, 3],
    )
    model = models.model_from_json(architecture(own), {"triple": triple})
    np.testing.assert_array_equal(model.predict(np.ones((1, 3)), verbose=0), [[3] * 3])
    own["config"] |= {"function": ["4wEA", None, None], "function_type": "lambda"}
    model = models.model_from_json(architecture(own), {"own": triple})
    np.testing.assert_array_equal(model.predict(np.ones((1, 3)), verbose=0), [[3] * 3])
    with pytest.raises(ArgumentError, match="in `custom_objects` under the layer"):
        models.model_from_json(architecture(own))


REFUSED = [
    (layer("LSTM", name="l", units=2, time_major=True), "LSTM 'l': .*time_major=True"),
    (layer("DepthwiseConv2D", name="d", kernel_size=2, groups=2), "groups=2"),
    (
        layer("RandomHeight", name="h", factor=0.2),
        "RandomHeight 'h': Keras 3 does not have",
    ),
    (layer("Merge", name="m", mode="sum"), "Merge 'm': .*Concatenate"),
]


@pytest.mark.parametrize(("first", "message"), REFUSED)
def test_refused_files_have_a_reason(first, message):
    with pytest.raises(ModelFileError, match=message):
        models.model_from_json(architecture(first))


def test_keras_1_is_named():
    old = layer("Dense", output_dim=3, init="uniform", W_regularizer=None)
    with pytest.raises(
        ModelFileError, match="Keras 1.2.0 wrote this model, .* Keras 2"
    ):
        models.model_from_json(architecture(old, keras_version="1.2.0"))
    text = json.dumps({"class_name": "Sequential", "config": [old]})
    with pytest.raises(ModelFileError, match="Keras 1 wrote this model"):
        models.model_from_json(text)


def test_unknown_functions_are_named():
    config = json.loads(FILES["functions.json"])
    for data in config["config"]["layers"]:
        if data["config"].get("function") == "math.abs":
            data["config"]["function"] = "linalg.lu"
    with pytest.raises(
        UnsupportedError,
        match=r"calls tf\.linalg\.lu, which is not a supported TensorFlow function",
    ):
        models.model_from_json(json.dumps(config))
