"""Graph of an ONNX file as plain data, and its config."""

from __future__ import annotations

import base64
import binascii
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.definitions.records import record
from toolkit.errors import LoadBudgetError, ModelFileError
from toolkit.reading.budget import spend
from toolkit.type_aliases import Array

MAX_AXES = 16


@record
class ValueInfo:
    """Input or output of a graph. An extent is an int, a name, or None if unknown."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@record
class OnnxNode:
    """Operation. An input "" is omitted; an output "" is unused."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass
class OnnxGraph:
    """Nodes in topological order, with the arrays of the file."""

    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: tuple[OnnxNode, ...]
    initializers: dict[str, Array]

    def subgraphs(self) -> list[OnnxGraph]:
        """Yield the graphs in attributes of its nodes."""
        values = (v for node in self.nodes for v in node.attributes.values())
        return [v for v in values if isinstance(v, OnnxGraph)]


# --- configs --------------------------------------------------------------------------


def array_config(array: Array) -> dict[str, Any]:
    """Return an array as plain values, exact to the last bit."""
    spend(array.nbytes, "an array")
    data = np.ascontiguousarray(array)
    data = data.astype(data.dtype.newbyteorder("<"), copy=False)
    return {
        "dtype": dtypes.standardize(array.dtype),
        "shape": list(array.shape),
        "data": base64.b64encode(data.tobytes()).decode("ascii"),
    }


def array_from_config(config: Any) -> Array:
    """Return the array of `array_config`.

    Raises:
        ModelFileError: the config is invalid, or its size does not match.
    """
    try:
        shape = tuple(map(_check_extent, config["shape"]))
        dtype = dtypes.numpy_dtype(_check_choice(config["dtype"], dtypes.DTYPES))
        text = config["data"].encode("ascii")
        spend(len(text), "an array")
        data = base64.b64decode(text, validate=True)
    except LoadBudgetError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error) as error:
        raise ModelFileError(
            f"expected an array as shape, dtype and data; received {config!r:.200}"
        ) from error
    if len(shape) > MAX_AXES or math.prod(shape) * dtype.itemsize != len(data):
        raise ModelFileError(
            f"an array of shape {shape} and dtype {dtype} has {len(data)} bytes"
        )
    return np.frombuffer(data, dtype).reshape(shape)


def _check_extent(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise ValueError(value)
    return value


def _check_choice(value: object, choices: Any) -> Any:
    if value not in choices:
        raise ValueError(value)
    return value


def graph_config(graph: OnnxGraph) -> dict[str, Any]:
    """Return a graph as plain values."""
    return {
        "inputs": [_value_config(v) for v in graph.inputs],
        "outputs": [_value_config(v) for v in graph.outputs],
        "nodes": [_node_config(node) for node in graph.nodes],
        "initializers": {k: array_config(v) for k, v in graph.initializers.items()},
    }


def _value_config(value: ValueInfo) -> list[Any]:
    shape = None if value.shape is None else list(value.shape)
    return [value.name, value.dtype, shape]


def _node_config(node: OnnxNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "attributes": {k: _attribute_config(v) for k, v in node.attributes.items()},
    }


def _attribute_config(value: Any) -> Any:
    if isinstance(value, OnnxGraph):
        return {"graph": graph_config(value)}
    if isinstance(value, np.ndarray):
        return {"array": array_config(value)}
    numbers = value if isinstance(value, list) else [value]
    if any(isinstance(n, float) and not math.isfinite(n) for n in numbers):
        return {"floats": [repr(n) for n in numbers], "single": value is not numbers}
    return value


def graph_from_config(config: Any, depth: int = 0) -> OnnxGraph:
    """Return the graph of `graph_config`, without a check of its meaning."""
    if depth > 32 or not isinstance(config, dict):
        raise ModelFileError(f"expected a graph; received {config!r:.200}")
    return OnnxGraph(
        tuple(_value_from_config(v) for v in _read_items(config, "inputs")),
        tuple(_value_from_config(v) for v in _read_items(config, "outputs")),
        tuple(_node_from_config(node, depth) for node in _read_items(config, "nodes")),
        {
            _check_name(k): array_from_config(v)
            for k, v in _read_items(config, "initializers", dict)
        },
    )


def _read_items(config: dict[str, Any], key: str, kind: type = list) -> Any:
    value = config.get(key)
    if not isinstance(value, kind):
        raise ModelFileError(
            f"expected a {kind.__name__} `{key}`; received {value!r:.99}"
        )
    return value.items() if isinstance(value, dict) else value


def _check_name(value: object) -> str:
    if not isinstance(value, str):
        raise ModelFileError(f"expected a name; received {value!r:.99}")
    return value


def _value_from_config(config: Any) -> ValueInfo:
    if not isinstance(config, (list, tuple)) or len(config) != 3:
        raise ModelFileError(
            f"expected a name, dtype and shape; received {config!r:.99}"
        )
    name, dtype, shape = config
    if dtype not in dtypes.DTYPES or not isinstance(shape, (list, tuple, type(None))):
        raise ModelFileError(f"expected a dtype and a shape; received {config!r:.99}")
    for n in shape or ():
        if not isinstance(n, (int, str, type(None))) or isinstance(n, bool):
            raise ModelFileError(f"expected extents; received {shape!r:.99}")
    return ValueInfo(_check_name(name), dtype, None if shape is None else tuple(shape))


def _node_from_config(config: Any, depth: int) -> OnnxNode:
    if not isinstance(config, dict):
        raise ModelFileError(f"expected a node; received {config!r:.99}")
    attributes = {
        _check_name(k): _attribute_from_config(v, depth)
        for k, v in _read_items(config, "attributes", dict)
    }
    return OnnxNode(
        _check_name(config.get("name")),
        _check_name(config.get("op")),
        tuple(map(_check_name, _read_items(config, "inputs"))),
        tuple(map(_check_name, _read_items(config, "outputs"))),
        attributes,
    )


def _attribute_from_config(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        if "graph" in value:
            return graph_from_config(value["graph"], depth + 1)
        if "array" in value:
            return array_from_config(value["array"])
        try:
            floats = [float(text) for text in value["floats"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"unsupported attribute {value!r:.99}") from error
        return floats[0] if value.get("single") and floats else floats
    if isinstance(value, (list, tuple)):
        spend(8 * len(value), "an attribute")
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if {type(v) for v in items} - {int, float, str} or len(set(map(type, items))) > 1:
        raise ModelFileError(f"expected an attribute; received {value!r:.99}")
    return items if isinstance(value, (list, tuple)) else value
