"""Conversion of calls in functional models of Keras 2 to the current form.

In Keras 2 a tensor is `[layer, node, index, arguments]`. The first argument of a call
is a nest of such tensors, and each of them contains all other arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from toolkit.layers import RNN, Bidirectional
from toolkit.models.functional.keras_2_functions import upgrade_function_call
from toolkit.serialization import deserialize_keras_object

SYMBOL = "__keras_tensor__"
_CONSTANT = "_CONSTANT_VALUE"


def has_keras_2_calls(layers: list[dict[str, Any]]) -> bool:
    """Return whether any call of these layers has the form of Keras 2."""
    return any(
        isinstance(call, (list, tuple))
        for data in layers
        for call in data["inbound_nodes"]
    )


def deferred_models(layers: list[dict[str, Any]]) -> set[str]:
    """Return the names of nested models whose calls are counted from 0.

    For other nested models the first node is their own graph, so that calls count from
    1.
    """
    references = (
        reference
        for data in layers
        for call in data["inbound_nodes"]
        for reference in _references(call)
    )
    return {reference[0] for reference in references if reference[1] == 0}


def _references(data: Any) -> Iterator[Any]:
    """Yield every reference to a tensor in a call."""
    if _is_reference(data):
        yield data
        data = data[3:]
    values = data.values() if isinstance(data, dict) else data
    for value in values if isinstance(values, (list, tuple)) else list(values):
        if isinstance(value, (dict, list, tuple)):
            yield from _references(value)


def _is_reference(value: object) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) in (3, 4)
        and isinstance(value[0], str)
        and type(value[1]) is int
    )


def upgrade_call(
    data: Any, operation: Any, config: dict[str, Any], count_from: Callable[[str], int]
) -> dict[str, Any]:
    """Return the arguments of a call of Keras 2 in the current form.

    Args:
        data: the call.
        operation: the called layer or op.
        config: the config of the layer in the file.
        count_from: a function from the name of a layer to the index of its first call.
    """
    if isinstance(data, dict):
        return data
    shared: dict[str, Any] = {}

    def argument(value: Any) -> Any:
        if _is_reference(value):
            if len(value) == 4:
                shared.update(value[3])
            if value[0] == _CONSTANT:
                return value[2]
            history = [value[0], value[1] - count_from(value[0]), value[2]]
            return {"class_name": SYMBOL, "config": {"keras_history": history}}
        if isinstance(value, dict):
            if "class_name" in value and "config" in value:
                return deserialize_keras_object(value)
            return {key: argument(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [argument(item) for item in value]
        return value

    first = argument(data)
    # A list of one tensor means a tensor, unless the function accepts a list.
    takes_list = "function" in config and not _is_reference(data)
    if isinstance(first, list) and len(first) == 1 and not takes_list:
        first = first[0]
    kwargs = {key: argument(value) for key, value in shared.items()}
    if isinstance(operation, (RNN, Bidirectional)):
        kwargs = {key: value for key, value in kwargs.items() if value is not None}
        if isinstance(first, list):
            first, kwargs["initial_state"] = first[0], first[1:]
    if "function" in config and hasattr(operation, "function"):
        return upgrade_function_call(operation, config["function"], first, kwargs)
    return {"args": [first], "kwargs": kwargs}
