"""Conversion of Keras 2 compile configs to the current form."""

from __future__ import annotations

from typing import Any

from toolkit import losses, metrics, optimizers
from toolkit.console.frames import warn
from toolkit.models.saving.keras_2.configs import public_module, upgrade_config
from toolkit.serialization import get_registered_object

_DROPPED = ("is_legacy_optimizer", "jit_compile")
# The value of `epsilon=None` in optimizers of Keras 2.
_EPSILON = 1e-7


def upgrade_compilation(config: dict[str, Any]) -> dict[str, Any]:
    """Convert a `compile_config` or a `training_config` of Keras 2."""
    upgraded = {key: value for key, value in config.items() if value is not None}
    for key in ("optimizer", "optimizer_config"):
        if key in upgraded:
            upgraded[key] = _optimizer(upgraded[key])
    for key in ("loss", "metrics", "weighted_metrics"):
        if key in upgraded:
            upgraded[key] = _map_nested(upgraded[key])
    return upgraded


def _optimizer(config: Any) -> Any:
    if not isinstance(config, dict) or not isinstance(config.get("config"), dict):
        return config
    name = str(config.get("class_name"))
    bare = name.removeprefix("Custom>")
    if get_registered_object(name) is None and hasattr(optimizers, bare):
        name = bare
    inner = upgrade_config(config["config"])
    if isinstance(inner.get("inner_optimizer"), dict):
        inner["inner_optimizer"] = _optimizer(config["config"]["inner_optimizer"])
    if hasattr(optimizers, name):
        inner = _optimizer_arguments(name, inner)
    return {
        "module": public_module(config.get("module")),
        "class_name": name,
        "config": inner,
        "registered_name": None,
    }


def _optimizer_arguments(name: str, inner: dict[str, Any]) -> dict[str, Any]:
    if "lr" in inner:
        inner["learning_rate"] = inner.pop("lr")
    if inner.get("epsilon", 0) is None:
        inner["epsilon"] = _EPSILON
    if inner.get("weight_decay") == 0 and name != "AdamW":
        inner["weight_decay"] = None
    if name == "Nadam" and inner.pop("schedule_decay", inner.get("decay")):
        inner.pop("decay", None)
        warn(
            "load_model: Nadam of Keras 2 uses another decay of its momentum; "
            "training continues with the schedule of Keras 3"
        )
    if name == "LossScaleOptimizer" and not inner.pop("dynamic", True):
        inner["dynamic_growth_steps"] = 2**31 - 1
    decay = inner.pop("decay", 0)
    if decay and isinstance(inner.get("learning_rate"), (int, float)):
        inner["learning_rate"] = _decaying(inner["learning_rate"], decay)
    return {key: value for key, value in inner.items() if key not in _DROPPED}


def _decaying(rate: float, decay: float) -> dict[str, Any]:
    """Return the schedule for `decay`, an argument of optimizers before Keras 2.11."""
    schedule = {"initial_learning_rate": rate, "decay_steps": 1, "decay_rate": decay}
    return {
        "module": "keras.optimizers.schedules",
        "class_name": "InverseTimeDecay",
        "config": schedule,
        "registered_name": None,
    }


def _map_nested(config: Any) -> Any:
    """Convert every loss or metric in a nest of names and configs."""
    if isinstance(config, (list, tuple)):
        return [_map_nested(item) for item in config]
    if not isinstance(config, dict):
        return config
    if "class_name" not in config:
        return {key: _map_nested(value) for key, value in config.items()}
    upgraded = upgrade_config(config)
    inner = upgraded.get("config")
    if not isinstance(inner, dict) or get_registered_object(config["class_name"]):
        return upgraded
    if str(inner.get("reduction")).lower() == "auto":
        inner["reduction"] = "sum_over_batch_size"
    if config["class_name"] in ("LossFunctionWrapper", "MeanMetricWrapper"):
        inner["fn"] = _function(inner.get("fn"))
    else:
        inner.pop("fn", None)
    return upgraded


def _function(name: Any) -> Any:
    """Return the config of the function that a loss or a metric wraps."""
    if not isinstance(name, str):
        return name
    for namespace in (metrics, losses):
        if get_registered_object(name) is None and hasattr(namespace, name):
            name = getattr(namespace, name).__name__
    return {
        "module": "builtins",
        "class_name": "function",
        "config": name,
        "registered_name": name,
    }
