"""Serialization of functional models to Keras 3's format, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toolkit import ops, tree
from toolkit.errors import ArgumentError, ToolkitError
from toolkit.ir import Node
from toolkit.models.functional.keras_2_calls import (
    SYMBOL,
    deferred_models,
    has_keras_2_calls,
    upgrade_call,
)
from toolkit.models.functional.keras_2_functions import CLASSES, function_operation
from toolkit.models.functional.op_config import join_call, op_config, op_of, split_call
from toolkit.ops.symbolic import FunctionOperation, KerasTensor, Operation, is_symbolic
from toolkit.serialization import deserialize_keras_object, serialize_keras_object
from toolkit.serialization.reading import deserialize_argument


def functional_config(model: Any) -> dict[str, Any]:
    """Return the config of a functional model: its layers and their calls."""
    members = model._topology.members
    layers = []
    for operation in model.operations:
        config = _operation_config(operation)
        config["name"] = operation.name
        config["inbound_nodes"] = [
            _node_config(node, members)
            for node in operation._inbound_nodes
            if node in members and node.inputs
        ]
        layers.append(config)

    def reference(symbol: KerasTensor) -> list[Any]:
        name, index, tensor_index = _locate(symbol, members)
        # In Keras the first node of a nested model is its own graph.
        offset = _is_graph(symbol._keras_history.operation)  # type: ignore[union-attr]
        return [name, index + offset, tensor_index]

    return {
        "name": model.name,
        "trainable": model.trainable,
        "layers": layers,
        "input_layers": tree.map_structure(reference, model.input),
        "output_layers": tree.map_structure(reference, model.output),
    }


def _operation_config(operation: Any) -> dict[str, Any]:
    if isinstance(operation, FunctionOperation):
        config = op_config(operation)
        return {**config, "config": serialize_keras_object(config["config"])}
    described: dict[str, Any] = serialize_keras_object(operation)
    return described  # no copy: it would lack the mark of a shared layer


def _is_graph(operation: Any) -> bool:
    return hasattr(operation, "_topology")


def _locate(symbol: KerasTensor, members: set[Node]) -> list[Any]:
    """Return the origin of a symbol; count only calls that belong to the model."""
    operation, node_index, tensor_index = symbol._keras_history  # type: ignore[misc]
    before = operation._inbound_nodes[:node_index]
    return [operation.name, sum(node in members for node in before), tensor_index]


def _node_config(node: Node, members: set[Node]) -> dict[str, Any]:
    def leaf_config(leaf: Any) -> Any:
        if not is_symbolic(leaf):
            return serialize_keras_object(leaf)
        return {
            "class_name": SYMBOL,
            "config": {
                "shape": list(leaf.shape),
                "dtype": leaf.dtype,
                "keras_history": _locate(leaf, members),
            },
        }

    args, kwargs = node.attrs["arguments"]
    if isinstance(node.op, FunctionOperation):
        args, kwargs = split_call(node.op.function, args, kwargs)[0], {}
    if _is_indexing(node.op):
        # JSON converts tuples to lists: convert array-like lists to arrays, to keep
        # them distinct.
        args = tuple(np.array(x) if isinstance(x, list) else x for x in args)
    return {
        "args": list(tree.map_structure(leaf_config, args)),
        "kwargs": tree.map_structure(leaf_config, kwargs),
    }


def _is_indexing(operation: Any) -> bool:
    return getattr(operation, "function", None) is ops.get_item


class _DeferredError(Exception):
    """A call needs the result of a call that has not been replayed yet."""


def functional_from_config(
    cls: type, config: dict[str, Any], custom_objects: Any = None
) -> Any:
    """Build the model from the result of `functional_config`."""
    config = dict(config)
    layers = config.pop("layers")
    layers_by_name = {data["name"]: _layer(data, custom_objects) for data in layers}
    setups = {data["name"]: _setup(data) for data in layers}
    is_old = has_keras_2_calls(layers)
    deferred = deferred_models(layers) if is_old else set()

    def count_from(name: str) -> int:
        """Return the index of a layer's first call: a graph has an additional node."""
        operation = layers_by_name.get(name)
        is_inner = is_old and hasattr(operation, "_functional")  # a Sequential
        return int((_is_graph(operation) or is_inner) and name not in deferred)

    waiting = {
        data["name"]: [
            upgrade_call(call, layers_by_name[data["name"]], data["config"], count_from)
            for call in data["inbound_nodes"]
        ]
        for data in layers
    }
    while any(waiting.values()):
        progress = False
        for name, calls in waiting.items():
            while calls and _replay(layers_by_name, name, calls[0], setups[name]):
                calls.pop(0)
                progress = True
        if not progress:
            unresolved = [name for name, calls in waiting.items() if calls]
            raise ArgumentError(
                "Functional.from_config: the calls of these layers form a loop or "
                f"need missing layers: {unresolved}"
            )

    def symbol(reference: Any) -> KerasTensor:
        name, node_index, tensor_index = reference
        return _find(
            layers_by_name, [name, node_index - count_from(name), tensor_index]
        )

    inputs = _map_places(symbol, config.pop("input_layers"))
    outputs = _map_places(symbol, config.pop("output_layers"))
    return cls(inputs=inputs, outputs=outputs, **config)


