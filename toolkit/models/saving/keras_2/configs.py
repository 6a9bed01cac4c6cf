"""Conversion of Keras 2 configs of models and layers to the current form."""

from __future__ import annotations

from typing import Any

from toolkit import layers
from toolkit.errors import ModelFileError
from toolkit.layers.config import has_argument
from toolkit.models.saving.keras_2.layer_rules import RULES
from toolkit.serialization import get_registered_object

# Obsolete arguments of Keras 2: name -> the values that can be dropped, or None for
# every value.
_GONE: dict[str, tuple[Any, ...] | None] = {
    "batch_input_shape": None,
    "enable_caching_device": None,
    "fused": None,
    "groups": (1,),
    "implementation": None,
    "input_dtype": None,
    "key_shape": None,
    "noise_shape": (None,),
    "query_shape": None,
    "ragged": (False, None),
    "renorm": (False,),
    "renorm_clipping": None,
    "renorm_momentum": None,
    "rng_type": None,
    "softmax_robust_masking": None,
    "sparse": (False, None),
    "time_major": (False,),
    "value_shape": None,
    "virtual_batch_size": (None,),
}
# Renamed classes.
_CLASSES = {
    "CustomScaleLayer": "CustomScaleLayer",
    "Custom>CustomScaleLayer": "CustomScaleLayer",
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "UnifiedGRU": "GRU",
    "UnifiedLSTM": "LSTM",
}
# Namespaces of Keras for the lookup of a class by name.
_NAMESPACES = (
    *("activations", "constraints", "initializers", "layers", "losses", "metrics"),
    *("models", "optimizers", "regularizers"),
)
_ROOTS = ("keras.", "tf_keras.", "tensorflow.python.keras.", "tensorflow.keras.")


def upgrade_config(config: Any) -> Any:
    """Convert a config of Keras 2, or a nest of configs.

    Raises:
        ModelFileError: if an argument requests a feature that Keras 3 has removed.
    """
    if isinstance(config, (list, tuple)):
        return type(config)([upgrade_config(item) for item in config])
    if not isinstance(config, dict):
        return config
    if config.keys() == {"type", "value"}:  # an array in the JSON of Keras 2
        return config["value"]
    name = config.get("class_name")
    if name in ("__tuple__", "TensorShape") and "items" in config:
        items = [upgrade_config(item) for item in config["items"]]
        return tuple(items) if name == "__tuple__" else items
    if not isinstance(name, str) or "config" not in config:
        return {key: upgrade_config(value) for key, value in config.items()}
    if isinstance(config["config"], list) and name == "Sequential":
        # Up to Keras 2.2 the config of a Sequential is the list of its layers.
        inner = {"name": "sequential", "layers": config["config"]}
        config = {**config, "config": inner}
    return _upgrade_object(name, config)


def _upgrade_object(name: str, config: dict[str, Any]) -> dict[str, Any]:
    inner = config["config"]
    upgraded = {**config, "module": public_module(config.get("module"))}
    if not isinstance(inner, dict):
        return upgraded
    if name in ("Policy", "PolicyV1"):
        policy = {"name": str(inner.get("name")).removeprefix("_")}
        return {"module": "keras", "class_name": "DTypePolicy", "config": policy}
    if get_registered_object(name) is None:
        name = _CLASSES.get(name, name)
        if name == _CLASSES.get(config["class_name"]):
            upgraded["registered_name"] = None
    if name == "Model" and "layers" in inner:
        name = "Functional"
    if name == "Sequential" and "layers" in inner:
        inner = {**inner, "layers": _stacked(inner["layers"])}
    inner = {key: upgrade_config(value) for key, value in inner.items()}
    for key in ("input_layers", "output_layers"):
        if name == "Functional" and key in inner:
            inner[key] = _renamed(inner[key])
    inner = _upgrade_arguments(name, inner)
    if isinstance(inner.get("name"), str):
        inner["name"] = _without_slash(inner["name"])
    upgraded |= {"class_name": name, "config": inner}
    if name in RULES and get_registered_object(name) is None:
        name, inner = RULES[name](dict(inner))
        upgraded |= {"class_name": name, "config": inner}
    if hasattr(layers, name):
        upgraded.pop("build_config", None)  # its model builds it
    if "inbound_nodes" in config:
        upgraded["name"] = _without_slash(str(config.get("name", inner.get("name"))))
        upgraded["inbound_nodes"] = _renamed(upgrade_config(config["inbound_nodes"]))
    return upgraded


