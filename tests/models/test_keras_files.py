"""Test that weights of Keras 3.15.1 load, and give the outputs of Keras."""

import importlib.util
from pathlib import Path

import h5py
import numpy as np
import pytest

import toolkit

FOLDER = Path(__file__).parents[1] / "fixtures"


def load_architectures():
    path = FOLDER / "architectures.py"
    spec = importlib.util.spec_from_file_location("architectures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


architectures = load_architectures()
OUTPUTS = np.load(FOLDER / "keras_outputs.npz")


def contents(path):
    """Return dataset path -> array, and the `name` attributes of the groups."""
    arrays, groups = {}, set()
    with h5py.File(path) as file:

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                arrays[name] = item[()]
            elif "name" in item.attrs:
                groups.add(name)

        file.visititems(visit)
    return arrays, groups


@pytest.mark.parametrize("name", architectures.BUILDERS)
def test_outputs_with_weights_from_keras(name):
    model = architectures.make(toolkit, name)
    model.load_weights(FOLDER / f"{name}.weights.h5")
    predictions = model.predict(architectures.inputs(name), verbose=0)
    predictions = predictions if isinstance(predictions, list) else [predictions]
    for i, output in enumerate(predictions):
        np.testing.assert_allclose(output, OUTPUTS[f"{name}_{i}"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", architectures.BUILDERS)
def test_written_layout_equals_keras(name, tmp_path):
    model = architectures.make(toolkit, name)
    model.load_weights(FOLDER / f"{name}.weights.h5")
    model.save_weights(tmp_path / "x.weights.h5")
    written, written_groups = contents(tmp_path / "x.weights.h5")
    expected, expected_groups = contents(FOLDER / f"{name}.weights.h5")
    assert written.keys() == expected.keys()
    assert written_groups == expected_groups
    for path, array in expected.items():
        assert written[path].dtype == array.dtype
        np.testing.assert_array_equal(written[path], array)


def test_training_continues_with_the_state_of_the_optimizer():
    model = architectures.make(toolkit, "compiled")
    model.load_weights(FOLDER / "compiled.weights.h5")
    assert int(model.optimizer.iterations) == 3
    x = architectures.inputs("compiled")
    losses = [model.train_on_batch(x, x[:, :2]) for _ in range(3)]
    np.testing.assert_allclose(losses, OUTPUTS["compiled_losses"], rtol=1e-5)


def test_state_of_a_built_optimizer_is_loaded():
    model = toolkit.Sequential(
        [toolkit.Input((6,)), toolkit.layers.Dense(4), toolkit.layers.Dense(2)]
    )
    model.compile(toolkit.optimizers.Adam(0.01), "mse")
    model.optimizer.build(model.trainable_variables)
    model.load_weights(FOLDER / "compiled.weights.h5")
    x = architectures.inputs("compiled")
    losses = [model.train_on_batch(x, x[:, :2]) for _ in range(3)]
    np.testing.assert_allclose(losses, OUTPUTS["compiled_losses"], rtol=1e-5)
