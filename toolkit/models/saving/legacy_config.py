"""Configs in `.h5` files: a model and its compile arguments."""

from __future__ import annotations

from typing import Any

from toolkit import losses, metrics, optimizers
from toolkit.errors import ModelFileError
from toolkit.models.saving.keras_2 import upgrade_compilation, upgrade_config
from toolkit.reading.file_errors import convert_errors
from toolkit.serialization import ObjectSharingScope, deserialize_keras_object
from toolkit.serialization.registration import custom_object_scope

_COMPILED_BY_SHAPE = ("accuracy", "acc", "crossentropy", "ce")


# --- models ---------------------------------------------------------------------------


def model_from_legacy(config: Any, custom_objects: Any, is_old: bool) -> Any:
    """Build the model of a `model_config`; `is_old`: whether Keras 2 wrote it."""
    if not isinstance(config, dict) or "class_name" not in config:
        raise ModelFileError("model_config: expected a dict with a 'class_name'")
    with custom_object_scope(custom_objects), convert_errors("model_config"):
        if is_old:
            config = upgrade_config(config)
        with ObjectSharingScope():
            model = deserialize_keras_object(config, custom_objects)
    if not hasattr(model, "load_weights"):
        raise ModelFileError(f"model_config: expected a model; received {model!r}")
    return model


# --- compilation ----------------------------------------------------------------------


def training_config(model: Any) -> dict[str, Any]:
    """Return the compile config of a model in the form of `.h5` files."""
    config = dict(model.get_compile_config())
    optimizer = config.pop("optimizer")
    config["optimizer_config"] = {
        "class_name": optimizer["registered_name"] or optimizer["class_name"],
        "config": optimizer["config"],
    }
    return config


def compile_arguments(
    training: dict[str, Any], custom_objects: Any, is_old: bool
) -> dict[str, Any]:
    """Return the arguments of `compile` for a `training_config`."""
    with custom_object_scope(custom_objects), convert_errors("training_config"):
        if is_old:
            training = upgrade_compilation(training)
        return {
            "optimizer": _optimizer(training.get("optimizer_config")),
            "loss": _map_nested(losses.deserialize, training.get("loss")),
            "metrics": _map_nested(_metric, training.get("metrics")),
            "weighted_metrics": _map_nested(_metric, training.get("weighted_metrics")),
            "loss_weights": training.get("loss_weights"),
        }


def _optimizer(config: Any) -> Any:
    if not isinstance(config, dict) or not isinstance(config.get("config"), dict):
        raise ModelFileError("training_config: expected an 'optimizer_config'")
    return optimizers.deserialize(config)


def _map_nested(deserialize: Any, config: Any) -> Any:
    """Deserialize every config or name in a nest of them."""
    if isinstance(config, (list, tuple)):
        return [_map_nested(deserialize, item) for item in config]
    if isinstance(config, dict) and "class_name" not in config:
        return {key: _map_nested(deserialize, value) for key, value in config.items()}
    return None if config is None else deserialize(config)


def _metric(config: Any) -> Any:
    return config if config in _COMPILED_BY_SHAPE else metrics.deserialize(config)
