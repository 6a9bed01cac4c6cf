"""Test files of models with low-rank adaptations: merged weights by default."""

from pathlib import Path

import numpy as np
import pytest

import toolkit
from toolkit import layers
from toolkit.errors import ArgumentError, ModelFileError
from toolkit.reading.safetensors import open_safetensors

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5)).astype("float32")
TABLE = {"*/kernel": ("*.weight", "o i -> i o"), "*/bias": "*.bias"}


def network(rank=None):
    model = toolkit.Sequential(
        [
            toolkit.Input((5,)),
            layers.Dense(4, name="first"),
            toolkit.Sequential([layers.Dense(3, name="second")], name="inner"),
        ]
    )
    model.build((None, 5))
    if rank:
        for layer in (model.layers[0], model.layers[1].layers[0]):
            layer.enable_lora(rank, lora_alpha=3.0)
            layer.lora_kernel_b.assign(RNG.normal(size=layer.lora_kernel_b.shape))
    return model


def arrays(path):
    with open_safetensors(Path(path)) as file:
        return {name: array.read() for name, array in file.arrays.items()}


@pytest.mark.parametrize(
    "rows", [None, TABLE, {**TABLE, "*/lora_*": None}, {"*": None, **TABLE}]
)
def test_files_contain_the_merged_weights(tmp_path, rows):
    model, path = network(2), tmp_path / "model.safetensors"
    if rows:
        rows = {**rows, **{f"inner/{k}": v for k, v in rows.items()}}
    expected = np.asarray(model(X))
    model.save_weights(path, mapping=rows)
    assert not any("lora" in name for name in arrays(path))
    without_adapters = network()
    without_adapters.load_weights(path, mapping=rows)
    np.testing.assert_allclose(without_adapters(X), expected, rtol=1e-5, atol=1e-5)
    # An earlier adaptation is not added a second time.
    model.load_weights(path, mapping=rows)
    np.testing.assert_allclose(model(X), expected, rtol=1e-5, atol=1e-5)


def test_mapping_may_name_both_factors(tmp_path):
    model, path = network(2), tmp_path / "model.safetensors"
    model.save_weights(path, mapping=lambda name: name)
    assert {"first/lora_kernel_a", "first/lora_kernel_b"} <= arrays(path).keys()
    kernel = np.asarray(model.layers[0].weights[0])
    np.testing.assert_array_equal(arrays(path)["first/kernel"], kernel)
    expected, restored = np.asarray(model(X)), network(2)
    for rows in (None, lambda name: name):
        restored.load_weights(path, mapping=rows)
        np.testing.assert_array_equal(restored(X), expected)
    rename = lambda name: None if name.endswith("_a") else name  # noqa: E731
    with pytest.raises(ArgumentError, match="rows for both factors"):
        model.save_weights(path, mapping=rename)


def test_invalid_file_changes_no_adaptation(tmp_path):
    model, path = network(2), tmp_path / "model.safetensors"
    toolkit.Sequential(
        [toolkit.Input((5,)), layers.Dense(4, name="first")]
    ).save_weights(path)
    before = np.asarray(model(X))
    with pytest.raises(ModelFileError, match="missing"):
        model.load_weights(path)
    np.testing.assert_array_equal(model(X), before)


@pytest.mark.parametrize("suffix", ["weights.h5", "safetensors"])
def test_loaded_adaptation_is_trainable(tmp_path, suffix):
    model, path = network(2), tmp_path / f"model.{suffix}"
    model.save_weights(path)
    model.load_weights(path)
    factor = model.layers[0].lora_kernel_b
    assert not np.any(factor)
    model.compile("sgd", "mse")
    model.fit(X, np.ones((4, 3)), verbose=0)
    assert np.any(factor)


def test_quantized_and_other_adapted_layers(tmp_path):
    path = tmp_path / "model.safetensors"
    model = toolkit.Sequential(
        [
            toolkit.Input((6,), dtype="int32"),
            layers.Embedding(7, 8),
            layers.Conv1D(8, 3),
            layers.EinsumDense("abc,cd->abd", (None, 8)),
            layers.Dense(4),
        ]
    )
    model.layers[-1].quantize("int8")
    for layer in model.layers:
        layer.enable_lora(2)
        b = next(w for w in layer.weights if w.path.endswith("_b"))
        b.assign(0.1 * RNG.normal(size=b.shape))
    ids = np.array([[1, 2, 3, 4, 5, 6]])
    expected = np.asarray(model(ids))
    model.save_weights(path)
    assert not any("lora" in name for name in arrays(path))
    model.load_weights(path)
    np.testing.assert_allclose(model(ids), expected, atol=0.05)
