"""Test the files of every layer against Keras in both directions."""

import json
import warnings
from pathlib import Path

import pytest

import toolkit
from tests.fixtures import layer_files
from toolkit import layers

FILE = Path(__file__).parents[1] / "fixtures" / "layer_files.json"
STORED = json.loads(FILE.read_text("utf-8"))


@pytest.fixture(scope="module")
def serialized_layers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of rms_scaling
        return layer_files.as_json(layer_files.rows(toolkit))


@pytest.mark.parametrize("name", STORED)
def test_keras_reads_the_files_of_toolkit(name, serialized_layers):
    """The class name, the constructor arguments and the weight paths match."""
    row, expected = serialized_layers[name], STORED[name]
    assert row["class_name"] == expected["class_name"]
    assert row["module"] == expected["module"]
    assert row.get("weights") == expected.get("weights")
    keywords = {*expected["takes"], "rms_scaling"}  # among its keywords
    assert sorted(set(row["config"]) - keywords) == []


@pytest.mark.filterwarnings("ignore:.*rms_scaling")
@pytest.mark.parametrize("name", STORED)
def test_toolkit_reads_the_files_of_keras(name, serialized_layers):
    expected = {key: STORED[name][key] for key in ("module", "class_name", "config")}
    layer = toolkit.saving.deserialize_keras_object(expected)
    result = layer_files.as_json(toolkit.saving.serialize_keras_object(layer))
    assert result["config"]["name"] == expected["config"]["name"]
    assert list(differences(result["config"], expected["config"])) == []


def differences(serialized_layers, expected, path=""):
    """Return the keys with different values in both configs."""
    serialized_layers, expected = (
        _policy_name(serialized_layers),
        _policy_name(expected),
    )
    if isinstance(serialized_layers, dict) and isinstance(expected, dict):
        for key in serialized_layers.keys() & expected.keys():
            yield from differences(
                serialized_layers[key], expected[key], f"{path}/{key}"
            )
    elif serialized_layers != expected and (serialized_layers or expected):
        yield path, serialized_layers, expected


def _policy_name(value):
    is_policy = isinstance(value, dict) and value.get("class_name") == "DTypePolicy"
    return value["config"]["name"] if is_policy else value


def test_every_case_is_stored(serialized_layers):
    assert sorted(serialized_layers) == sorted(STORED)


@pytest.mark.parametrize(
    "layer",
    [
        layers.SpatialDropout1D(0.2),
        layers.SpatialDropout2D(0.2),
        layers.SpatialDropout3D(0.2),
        layers.Discretization([0.0, 1.0]),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_configs_of_the_first_files_are_read(layer):
    """They contain `trainable`, which the constructors do not accept, as in Keras."""
    config = {**layer.get_config(), "trainable": True}
    assert type(layer).from_config(config).get_config() == layer.get_config()