def _without_slash(name: str) -> str:
    """Return a layer name that Keras 3 accepts: `conv1/relu` becomes `conv1_relu`."""
    return name.replace("/", "_")


def _renamed(calls: Any) -> Any:
    """Replace old names in references to tensors, `[layer, node, index]`."""
    if isinstance(calls, dict):
        return {key: _renamed(value) for key, value in calls.items()}
    if not isinstance(calls, (list, tuple)):
        return calls
    has_location = (
        len(calls) > 2 and isinstance(calls[0], str) and type(calls[1]) is int
    )
    first = [_without_slash(calls[0])] if has_location else []
    return [*first, *map(_renamed, calls[len(first) :])]


def public_module(module: Any) -> Any:
    """Return the public module for a private module of Keras 2."""
    if not isinstance(module, str) or not f"{module}.".startswith(_ROOTS):
        return module
    root = next(root for root in _ROOTS if f"{module}.".startswith(root))
    first = f"{module}.".removeprefix(root).removeprefix("src.").split(".")[0]
    return f"keras.{first}" if first in _NAMESPACES else "keras"


def _stacked(stack: Any) -> Any:
    """Return the layers of a Sequential; add an input if only the first has a shape."""
    first = stack[0] if isinstance(stack, list) and stack else {}
    inner = first.get("config") if isinstance(first, dict) else None
    inner = inner if isinstance(inner, dict) else {}
    shape = inner.get("batch_input_shape")
    if shape is None or first.get("class_name") == "InputLayer":
        return stack
    options = {"batch_input_shape": shape}
    if first.get("class_name") == "Embedding":
        options["dtype"] = "int32"
    elif isinstance(inner.get("dtype"), str):
        options["dtype"] = inner["dtype"]
    return [{"class_name": "InputLayer", "config": options}, *stack]


def _upgrade_arguments(name: str, inner: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an object, without obsolete ones."""
    cls = None if get_registered_object(name) else getattr(layers, name, None)
    shape = inner.get("batch_input_shape")
    remaining = {}
    for key, value in inner.items():
        if key.endswith("activation"):
            value = _activation(value)
        elif key.endswith("_initializer"):
            value = _initializer(value)
        elif key == "dtype" and value in ("infer", "_infer"):
            continue
        is_removed = key == "batch_input_shape" or (
            cls is not None and key in _GONE and not has_argument(cls, key)
        )
        neutral = _GONE.get(key)
        if not is_removed:
            remaining[key] = value
        elif neutral is not None and value not in neutral:
            raise ModelFileError(
                f"{name} {inner.get('name')!r}: the argument {key}={value!r} of "
                "Keras 2 is not supported"
            )
    if name == "InputLayer" and shape is not None:
        remaining["batch_shape"] = shape
    if remaining.get("name", "") is None:  # schedules have it
        del remaining["name"]
    return remaining


def _activation(value: Any) -> Any:
    """Return the current activation with the formula of a Keras 2 activation."""
    is_function = isinstance(value, dict) and value.get("class_name") == "function"
    named = value.get("config") if is_function else value
    if named == "hard_sigmoid" and get_registered_object(named) is None:
        return "legacy_hard_sigmoid"
    if named == "softmax_v2":
        return "softmax"
    return value


def _initializer(value: Any) -> Any:
    """Return an initializer without the dtype of Keras 2 configs."""
    inner = value.get("config") if isinstance(value, dict) else None
    if not isinstance(inner, dict) or get_registered_object(str(value["class_name"])):
        return value
    inner = {key: item for key, item in inner.items() if key != "dtype"}
    if inner.get("distribution") == "normal":
        inner["distribution"] = "truncated_normal"
    return {**value, "config": inner}
