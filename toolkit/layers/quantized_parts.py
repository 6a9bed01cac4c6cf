"""Quantized sublayers of layers whose config does not describe them.

A user's layer creates its sublayers itself. Its config does not contain their later
quantization, so the description of the layer does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolkit import dtype_policies
from toolkit.layers.tracking import StateOwner
from toolkit.serialization import deserialize_keras_object, serialize_keras_object

Path = tuple[str | int, ...]

_MACHINERY = frozenset(("_arguments", "_arrivals", "_losses", "_owned", "_walks"))


def describe_quantized_parts(layer: Any) -> list[dict[str, Any]] | None:
    """Return a description of the quantized sublayers of a layer, or None."""
    inner = layer._flatten_layers(include_self=False)
    if not any(_mode(sublayer) for sublayer in inner):
        return None
    visited = {id(layer)}
    return [
        {
            "path": list(path),
            "dtype": dtype_policies.serialize(sublayer.dtype_policy),
            "quantization_config": serialize_keras_object(
                getattr(sublayer, "quantization_config", None)
            ),
        }
        for path, sublayer in _iterate_parts(layer, (), visited)
        if _mode(sublayer)
    ]


def quantize_parts(layer: Any, described: list[dict[str, Any]]) -> None:
    """Quantize the sublayers of a layer as described.

    Sublayers that do not exist yet are skipped.
    """
    for entry in described:
        sublayer = _at(layer, entry["path"])
        policy = dtype_policies.deserialize(entry["dtype"])
        if sublayer is None or _mode(sublayer) == policy.quantization_mode:
            continue
        config = entry.get("quantization_config")
        if config is not None:
            sublayer.quantization_config = deserialize_keras_object(config)
        sublayer.dtype_policy = policy


def _mode(sublayer: Any) -> str | None:
    """Return the quantization mode of a layer, or None."""
    return getattr(sublayer, "quantization_mode", None)


def _iterate_parts(
    value: Any, path: Path, visited: set[int]
) -> Iterator[tuple[Path, Any]]:
    """Return every sublayer of a layer or a container, with its path."""
    for key, child in _children(value):
        is_layer = isinstance(child, StateOwner)
        if not (is_layer or isinstance(child, (list, tuple, dict))):
            continue
        if id(child) in visited:
            continue
        visited.add(id(child))
        if is_layer:
            yield (*path, key), child
        yield from _iterate_parts(child, (*path, key), visited)


def _children(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, dict):
        return [item for item in value.items() if isinstance(item[0], (str, int))]
    return [item for item in vars(value).items() if item[0] not in _MACHINERY]


def _at(layer: Any, path: list[str | int]) -> Any:
    """Return the layer at a path, or None."""
    current = layer
    for key in path:
        current = dict(_children(current)).get(key)
        if current is None or not isinstance(current, (StateOwner, list, tuple, dict)):
            return None
    return current if hasattr(current, "dtype_policy") else None
