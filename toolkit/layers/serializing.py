"""Serialization of layers to configs."""

from typing import Any

from toolkit import serialization
from toolkit.errors import ArgumentError
from toolkit.layers.layer import Layer


def serialize(layer: Any) -> Any:
    """Return a layer as a dict of plain values that `deserialize` reads.

    Args:
        layer: a layer.

    Returns:
        A dict of the class and the config of the layer, without its weights.

    Example:
        >>> import toolkit
        >>> config = toolkit.layers.serialize(toolkit.layers.Dense(3))
        >>> config["class_name"], config["config"]["units"]
        ('Dense', 3)
    """
    return serialization.serialize_keras_object(layer)


def deserialize(config: Any, custom_objects: Any = None) -> Layer:
    """Build an unbuilt layer from the result of `serialize`.

    Args:
        config: the result of `serialize`.
        custom_objects: a dict from names to classes or functions that the config
            contains.

    Returns:
        The layer, without weights.

    Raises:
        ArgumentError: if the config describes an object of another kind.

    Example:
        >>> import toolkit
        >>> config = toolkit.layers.serialize(toolkit.layers.Dense(3))
        >>> toolkit.layers.deserialize(config).units
        3
    """
    layer = serialization.deserialize_keras_object(config, custom_objects)
    if not isinstance(layer, Layer):
        raise ArgumentError(
            f"layers.deserialize: expected the config of a layer; received {config!r}"
        )
    return layer
