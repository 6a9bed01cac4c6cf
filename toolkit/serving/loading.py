"""Conversion of a model or file to a Servable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit import saving
from toolkit.errors import ArgumentError, MissingFileError
from toolkit.export.native.loading import NativeModel, load_native
from toolkit.models import Model
from toolkit.serving.batching import Batching
from toolkit.serving.native import NativeServable
from toolkit.serving.servable import ModelServable, Servable

NATIVE_SUFFIXES = (".so", ".dylib", ".dll")


def open_servable(
    source: Any, batching: Batching, custom_objects: Mapping[str, Any] | None = None
) -> Servable:
    """Return the servable of a model.

    Args:
        source: a model, a Servable, or the path of a file: `.keras`, a saved model
            folder, `.h5`, `.onnx` or a native library. A native library is executable
            code.
        batching: the batching options.
        custom_objects: name -> class or function that files can refer to.

    Raises:
        ArgumentError: the source is none of these, or cannot be served.
        MissingFileError: the file does not exist.
    """
    if isinstance(source, Servable):
        return source
    if isinstance(source, (str, os.PathLike)):
        source = _load_file(Path(source), custom_objects)
    if isinstance(source, NativeModel):
        return NativeServable(source, batching.size, batching.one_size)
    if not isinstance(source, Model):
        raise ArgumentError(
            "serve: expected a path, a model or a Servable; received "
            f"{type(source).__name__}"
        )
    return ModelServable(source, batching.size, batching.one_size)


def _load_file(path: Path, custom_objects: Mapping[str, Any] | None) -> Any:
    if not path.exists():
        raise MissingFileError(f"serve: there is no file {str(path)!r}")
    if path.suffix == ".onnx":
        return saving.load_onnx(path)
    if path.suffix in NATIVE_SUFFIXES:  # with its folder, to load exactly this file
        return load_native(path.absolute())
    return saving.load_model(path, custom_objects, compile=False)
