"""Test low-rank adaptations in files of PEFT."""

import json
from pathlib import Path

import numpy as np
import pytest

import toolkit
from tests.models.test_low_rank_files import arrays
from toolkit import layers
from toolkit.errors import ArgumentError, ModelFileError, UnsupportedError

RNG = np.random.default_rng(0)
NAME = "adapter_model.safetensors"


def network(alpha=3.0, conv=layers.Conv1D):
    model = toolkit.Sequential(
        [
            toolkit.Input((6,), dtype="int32"),
            layers.Embedding(7, 8, name="table"),
            conv(8, 3, name="conv"),
            layers.EinsumDense("abc,cd->abd", (None, 5), name="einsum"),
            layers.Dense(4, name="dense"),
        ]
    )
    for i, layer in enumerate(model.layers):
        layer.enable_lora(2 + i % 2, lora_alpha=alpha)
        for weight in layer.weights:
            if "lora" in weight.path:
                weight.assign(RNG.normal(size=weight.shape))
    return model


def test_names_shapes_and_config(tmp_path):
    network().save_weights(tmp_path / NAME, adapters=True)
    start = "base_model.model."
    assert {
        k.removeprefix(start): v.shape for k, v in arrays(tmp_path / NAME).items()
    } == {
        "table.lora_embedding_A": (2, 7),
        "table.lora_embedding_B": (8, 2),
        "conv.lora_A.weight": (3, 8, 3),
        "conv.lora_B.weight": (8, 3, 1),
        "einsum.lora_A.weight": (2, 8),
        "einsum.lora_B.weight": (5, 2),
        "dense.lora_A.weight": (3, 5),
        "dense.lora_B.weight": (4, 3),
    }
    config = json.loads((tmp_path / "adapter_config.json").read_text("utf-8"))
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 3.0)
    assert config["rank_pattern"] == {"conv": 3, "dense": 3}
    assert config["target_modules"] == ["conv", "dense", "einsum", "table"]


@pytest.mark.parametrize("rows", [None, lambda name: f"x.{name.replace('/', '.')}"])
def test_adapters_round_trip(tmp_path, rows):
    model, restored, ids = network(), network(), np.array([[1, 2, 3, 4, 5, 6]])
    for layer, to in zip(model.layers, restored.layers, strict=True):
        name = f"_{layer._adapted}"
        getattr(to, name).assign(getattr(layer, name))
    assert not np.allclose(model(ids), restored(ids))
    model.save_weights(tmp_path / NAME, adapters=True, mapping=rows)
    restored.load_weights(tmp_path / NAME, adapters=True, mapping=rows)
    np.testing.assert_array_equal(model(ids), restored(ids))


def test_mismatches_are_errors_and_change_nothing(tmp_path):
    path = tmp_path / NAME
    network().save_weights(path, adapters=True)
    for model in (network(alpha=4.0), without_one()):
        before = model.get_weights()
        with pytest.raises(ModelFileError, match="scale|unexpected"):
            model.load_weights(path, adapters=True)
        for x, y in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(x, y)
    edit(tmp_path, use_dora=True)
    with pytest.raises(UnsupportedError, match="use_dora"):
        network().load_weights(path, adapters=True)
    edit(tmp_path, use_dora=False, use_rslora=True)
    with pytest.raises(ModelFileError, match="scale"):
        network().load_weights(path, adapters=True)
    Path(tmp_path, "adapter_config.json").unlink()
    with pytest.raises(ModelFileError, match="adapter_config"):
        network().load_weights(path, adapters=True)


def without_one():
    model = toolkit.Sequential([toolkit.Input((5,)), layers.Dense(4, name="dense")])
    model.layers[0].enable_lora(3, lora_alpha=3.0)
    return model


def edit(folder, **members):
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**config, **members}), "utf-8")


def test_invalid_adapters_are_refused(tmp_path):
    model, other_model = (
        network(),
        toolkit.Sequential([toolkit.Input((3,)), layers.Dense(2)]),
    )
    with pytest.raises(ArgumentError, match="adapter_model.safetensors"):
        model.save_weights(tmp_path / "a.safetensors", adapters=True)
    with pytest.raises(ArgumentError, match="`enable_lora` of a layer first"):
        other_model.save_weights(tmp_path / NAME, adapters=True)
    with pytest.raises(ArgumentError, match="max_shard_size"):
        model.save_weights(tmp_path / NAME, max_shard_size=1, adapters=True)
    with pytest.raises(UnsupportedError, match="splits or joins"):
        rows = {"*/embeddings": "t.weight", "*/kernel": ("k", "o (c w=3) -> w c o")}
        model.save_weights(tmp_path / NAME, adapters=True, mapping=rows)
    grouped = toolkit.Sequential(
        [toolkit.Input((6, 8)), layers.Conv1D(8, 3, groups=2, name="conv")]
    )
    grouped.layers[0].enable_lora(2)
    attention = toolkit.Sequential(
        [toolkit.Input((6, 8)), layers.EinsumDense("abc,cde->abde", (None, 2, 4))]
    )
    attention.layers[0].enable_lora(2)
    for model in (grouped, attention):
        with pytest.raises(UnsupportedError, match="PEFT has no factors"):
            model.save_weights(tmp_path / NAME, adapters=True)
    assert not list(tmp_path.iterdir())
