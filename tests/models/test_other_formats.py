"""Test paths that no loader reads: each error recommends another way."""

import json

import pytest

import toolkit
from toolkit.errors import ArgumentError


def model():
    return toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])


LOADERS = [toolkit.saving.load_model, lambda path: model().load_weights(path)]
BERT = {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 8}


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("m.mlpackage", "Core ML"),
        ("m.mlmodel", "Core ML"),
        ("m.gguf", "llama.cpp.*safetensors"),
        ("m.GGUF", "llama.cpp"),
        ("m.xml", "OpenVINO"),
        ("m.msgpack", "Flax"),
        ("m.npz", "numpy.load"),
    ],
)
def test_formats_of_other_libraries(tmp_path, load, name, message):
    path = tmp_path / name
    for create in (path.mkdir, lambda: path.rmdir() or path.touch()):
        create()
        with pytest.raises(ArgumentError, match=message):
            load(path)


@pytest.mark.parametrize("load", LOADERS)
def test_models_of_tensorflow_js(tmp_path, load):
    members = {"modelTopology": {}, "weightsManifest": []}
    (tmp_path / "model.json").write_text(json.dumps(members), "utf-8")
    for path in (tmp_path, tmp_path / "model.json"):
        with pytest.raises(ArgumentError, match="tensorflowjs_converter"):
            load(path)


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(
    ("config", "weights", "message"),
    [
        (BERT, "model.safetensors", "BertModel.*model.safetensors' by"),
        (BERT, "model.safetensors.index.json", "index.json"),
        (BERT, "pytorch_model.bin", "as safetensors"),
        ({"model_type": "bert"}, "tf_model.h5", "bert.*as safetensors"),
    ],
)
def test_folders_of_hugging_face(tmp_path, load, config, weights, message):
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / weights).touch()
    for path in (tmp_path, str(tmp_path)):
        with pytest.raises(ArgumentError, match=f"Hugging Face.*{message}"):
            load(path)


def test_folders_of_peft(tmp_path):
    config = json.dumps({"peft_type": "LORA", "r": 8})
    (tmp_path / "adapter_config.json").write_text(config, "utf-8")
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(ArgumentError, match="LoRA.*adapter_model.safetensors"):
        toolkit.saving.load_model(tmp_path)


def test_repositories_of_the_hub():
    with pytest.raises(ArgumentError, match=r"snapshot_download\('a/b', local_dir"):
        toolkit.saving.load_model("hf://a/b")
    with pytest.raises(ArgumentError, match=r"hf_hub_download\('a/b', filename\)"):
        model().load_weights("hf://a/b")
    for options in ({}, {"zipped": False}):
        with pytest.raises(ArgumentError, match=r"upload_folder\(repo_id='a/b'"):
            model().save("hf://a/b", **options)


def test_downloaded_repository_of_keras_loads(tmp_path):
    """The Hub adds its own files to a folder of a model."""
    model().save(tmp_path / "model", zipped=False)
    for name in ("README.md", ".gitattributes"):
        (tmp_path / "model" / name).touch()
    loaded = toolkit.saving.load_model(tmp_path / "model")
    assert loaded.output_shape == (None, 2)
