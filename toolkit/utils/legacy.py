"""Names of `keras.utils.legacy`: configs of objects in the format before Keras 3."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from toolkit.errors import ArgumentError
from toolkit.serialization import (
    custom_object_scope,
    deserialize_keras_object as deserialize,
    serialize_keras_object as serialize,
)
from toolkit.serialization.registration import (
    get_registered_name,
    get_registered_object,
)

__all__ = ["deserialize_keras_object", "serialize_keras_object"]


def serialize_keras_object(instance: Any) -> Any:
    """A class name and a config, or the name of a function; None is None.

    Raises:
        ArgumentError: the object has neither `get_config` nor a name.

    Example:
        >>> from toolkit import regularizers
        >>> from toolkit.utils import legacy
        >>> legacy.serialize_keras_object(regularizers.L1(0.5))
        {'class_name': 'L1', 'config': {'l1': 0.5}}
    """
    if instance is None:
        return None
    if hasattr(instance, "get_config"):
        config = {name: serialize(x) for name, x in instance.get_config().items()}
        name = get_registered_name(type(instance))
        return {"class_name": name, "config": config}
    if hasattr(instance, "__name__"):
        return get_registered_name(instance)
    raise ArgumentError(
        f"serialize_keras_object: {instance!r} doesn't implement the get_config() "
        "method, and has no name"
    )


def deserialize_keras_object(
    identifier: Any,
    module_objects: Mapping[str, Any] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    printable_module_name: str = "object",
) -> Any:
    """The object of a config, or of a name; an instance for the name of a class.

    Args:
        identifier: {"class_name": ..., "config": ...}, a name, a function, or None.
        module_objects: what names may stand for, after custom objects.
        custom_objects: name -> class or function.
        printable_module_name: what the error calls the object.

    Raises:
        ArgumentError: nothing has this name, or `identifier` is something else.
    """
    if identifier is None:
        return None
    if isinstance(identifier, dict):
        if not {"class_name", "config"} <= set(identifier):
            raise ArgumentError(
                "deserialize_keras_object: Improper config format, expected class_name "
                f"and config; received {identifier!r}"
            )
        name, config = identifier["class_name"], identifier["config"]
        cls = _find(name, custom_objects, module_objects, printable_module_name)
        if not hasattr(cls, "from_config"):
            with custom_object_scope(custom_objects):
                return cls(**config)
        with custom_object_scope(custom_objects):
            inner = {key: deserialize(x, custom_objects) for key, x in config.items()}
            return cls.from_config(inner)
    if isinstance(identifier, str):
        found = _find(identifier, custom_objects, module_objects, printable_module_name)
        return found() if inspect.isclass(found) else found
    if inspect.isfunction(identifier):
        return identifier
    raise ArgumentError(
        "deserialize_keras_object: Could not interpret serialized "
        f"{printable_module_name}: {identifier!r}"
    )


def _find(name: str, custom: Any, module: Any, kind: str) -> Any:
    found = get_registered_object(name, custom, module)
    if found is None:
        raise ArgumentError(
            f"deserialize_keras_object: Unknown {kind}: {name!r}; pass it in "
            "custom_objects or register it with register_keras_serializable"
        )
    return found
