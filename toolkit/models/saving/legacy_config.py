"""Configs in `.h5` files, from Keras 1 to 3, brought into today's form."""

from __future__ import annotations

from typing import Any

from toolkit import losses, metrics, optimizers
from toolkit.errors import ModelFileError
from toolkit.reading.clear import clear_errors
from toolkit.serialization import deserialize_keras_object
from toolkit.serialization.registration import custom_object_scope

# Arguments that older layers had and that say nothing today: name -> classes, or all.
_DROPPED: dict[str, tuple[str, ...]] = {
    "groups": ("DepthwiseConv2D", "Conv2DTranspose", "Conv1DTranspose"),
    "implementation": (),
    "input_dtype": (),
    "time_major": (),
    "ragged": (),
    "sparse": (),
    "use_ema": (),
}
_OPTIMIZER_NAMES = {"lr": "learning_rate"}
_OPTIMIZER_DROPPED = ("decay", "is_legacy_optimizer", "jit_compile")
_COMPILED_BY_SHAPE = ("accuracy", "acc", "crossentropy", "ce")


# --- models ---------------------------------------------------------------------------


def model_from_legacy(config: Any, custom_objects: Any = None) -> Any:
    """The model of a `model_config`."""
    if not isinstance(config, dict) or "class_name" not in config:
        raise ModelFileError("model_config: expected a dict with a 'class_name'")
    with custom_object_scope(custom_objects), clear_errors("model_config"):
        model = deserialize_keras_object(_modern(config), custom_objects)
    if not hasattr(model, "load_weights"):
        raise ModelFileError(f"model_config: expected a model; found {model!r}")
    return model


def _modern(config: Any) -> Any:
    """A config in any form as one of today's, without arguments that are gone."""
    if isinstance(config, list):
        return [_modern(each) for each in config]
    if not isinstance(config, dict):
        return config
    if not isinstance(config.get("config"), dict) or "class_name" not in config:
        if config.get("class_name") == "Sequential" and "config" in config:
            # Keras 1: the config of a Sequential is the list of its layers.
            inner = {"name": "sequential", "layers": config["config"]}
            return _modern({**config, "config": inner})
        return {key: _modern(value) for key, value in config.items()}
    name = config["class_name"]
    if name == "Model":
        name = "Functional" if "layers" in config["config"] else name
    inner = dict(config["config"])
    if name == "Sequential" and "layers" in inner:
        inner["layers"] = _stacked(inner["layers"])
    inner = _modern_arguments(name, {key: _modern(x) for key, x in inner.items()})
    modern = {**config, "class_name": name, "config": inner}
    if "inbound_nodes" in config and name in ("Functional", "Sequential"):
        modern.setdefault("name", inner.get("name"))
    return modern


def _stacked(layers: Any) -> Any:
    """The layers of a Sequential, an input before them if the first has its shape."""
    first = layers[0] if isinstance(layers, list) and layers else {}
    inner = first.get("config") if isinstance(first, dict) else None
    shape = inner.get("batch_input_shape") if isinstance(inner, dict) else None
    if shape is None or first.get("class_name") == "InputLayer":
        return layers
    return [{"class_name": "InputLayer", "config": {"batch_shape": shape}}, *layers]


def _modern_arguments(name: str, inner: dict[str, Any]) -> dict[str, Any]:
    shape = inner.pop("batch_input_shape", None)
    if shape is not None and name == "InputLayer":
        inner["batch_shape"] = shape
    axis = inner.get("axis")
    if isinstance(axis, list) and len(axis) == 1:
        inner["axis"] = int(axis[0])
    for key, classes in _DROPPED.items():
        if key in inner and (not classes or name in classes):
            if not (name == "InputLayer" and inner[key]):
                del inner[key]
    return inner


# --- compiling ------------------------------------------------------------------------


def training_config(model: Any) -> dict[str, Any]:
    """How a model was compiled, as `.h5` files tell it."""
    config = dict(model.get_compile_config())
    optimizer = config.pop("optimizer")
    config["optimizer_config"] = {
        "class_name": optimizer["registered_name"] or optimizer["class_name"],
        "config": optimizer["config"],
    }
    return config


def compile_arguments(training: dict[str, Any], custom_objects: Any) -> dict[str, Any]:
    """The arguments of `compile` from a `training_config`."""
    with custom_object_scope(custom_objects), clear_errors("training_config"):
        return {
            "optimizer": _optimizer(training.get("optimizer_config")),
            "loss": _each(losses.deserialize, training.get("loss")),
            "metrics": _each(_metric, training.get("metrics")),
            "weighted_metrics": _each(_metric, training.get("weighted_metrics")),
            "loss_weights": training.get("loss_weights"),
        }


def _optimizer(config: Any) -> Any:
    if not isinstance(config, dict) or not isinstance(config.get("config"), dict):
        raise ModelFileError("training_config: expected an 'optimizer_config'")
    inner = {_OPTIMIZER_NAMES.get(k, k): v for k, v in config["config"].items()}
    for key in _OPTIMIZER_DROPPED:
        inner.pop(key, None)
    if inner.get("weight_decay") == 0:
        inner["weight_decay"] = None
    return optimizers.deserialize({**config, "config": _modern(inner)})


def _each(deserialize: Any, config: Any) -> Any:
    """Apply to every config or name in a nest of them."""
    if isinstance(config, (list, tuple)):
        return [_each(deserialize, each) for each in config]
    if isinstance(config, dict) and "class_name" not in config:
        return {key: _each(deserialize, value) for key, value in config.items()}
    return None if config is None else deserialize(config)


def _metric(config: Any) -> Any:
    return config if config in _COMPILED_BY_SHAPE else metrics.deserialize(config)
