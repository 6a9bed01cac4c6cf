"""Detection of the Keras version that wrote a config."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from toolkit.errors import ModelFileError

# Arguments of layers that Keras 2 renamed: only configs of Keras 1 contain them.
_KERAS_1 = frozenset(
    "W_regularizer b_regularizer border_mode dim_ordering inner_activation inner_init "
    "nb_filter output_dim subsample".split()
)


def is_keras_2(config: Any, version: Any, where: str) -> bool:
    """Return whether a config has the form and the semantics of Keras 2.

    Args:
        config: the config of a model.
        version: the version of Keras in the file, or None.
        where: the file, for messages.

    Raises:
        ModelFileError: if Keras 1 wrote the config.
    """
    major = major_version(version)
    if major == 1 or (major is None and _has_keras_1_arguments(config)):
        named = f"Keras {_text(version)}" if major == 1 else "Keras 1"
        raise ModelFileError(
            f"{where}: {named} wrote this model, but only files of Keras 2 and 3 are "
            "supported. Load the model with Keras 2.2, save it again, and load the "
            "new file"
        )
    if major is not None:
        return major == 2
    return any(_is_old_layer(layer) for layer in _layers(config))


def _text(version: Any) -> str:
    return version.decode("utf-8", "replace") if isinstance(version, bytes) else version


def major_version(version: Any) -> int | None:
    """Return the major version of a version of Keras, or None."""
    if not isinstance(version, (str, bytes)):
        return None
    match = re.match(r"\d+", _text(version))
    return int(match[0]) if match else None


def _layers(config: Any) -> Iterator[dict[str, Any]]:
    """Return the configs of a model's layers, including nested models."""
    inner = config.get("config") if isinstance(config, dict) else None
    layers = inner.get("layers") if isinstance(inner, dict) else inner
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict):
            yield layer
            yield from _layers(layer)


def _is_old_layer(layer: dict[str, Any]) -> bool:
    """Return whether only Keras 2 writes this form: Keras 3 includes the module."""
    inner = layer.get("config")
    has_old_shape = isinstance(inner, dict) and "batch_input_shape" in inner
    return has_old_shape or ("class_name" in layer and "module" not in layer)


def _has_keras_1_arguments(config: Any) -> bool:
    return any(
        isinstance(layer.get("config"), dict)
        and "module" not in layer
        and len(_KERAS_1 & layer["config"].keys()) > 1
        for layer in _layers(config)
    )
