"""Paths of unsupported formats, and advice for each."""

from __future__ import annotations

import os
import re
from pathlib import Path

from toolkit.errors import ArgumentError
from toolkit.models.saving.other_folders import (
    refuse_hub_address,
    refuse_hugging_face,
    refuse_tensorflow_js,
)

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_ADVICE = {
    ".onnx": "is an ONNX model; load it by `toolkit.saving.load_onnx`",
    ".pb": "is a TensorFlow graph; save the model as `.keras` in TensorFlow",
    ".tflite": (
        "is a TensorFlow Lite model, which is unsupported; save the original model "
        "as `.keras`"
    ),
    **dict.fromkeys(
        (".mlpackage", ".mlmodel", ".mlmodelc"),
        "is a Core ML model, which is unsupported; save the original model as `.keras`",
    ),
    ".gguf": (
        "is a llama.cpp model, which is unsupported; save the original weights as "
        "`.safetensors`, and load them by `load_weights`"
    ),
    ".xml": (
        "looks like an OpenVINO model, which is unsupported; save the original model "
        "as `.keras`"
    ),
    ".msgpack": (
        "looks like Flax weights, which are unsupported; save them as `.safetensors`"
    ),
    ".npz": (
        "contains NumPy arrays; read them by `numpy.load`, and pass them to "
        "`set_weights`"
    ),
    **dict.fromkeys(
        (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib"),
        "looks like a pickle, which can run code and is unsupported; save the "
        "weights as `.safetensors`",
    ),
}
_OF_WEIGHTS = (
    ".weights.h5",
    ".weights.json",
    ".safetensors",
    ".safetensors.index.json",
)


def refuse_other_formats(method: str, filepath: str | os.PathLike[str]) -> None:
    """Raise with advice for an address, a folder of another library, ONNX and others.

    Args:
        method: "load_model" or "load_weights", for the message.
        filepath: the user's argument.
    """
    text, path = os.fspath(filepath), Path(filepath)
    if isinstance(text, str) and _ADDRESS.match(text):
        refuse_hub_address(method, text)
        raise ArgumentError(
            f"{method}: expected a path; received the address {text!r}. Download the "
            "file first: `toolkit.utils.get_file(origin=...)` returns its path"
        )
    refuse_hugging_face(method, path)
    refuse_tensorflow_js(method, path)
    if (path / "saved_model.pb").is_file() or path.name == "saved_model.pb":
        raise ArgumentError(
            f"{method}: {str(path)!r} is a TensorFlow SavedModel, which is "
            "unsupported; load it in TensorFlow and save it as `.keras`"
        )
    if path.with_name(f"{path.name}.index").is_file() or path.suffix == ".index":
        raise ArgumentError(
            f"{method}: {str(path)!r} is a TensorFlow checkpoint, which is "
            "unsupported; load it in TensorFlow and save the weights as `.weights.h5`"
        )
    advice = _ADVICE.get(path.suffix.lower())
    if method == "load_model" and path.name.endswith(_OF_WEIGHTS):
        advice = "contains only weights; create the model, then call `load_weights`"
    if method == "load_model" and advice is None and path.suffix == ".json":
        advice = (
            "contains only a config; pass its text to `toolkit.models.model_from_json`"
        )
    if advice is not None:
        raise ArgumentError(f"{method}: {str(path)!r} {advice}")
