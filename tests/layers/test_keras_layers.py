"""Test every layer against Keras 3.15 with the same weights; see fixtures."""

import inspect
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.fixtures import layer_cases
from toolkit import layers

FILE = Path(__file__).parents[1] / "fixtures" / "keras_layers.npz"
CASES = layer_cases.cases()

# Layers without comparable values, and wrappers of layers that have cases.
NO_CASES = {"Input", "InputLayer", "InputSpec", "Lambda", "Layer", "StackedRNNCells"}
NO_CASES |= {"Rescaling", "Wrapper"}
# Layers that only Keras 2 has; `tests/models/test_keras_2_files.py` compares them.
NO_CASES |= {"LocallyConnected1D", "LocallyConnected2D", "ThresholdedReLU"}


@pytest.fixture(scope="module")
def stored():
    with np.load(FILE) as file:
        arrays = dict(file)
    return json.loads(arrays["table"].tobytes()), arrays


@pytest.mark.parametrize("name", CASES)
def test_layer_equals_keras(name, stored):
    table, arrays = stored
    expected = table[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of rms_scaling
        config, shapes, outputs = layer_cases.run(
            toolkit, name, CASES[name], lambda x: x.numpy()
        )
    assert [list(shape) for shape in shapes] == expected["weights"]
    assert [list(x.shape) for x in outputs] == expected["outputs"]
    values = np.concatenate([x.astype("float32").ravel() for x in outputs])
    np.testing.assert_allclose(values, arrays[name], atol=2e-5, rtol=1e-5)
    cls = getattr(layers, expected["class"])
    if cls.__name__ != "LayerNormalization":  # one of them warns
        twin = cls.from_config(expected["config"])
        assert twin.get_config()["name"] == expected["config"]["name"]


def test_every_layer_has_a_case(stored):
    table, _ = stored
    classes = {row["class"] for row in table.values()}
    public = {
        cls.__name__
        for cls in (getattr(layers, name) for name in layers.__all__)
        if inspect.isclass(cls)
        and issubclass(cls, layers.Layer)
        and "preprocessing" not in cls.__module__
    }
    assert sorted(public - classes - NO_CASES) == []
