"""Test that errors in a model's config name the object and the key."""

import json
import zipfile

import numpy as np
import pytest

import toolkit
from toolkit import Input, Sequential, layers, models
from toolkit.errors import ModelFileError, ToolkitError


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = Sequential(
        [
            Input((3,)),
            layers.Dense(4, activation="relu", name="first"),
            layers.BatchNormalization(name="norm"),
        ]
    )
    model.compile("adam", "mse")
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 4)))
    path = tmp_path_factory.mktemp("models") / "whole.keras"
    model.save(path)
    return path


def layer(config, number):
    return config["config"]["layers"][number]["config"]


def optimizer(config):
    return config["compile_config"]["optimizer"]["config"]


# The change of the config -> the message.
MISTAKES = {
    "a string for a switch": (
        lambda c: layer(c, 1).update(use_bias="string"),
        "Dense 'first': expected `use_bias` to be a boolean; received 'string'",
    ),
    "a string for a number": (
        lambda c: layer(c, 1).update(units="4"),
        "Dense 'first': expected `units`",
    ),
    "a number below 0": (
        lambda c: layer(c, 1).update(units=-4),
        "`units` must be a positive integer.*in the config of Dense 'first'",
    ),
    "an unknown key": (
        lambda c: layer(c, 1).update(unit=5),
        "unknown argument 'unit'; did you mean 'units'.*Dense 'first'",
    ),
    "a missing key": (lambda c: layer(c, 1).pop("units"), "Dense.*'units'"),
    "an unknown name": (
        lambda c: layer(c, 1).update(activation="rleu"),
        "activation: received 'rleu'; did you mean 'relu'.*Dense 'first'",
    ),
    "a key further inside": (
        lambda c: layer(c, 1)["kernel_initializer"]["config"].update(sed=3),
        "GlorotUniform: unknown argument 'sed'.*Dense 'first'",
    ),
    "a word for a rate": (
        lambda c: layer(c, 2).update(momentum="a"),
        "BatchNormalization 'norm': expected `momentum`",
    ),
    "a shape in words": (
        lambda c: layer(c, 0).update(batch_shape=[None, "a"]),
        "InputLayer",
    ),
    "a decay of the optimizer": (
        lambda c: optimizer(c).update(beta_2=2**40),
        "Adam 'adam.*': expected `beta_2` to be a number in",
    ),
    "an argument of the optimizer": (
        lambda c: optimizer(c).update(beta_3=1),
        "Adam: unknown argument 'beta_3'.*Adam 'adam",
    ),
    "no layers": (lambda c: c["config"].update(layers=None), "Sequential"),
    "no config": (lambda c: c.pop("config"), "expected a model"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_config_error_is_not_reported_as_corruption(saved, tmp_path, case):
    change, message = MISTAKES[case]
    path = tmp_path / "changed.keras"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                config = json.loads(data)
                change(config)
                data = json.dumps(config).encode()
            new.writestr(name, data)
    with pytest.raises(ToolkitError, match=message) as caught:
        models.load_model(path)
    assert "corrupt" not in str(caught.value)
    assert "model.weights.h5" not in str(caught.value)


@toolkit.saving.register_keras_serializable("tests")
class Fragile(layers.Layer):
    """A user's layer whose constructor raises an unusual error."""

    def __init__(self, factor=1, **kwargs):
        super().__init__(**kwargs)
        self.factor = 1 / factor
        self.given = factor

    def get_config(self):
        return {**super().get_config(), "factor": self.given}

    def call(self, inputs):
        return inputs * self.factor


def test_error_of_a_custom_class_is_not_reported_as_corruption(tmp_path):
    model = Sequential([Input((3,)), Fragile(2, name="mine")])
    model.layers[0].given = 0
    model.save(tmp_path / "model.keras")
    with pytest.raises(ModelFileError, match="ZeroDivisionError") as caught:
        models.load_model(tmp_path / "model.keras")
    assert "corrupt" not in str(caught.value)
