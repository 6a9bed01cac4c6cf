"""Whole models as JSON text, and back."""

from __future__ import annotations

import json
from typing import Any

from toolkit.errors import ArgumentError, ModelFileError
from toolkit.models.saving.keras_2 import (
    is_keras_2,
    upgrade_compilation,
    upgrade_config,
)
from toolkit.reading.budget import load_text_within_budget
from toolkit.reading.file_errors import convert_errors
from toolkit.reading.text import parse_json
from toolkit.serialization import (
    ObjectSharingScope,
    custom_object_scope,
    deserialize_keras_object,
    serialize_keras_object,
)


def config_text(model: Any, **options: Any) -> str:
    """Return a model's config as JSON; `options` are arguments of `json.dumps`."""
    with ObjectSharingScope():
        return json.dumps(serialize_keras_object(model), **options)


def parsed(text: str | bytes, where: str) -> dict[str, Any]:
    """Parse JSON text to a dict."""
    config = parse_json(text, where)
    if not isinstance(config, dict):
        raise ModelFileError(f"{where}: expected the config of a model")
    return config


def model_of(
    text: str | bytes,
    custom_objects: Any,
    compile: bool,
    where: str,
    version: Any = None,
) -> Any:
    """Build the model that JSON text describes.

    Args:
        text: the JSON.
        custom_objects: name -> class or function for names in the config.
        compile: whether to compile the model as in the text.
        where: the file, for messages.
        version: the version of Keras that wrote it, if the text does not contain one.
    """
    config = parsed(text, where)
    with custom_object_scope(custom_objects), convert_errors(where):
        if is_keras_2(config, config.pop("keras_version", version), where):
            config = _upgraded(config)
    if not compile:
        config["compile_config"] = None
    with ObjectSharingScope(), convert_errors(where):
        model = deserialize_keras_object(config, custom_objects)
    if not hasattr(model, "load_weights") and not hasattr(model, "save"):
        raise ModelFileError(f"{where}: expected a model; received {model!r:.200}")
    return model


def _upgraded(config: dict[str, Any]) -> dict[str, Any]:
    """Convert the config of a Keras 2 model to the current form."""
    compiled = config.pop("compile_config", None)
    config = upgrade_config(config)
    if isinstance(compiled, dict):
        config["compile_config"] = upgrade_compilation(compiled)
    return config


def model_from_json(json_string: str, custom_objects: Any = None) -> Any:
    """Build a model with new weights from the result of `Model.to_json`.

    Args:
        json_string: the text.
        custom_objects: name -> class or function for names in the config.

    Returns:
        The model, with new weights.

    Example:
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.Input((3,)), toolkit.layers.Dense(2)])
        >>> toolkit.models.model_from_json(model.to_json()).output_shape
        (None, 2)
    """
    if not isinstance(json_string, (str, bytes)):
        raise ArgumentError(
            f"model_from_json: expected a string; received {json_string!r}"
        )
    with load_text_within_budget("model_from_json", len(json_string)):
        return model_of(json_string, custom_objects, True, "model_from_json")
