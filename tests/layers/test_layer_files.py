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
def ours():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of rms_scaling
        return layer_files.as_json(layer_files.rows(toolkit))


@pytest.mark.parametrize("name", STORED)
def test_keras_reads_the_files_of_toolkit(name, ours):
    """The class name, the constructor arguments and the weight paths match."""
    row, expected = ours[name], STORED[name]
    assert row["class_name"] == expected["class_name"]
    assert row["module"] == expected["module"]
    assert row.get("weights") == expected.get("weights")
    taken = {*expected["takes"], "rms_scaling"}  # among its keywords
    assert sorted(set(row["config"]) - taken) == []


@pytest.mark.filterwarnings("ignore:.*rms_scaling")
@pytest.mark.parametrize("name", STORED)
def test_toolkit_reads_the_files_of_keras(name, ours):
    expected = {key: STORED[name][key] for key in ("module", "class_name", "config")}
    layer = toolkit.saving.deserialize_keras_object(expected)
    again = layer_files.as_json(toolkit.saving.serialize_keras_object(layer))
    assert again["config"]["name"] == expected["config"]["name"]
    assert list(differences(again["config"], expected["config"])) == []


def differences(ours, theirs, path=""):
    """Return the keys with different values in both configs."""
    ours, theirs = _policy_name(ours), _policy_name(theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours.keys() & theirs.keys():
            yield from differences(ours[key], theirs[key], f"{path}/{key}")
    elif ours != theirs and (ours or theirs):
        yield path, ours, theirs


def _policy_name(value):
    is_policy = isinstance(value, dict) and value.get("class_name") == "DTypePolicy"
    return value["config"]["name"] if is_policy else value


def test_every_case_is_stored(ours):
    assert sorted(ours) == sorted(STORED)


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
