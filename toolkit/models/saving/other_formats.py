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
    ".onnx": "is an ONNX model: `toolkit.saving.load_onnx` reads it",
    ".pb": "is a graph of TensorFlow: save the model as `.keras` there",
    ".tflite": "is a TensorFlow Lite model, which is not read; save it as `.keras`",
    **dict.fromkeys(
        (".mlpackage", ".mlmodel", ".mlmodelc"),
        "is a Core ML model, which is not read; save the model that it was made from "
        "as `.keras`",
    ),
    ".gguf": "is a model of llama.cpp, which is not read; save the weights that it was "
    "made from as `.safetensors`, and load these by `load_weights`",
    ".xml": "looks like an OpenVINO model, which is not read; save the model that it "
    "was made from as `.keras`",
    ".msgpack": "looks like weights of Flax, which are not read; save them as "
    "`.safetensors`",
    ".npz": "holds arrays of NumPy: read them by `numpy.load`, and pass them to "
    "`set_weights`",
    **dict.fromkeys(
        (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib"),
        "looks like a pickle, which can run code and is not read; save the weights as "
        "`.safetensors`",
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
            f"{method}: expected a path; received the address {text!r}. Fetch the file "
            "first: `toolkit.utils.get_file(origin=...)` returns its path"
        )
    refuse_hugging_face(method, path)
    refuse_tensorflow_js(method, path)
    if (path / "saved_model.pb").is_file() or path.name == "saved_model.pb":
        raise ArgumentError(
            f"{method}: {str(path)!r} is a SavedModel of TensorFlow, which is not "
            "read; load it there and save it as `.keras`"
        )
    if path.with_name(f"{path.name}.index").is_file() or path.suffix == ".index":
        raise ArgumentError(
            f"{method}: {str(path)!r} is a checkpoint of TensorFlow, which is not "
            "read; load it there and save the weights as `.weights.h5`"
        )
    advice = _ADVICE.get(path.suffix.lower())
    if method == "load_model" and path.name.endswith(_OF_WEIGHTS):
        advice = "holds weights alone: make the model, then call `load_weights`"
    if method == "load_model" and advice is None and path.suffix == ".json":
        advice = "holds a config alone: `toolkit.models.model_from_json` reads its text"
    if advice is not None:
        raise ArgumentError(f"{method}: {str(path)!r} {advice}")
