"""Names of `keras.utils.legacy`: configs of objects in the format before Keras 3."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from toolkit.errors import ArgumentError
from toolkit.serialization import custom_object_scope, get_custom_objects
from toolkit.serialization.registration import (
    get_registered_name,
    get_registered_object,
)

__all__ = ["deserialize_keras_object", "serialize_keras_object"]

# Keras marks the config of a nested object with this key. Other dicts are plain data.
_NESTED_KEY = "__passive_serialization__"


def serialize_keras_object(instance: Any) -> Any:
    """Return a class name and a config, or the name of a function; None for None.

    Objects and functions among the values of the config are serialized too. All other
    values, including lists, stay the same objects as in `get_config()`.

    Args:
        instance: an object with `get_config`, a function, a class or None.

    Returns:
        {"class_name": ..., "config": ...}, a name, or None.

    Raises:
        ArgumentError: the object has neither `get_config` nor a name.

    Example:
        >>> from toolkit import regularizers
        >>> from toolkit.utils import legacy
        >>> legacy.serialize_keras_object(regularizers.L1(0.5))
        {'class_name': 'L1', 'config': {'l1': 0.5}}
    """
    instance = inspect.unwrap(instance)
    if not (instance is None or _is_serializable(instance)):
        raise ArgumentError(
            f"serialize_keras_object: {instance!r} doesn't implement the get_config() "
            "method, and has no name"
        )
    if hasattr(instance, "get_config"):
        config = {k: _serialize_value(x) for k, x in instance.get_config().items()}
        name = get_registered_name(type(instance))
        return {"class_name": name, "config": config}
    return None if instance is None else get_registered_name(instance)


def _is_serializable(value: object) -> bool:
    return hasattr(value, "get_config") or hasattr(value, "__name__")


def _serialize_value(value: Any) -> Any:
    """Return a value of a config; an object becomes a marked config."""
    if not _is_serializable(value):
        return value
    serialized = serialize_keras_object(value)
    return (
        {**serialized, _NESTED_KEY: True}
        if isinstance(serialized, dict)
        else serialized
    )


def deserialize_keras_object(
    identifier: Any,
    module_objects: Mapping[str, Any] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    printable_module_name: str = "object",
) -> Any:
    """Return the object of a config or of a name; for the name of a class, an instance.

    `from_config` receives plain dicts and lists as they are in the config. It receives
    objects for the configs that `serialize_keras_object` has marked as nested objects,
    and functions for names of functions.

    Args:
        identifier: {"class_name": ..., "config": ...}, a name, a function, or None.
        module_objects: name -> object, searched after custom objects.
        custom_objects: name -> class or function.
        printable_module_name: the kind of the object in errors.

    Returns:
        An object or a function; None for None.

    Raises:
        ArgumentError: no object has this name, or `identifier` is something else.

    Example:
        >>> from toolkit import regularizers
        >>> from toolkit.utils import legacy
        >>> config = {"class_name": "L1", "config": {"l1": 0.5}}
        >>> penalty = legacy.deserialize_keras_object(config, vars(regularizers))
        >>> penalty.get_config()
        {'l1': 0.5}
    """
    if identifier is None:
        return None
    if isinstance(identifier, dict):
        if not {"class_name", "config"} <= set(identifier):
            raise ArgumentError(
                "deserialize_keras_object: Improper config format, expected class_name "
                f"and config; received {identifier!r}"
            )
        scope = custom_objects, module_objects, printable_module_name
        cls = _find_object(identifier["class_name"], *scope)
        config = _deserialize_values(identifier["config"], *scope)
        return _create_object(cls, config, custom_objects)
    if isinstance(identifier, str):
        match = _find_object(
            identifier, custom_objects, module_objects, printable_module_name
        )
        return match() if inspect.isclass(match) else match
    if inspect.isfunction(identifier):
        return identifier
    raise ArgumentError(
        "deserialize_keras_object: Could not interpret serialized "
        f"{printable_module_name}: {identifier!r}"
    )


def _deserialize_values(config: Any, custom: Any, module: Any, kind: str) -> Any:
    """Return a config with objects for marked configs and functions for their names."""
    if not isinstance(config, dict):  # Sequential models before Keras 2.2 have a list
        return config

    def deserialize(key: str, value: Any) -> Any:
        if isinstance(value, dict) and _NESTED_KEY in value:
            return deserialize_keras_object(value, module, custom, kind)
        if isinstance(value, str) and key != "name":
            function = get_registered_object(value, custom, module)
            return function if inspect.isfunction(function) else value
        return value

    return {key: deserialize(key, value) for key, value in config.items()}


def _create_object(
    cls: Any, config: Any, custom_objects: Mapping[str, Any] | None
) -> Any:
    """Call `from_config`, or a function that returns an object, in the right scope."""
    with custom_object_scope(custom_objects):
        if not hasattr(cls, "from_config"):
            return cls(**config)
        if "custom_objects" in inspect.signature(cls.from_config).parameters:
            custom = {**get_custom_objects(), **(custom_objects or {})}
            return cls.from_config(config, custom_objects=custom)
        return cls.from_config(config)


def _find_object(name: str, custom: Any, module: Any, kind: str) -> Any:
    match = get_registered_object(name, custom, module)
    if match is None:
        raise ArgumentError(
            f"deserialize_keras_object: Unknown {kind}: {name!r}; pass it in "
            "custom_objects or register it with register_keras_serializable"
        )
    return match
