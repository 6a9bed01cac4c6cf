"""Serialization of layers to configs."""

from typing import Any

from toolkit import serialization
from toolkit.errors import ArgumentError
from toolkit.layers.layer import Layer


def serialize(layer: Any) -> Any:
    """Return a layer as a dict of plain values that `deserialize` reads."""
    return serialization.serialize_keras_object(layer)


def deserialize(config: Any, custom_objects: Any = None) -> Layer:
    """Build an unbuilt layer from the result of `serialize`.

    Raises:
        ArgumentError: if the config describes an object of another kind.
    """
    layer = serialization.deserialize_keras_object(config, custom_objects)
    if not isinstance(layer, Layer):
        raise ArgumentError(
            f"layers.deserialize: expected the config of a layer; received {config!r}"
        )
    return layer
