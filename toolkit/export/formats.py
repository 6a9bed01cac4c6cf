"""Export formats by name and by file ending."""

from __future__ import annotations

import inspect
import os
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from toolkit.console.messages import print_message
from toolkit.errors import (
    ArgumentError,
    UnsupportedError,
    suggest_choice,
    unknown_arguments,
)
from toolkit.export.native.names import KINDS

if TYPE_CHECKING:
    from toolkit.models.model import Model

# Name -> the module whose `export(model, path, input_signature, **options)` writes the
# format; imported on demand.
EXPORTERS: dict[str, str] = {
    "native": "toolkit.export.native.library",
    "onnx": "toolkit.export.onnx.exporter",
    "openvino": "toolkit.export.onnx.openvino",
    "triton": "toolkit.export.triton",
}

# Name -> the reason why the format is unsupported, and an alternative.
UNSUPPORTED_FORMATS = {
    "tf_saved_model": "a SavedModel contains TensorFlow graphs",
    "litert": "the LiteRT converter needs TensorFlow graphs",
    "torch": "a .pt2 file contains a torch graph",
}

# File ending -> format.
ENDINGS = {
    ".onnx": "onnx",
    ".xml": "openvino",
    ".tflite": "litert",
    ".pt2": "torch",
    **dict.fromkeys(KINDS, "native"),
    "": "tf_saved_model",
}


def export_model(
    model: Model,
    filepath: str | os.PathLike[str],
    format: str | None = None,
    verbose: bool | None = None,
    input_signature: Any = None,
    **options: Any,
) -> None:
    """Write a model for other programs; see `Model.export`."""
    label = f"{model.name}.export"
    name = format or format_of(label, filepath)
    if name in UNSUPPORTED_FORMATS:
        raise UnsupportedError(
            f"{label}: expected a format of {sorted(EXPORTERS)}; received {name!r}: "
            f"{UNSUPPORTED_FORMATS[name]}, which are unsupported; use `save` to "
            "write a .keras file, which Keras loads and exports"
        )
    if name not in EXPORTERS:
        raise ArgumentError(
            f"{label}: expected a format of {sorted(EXPORTERS)}; received {name!r}"
            + suggest_choice(name, EXPORTERS)
        )
    export = import_module(EXPORTERS[name]).export
    option_names = list(inspect.signature(export).parameters)[3:]
    if not options.keys() <= set(option_names):
        raise unknown_arguments(
            f"{label} as {name}", options.keys() - set(option_names), option_names
        )
    export(model, os.fspath(filepath), input_signature, **options)
    if verbose is not False:
        print_message(f"Saved artifact at '{os.fspath(filepath)}'.")


def format_of(label: str, filepath: str | os.PathLike[str]) -> str:
    """Return the format for a path's ending, or raise an error."""
    ending = PurePath(filepath).suffix.lower()
    if ending not in ENDINGS:
        raise ArgumentError(
            f"{label}: expected a path that ends in one of {sorted(ENDINGS)}, or a "
            f"format; received {os.fspath(filepath)!r}"
        )
    return ENDINGS[ending]
