"""Folders and JSON files of other libraries: advice instead of loading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from toolkit.errors import ArgumentError

_MAX_CONFIG = 4_000_000  # bytes; a longer file is not a config of these libraries
_HUGGING_FACE_KEYS = {"architectures", "model_type", "transformers_version"}
_HUGGING_FACE_FILES = (
    "model.safetensors.index.json",
    "model.safetensors",
    "adapter_model.safetensors",
)


def refuse_hugging_face(method: str, path: Path) -> None:
    """Raise with advice if a path is a folder of Hugging Face, or its config."""
    folder = path.parent if path.name == "config.json" else path
    config = _members(folder / "config.json")
    is_adapter = "peft_type" in _members(folder / "adapter_config.json")
    if "class_name" in config or not (is_adapter or _HUGGING_FACE_KEYS & config.keys()):
        return
    names = [name for name in _HUGGING_FACE_FILES if (folder / name).is_file()]
    if names:
        advice = f"load {str(folder / names[0])!r} by `load_weights(..., mapping=...)`"
    else:
        advice = (
            "save the weights as safetensors with that library, and load the file by "
            "`load_weights(..., mapping=...)`"
        )
    architectures = config.get("architectures") or [config.get("model_type", "LoRA")]
    raise ArgumentError(
        f"{method}: {str(folder)!r} is a Hugging Face folder with the model "
        f"{architectures!r}, not a Keras model; build the model first, then {advice}"
    )


def refuse_tensorflow_js(method: str, path: Path) -> None:
    """Raise with advice if a path is a model of TensorFlow.js, or its folder."""
    file = path / "model.json" if path.is_dir() else path
    members = _members(file) if file.suffix == ".json" else {}
    if {"modelTopology", "weightsManifest"} & members.keys():
        raise ArgumentError(
            f"{method}: {str(file)!r} is a TensorFlow.js model, which is "
            "unsupported; `tensorflowjs_converter --input_format=tfjs_layers_model "
            "--output_format=keras` converts a layers model to an `.h5` file"
        )


def refuse_hub_address(method: str, address: str) -> None:
    """Raise with advice if an address is a repository of the Hugging Face Hub."""
    name = address.removeprefix("hf://")
    if name == address:
        return
    if method == "load_weights":
        advice = f"`huggingface_hub.hf_hub_download({name!r}, filename)` returns a path"
    else:
        advice = (
            f"`huggingface_hub.snapshot_download({name!r}, local_dir=folder)` writes a "
            "folder for `load_model`"
        )
    raise ArgumentError(
        f"{method}: expected a path; received {address!r}, a repository of the Hugging "
        f"Face Hub. Download it first: {advice}"
    )


def _members(path: Path) -> dict[str, Any]:
    """Return the members of a JSON object in a file; none for any other file."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_CONFIG:
            return {}
        members = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}
