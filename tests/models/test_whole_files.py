"""Test that models of Keras 3.15.1 load and give the same results."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.fixtures import whole_models
from toolkit import serialization

FOLDER = Path(__file__).parents[1] / "fixtures"
OUTPUTS = np.load(FOLDER / "keras_files.npz")
with zipfile.ZipFile(FOLDER / "keras_files.zip") as archive:
    FILES = sorted(archive.namelist())
OTHERWISE = ("bidirectional", "custom", "distributed", "with_ops")
ALIKE = sorted(set(whole_models.BUILDERS) - set(OTHERWISE))


@pytest.fixture(autouse=True)
def registered():
    previous = dict(serialization.get_custom_objects())
    whole_models.Custom(toolkit)
    yield
    serialization.get_custom_objects().clear()
    serialization.get_custom_objects().update(previous)


def extract(file, folder):
    with zipfile.ZipFile(FOLDER / "keras_files.zip") as archive:
        return archive.extract(file, folder)


def load(file, folder):
    name, suffix = file.split(".", 1)
    path = extract(file, folder)
    if suffix == "weights.h5":
        model = whole_models.make(toolkit, name)
        model.load_weights(path)
        return model
    return toolkit.saving.load_model(path)


def assert_computes_the_same(model, name):
    outputs = whole_models.flat(model.predict(whole_models.inputs(name), verbose=0))
    tolerance = 2e-2 if name == "half" else 1e-5  # of bfloat16, of float32
    for i, output in enumerate(outputs):
        expected = OUTPUTS[f"{name}_{i}"]
        np.testing.assert_allclose(output, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("file", FILES)
def test_files_from_keras(file, tmp_path):
    model = load(file, tmp_path)
    name = file.split(".")[0]
    assert_computes_the_same(model, name)
    if not model.compiled:
        return
    x, y = whole_models.inputs(name), whole_models.targets(name)
    losses = [np.ravel(model.train_on_batch(x, y))[0] for _ in range(3)]
    np.testing.assert_allclose(losses, OUTPUTS[f"{name}_losses"], rtol=1e-4)


@pytest.mark.parametrize("suffix", ["keras", "h5"])
@pytest.mark.parametrize("name", whole_models.BUILDERS)
def test_round_trip(name, suffix, tmp_path):
    if name in whole_models.GRAPHLESS and suffix == "h5":
        return
    model = whole_models.make(toolkit, name)
    model.save(tmp_path / f"x.{suffix}")
    restored = toolkit.saving.load_model(tmp_path / f"x.{suffix}")
    x = whole_models.inputs(name)
    pairs = zip(
        *(whole_models.flat(m.predict(x, verbose=0)) for m in (model, restored)),
        strict=True,
    )
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


def members(config):
    """Return the class members of a config: module, class, keys of the config."""
    if isinstance(config, list):
        return [member for item in config for member in members(item)]
    if not isinstance(config, dict):
        return []
    inner = [member for value in config.values() for member in members(value)]
    if config.keys() >= {"module", "class_name", "config"}:
        return [(config["module"], config["class_name"]), *inner]
    return inner


@pytest.mark.parametrize("name", ALIKE)
def test_configs_name_the_same_classes(name, tmp_path):
    with zipfile.ZipFile(extract(f"{name}.keras", tmp_path)) as archive:
        expected = json.loads(archive.read("config.json"))
    model = whole_models.make(toolkit, name)
    with serialization.ObjectSharingScope():
        config = json.loads(json.dumps(serialization.serialize_keras_object(model)))
    toolkit_names, keras_names = (
        # Keras names its optimizers by the module of its own backend.
        [str(member) for member in members(c) if "optim" not in str(member)]
        for c in (config, expected)
    )
    assert sorted(toolkit_names) == sorted(keras_names)


def test_keras_loads_the_files_of_toolkit():
    """Check the result of `make_keras_files.py` for files of `write_whole_files.py`."""
    reported = json.loads((FOLDER / "keras_reads.json").read_text("utf-8"))["files"]
    assert len(reported) == len(FILES)
    assert {name: status for name, status in reported.items() if status != "same"} == {}