def _setup(data: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments of an op; in Keras 2 a call has all of them."""
    return {} if data["class_name"] in CLASSES else data["config"]


def _layer(data: dict[str, Any], custom_objects: Any) -> Operation:
    if data["class_name"] in CLASSES:
        return function_operation(data)
    if str(data.get("module")).startswith(("keras.ops", "keras.src.ops")):
        return op_of(data["class_name"], data["name"])
    layer = deserialize_keras_object(data, custom_objects=custom_objects)
    if not isinstance(layer, Operation):
        raise ArgumentError(
            f"Functional.from_config: expected {data['name']!r} to be a layer; "
            f"received {layer!r}"
        )
    return layer


def _replay(
    layers_by_name: dict[str, Any],
    name: str,
    call: dict[str, Any],
    setup: dict[str, Any],
) -> bool:
    """Replay one recorded call; return False if an input is missing so far."""
    try:
        args = _arguments(layers_by_name, call["args"])
        kwargs = _arguments(layers_by_name, call["kwargs"])
    except _DeferredError:
        return False
    if _is_indexing(layers_by_name[name]):
        args = [tuple(x) if isinstance(x, list) else x for x in args]
    if isinstance(layers_by_name[name], FunctionOperation):
        setup = deserialize_argument({k: setup[k] for k in setup if k != "name"})
        args, kwargs = join_call(layers_by_name[name].function, args, kwargs, setup)
    try:
        layers_by_name[name](*args, **kwargs)
    except ToolkitError as error:
        error.args = (f"Functional.from_config: calling {name!r}: {error}",)
        raise
    return True


def _arguments(layers_by_name: dict[str, Any], data: Any) -> Any:
    """Return arguments from their config, with symbols of the replayed calls."""
    if isinstance(data, dict):
        if data.get("class_name") == SYMBOL:
            return _find(layers_by_name, data["config"]["keras_history"])
        if "class_name" in data and "config" in data:
            return deserialize_keras_object(data)
        return {key: _arguments(layers_by_name, value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(_arguments(layers_by_name, value) for value in data)
    return data


def _find(layers_by_name: dict[str, Any], reference: Any) -> KerasTensor:
    name, node_index, tensor_index = reference
    if name not in layers_by_name:
        raise ArgumentError(f"Functional.from_config: Missing node: {name}")
    nodes = layers_by_name[name]._inbound_nodes
    if node_index >= len(nodes):
        raise _DeferredError
    symbol: KerasTensor = nodes[node_index].outputs[tensor_index]
    return symbol


def _map_places(function: Callable[..., Any], structure: Any) -> Any:
    """Apply `function` to every [name, node, tensor] in a structure of them."""
    if isinstance(structure, dict):
        return {key: _map_places(function, value) for key, value in structure.items()}
    if len(structure) == 3 and isinstance(structure[0], str):
        return function(structure)
    return type(structure)(_map_places(function, value) for value in structure)
