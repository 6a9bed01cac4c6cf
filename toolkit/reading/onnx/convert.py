"""Conversion of ONNX messages to graphs, with functions unrolled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from toolkit.definitions.records import record
from toolkit.errors import ModelFileError
from toolkit.reading.onnx.graph import OnnxGraph, OnnxNode, ValueInfo
from toolkit.reading.onnx.messages import Message
from toolkit.reading.onnx.tensors import TensorReader, dtype_of

MAX_NODES = 100_000
MAX_SUBGRAPHS = 16  # nesting depth
MAX_FUNCTIONS = 8  # nesting depth
_GROWTH = 50  # maximum ratio of unrolled nodes to nodes in the file
_UNKNOWN = -1  # some exporters write an unknown extent in this way
_RUNTIME = "com.microsoft"  # the domain of ONNX Runtime's operators
STANDARD = ("", "ai.onnx")  # names of the domain of ONNX's operators

# Attribute type in the schema -> the field of its value.
_FIELDS = {
    1: "f",
    2: "i",
    3: "s",
    4: "t",
    5: "g",
    6: "floats",
    7: "ints",
    8: "strings",
}
_EMPTY = {"f": 0.0, "i": 0, "s": memoryview(b"")}
_Key = tuple[str, str, str]


@record
class _Scope:
    """Conversion context: the meaning of names, and the depth."""

    rename: Callable[[str], str]
    arguments: dict[str, Any]  # attributes of the function call
    subgraphs: int = 0
    functions: int = 0


class Converter:
    """Converter of messages to graphs.

    Args:
        model: the whole file.
        tensors: the reader of its arrays.
        opset: the version of ONNX's operators.
    """

    def __init__(self, model: Message, tensors: TensorReader, opset: int) -> None:
        self._tensors = tensors
        self._opset = opset
        self._functions: dict[_Key, Message] = {}
        for function in model["functions"]:
            key = _function_key(function, "name")
            if key in self._functions:
                raise ModelFileError(f"the function {key[1]!r} is defined twice")
            self._functions[key] = function
        num_nodes = sum(len(f["nodes"]) for f in model["functions"])
        num_nodes += len(model.get("graph", {}).get("nodes", ()))
        self._max_nodes = min(MAX_NODES, _GROWTH * num_nodes + 1_000)
        self._num_nodes = 0
        self._num_unrolled = 0
        # Cache of conversions that all calls of a function share, by the id of the
        # message (kept alive so that the id is unique), and the node count of each
        # graph.
        self._attribute_cache: dict[int, tuple[Message, Any]] = {}
        self._node_counts: dict[int, tuple[OnnxGraph, int]] = {}

    def graph(self, message: Message) -> OnnxGraph:
        """Return the graph of the file."""
        return self._build_graph(message, _Scope(lambda name: name, {}))

    def _count_nodes(self, count: int) -> None:
        """Count nodes and other objects with a cost for each use."""
        self._num_nodes += count
        if self._num_nodes > self._max_nodes:
            raise ModelFileError(f"the file has more than {self._max_nodes:,} nodes")

    def _convert_subgraph(self, message: Message, scope: _Scope) -> OnnxGraph:
        """Return a graph that is an attribute."""
        start_count = self._num_nodes
        if scope.subgraphs >= MAX_SUBGRAPHS:
            raise ModelFileError(f"subgraphs are nested more than {MAX_SUBGRAPHS} deep")
        self._count_nodes(
            sum(len(message[k]) for k in ("inputs", "outputs", "initializers"))
        )
        graph = self._build_graph(
            message, replace(scope, subgraphs=scope.subgraphs + 1)
        )
        self._node_counts[id(graph)] = graph, self._num_nodes - start_count
        return graph

    def _count_reference(self, value: Any) -> Any:
        """Return the value of a function attribute that a node refers to."""
        if isinstance(value, OnnxGraph):  # each use walks it again
            self._count_nodes(self._node_counts[id(value)][1])
        return value

    def _build_graph(self, message: Message, scope: _Scope) -> OnnxGraph:
        arrays = {}
        for tensor in message["initializers"]:
            name = scope.rename(tensor.get("name", ""))
            if name in arrays or not name:
                raise ModelFileError(f"the initializer {name!r} is defined twice")
            arrays[name] = self._tensors.read_array(tensor, name)
        inputs = [self._convert_value(value, scope) for value in message["inputs"]]
        return OnnxGraph(
            tuple(value for value in inputs if value.name not in arrays),
            tuple(self._convert_value(value, scope) for value in message["outputs"]),
            tuple(self._convert_nodes(message["nodes"], scope)),
            arrays,
        )

    def _convert_value(self, message: Message, scope: _Scope) -> ValueInfo:
        name = message.get("name", "")
        tensor = message.get("type", {}).get("tensor")
        if tensor is None:  # types are optional in subgraphs
            if scope.subgraphs:
                return ValueInfo(scope.rename(name), "float32", None)
            kinds = [
                k for k in ("sequence", "optional") if k in message.get("type", {})
            ]
            raise ModelFileError(
                f"{name!r}: expected a tensor as an input or output of the graph; "
                f"its type is {kinds[0] if kinds else 'not given'}"
            )
        dtype = dtype_of(tensor.get("type", 0), f"{name!r}")
        shape = None
        if "shape" in tensor:
            shape = tuple(_parse_extent(dim, name) for dim in tensor["shape"]["dims"])
        return ValueInfo(scope.rename(name), dtype, shape)

    def _convert_nodes(self, messages: list[Message], scope: _Scope) -> list[OnnxNode]:
        nodes: list[OnnxNode] = []
        for message in messages:
            self._count_nodes(1)
            function = self._functions.get(_function_key(message, "op"))
            if function is None:
                nodes.append(self._convert_node(message, scope))
            else:
                nodes += self._unroll(function, message, scope)
        return nodes

    def _convert_node(self, message: Message, scope: _Scope) -> OnnxNode:
        op, domain = message.get("op", ""), message.get("domain", "")
        if domain == _RUNTIME:
            op = f"{domain}.{op}"
        elif domain not in STANDARD:
            raise ModelFileError(
                f"{_node_label(message)} is of the domain {domain!r}; expected "
                "operators of ONNX, or functions of the file"
            )
        return OnnxNode(
            message.get("name", ""),
            op,
            tuple(scope.rename(name) for name in message["inputs"]),
            tuple(scope.rename(name) for name in message["outputs"]),
            self._convert_attributes(message, scope),
        )

    def _convert_attributes(self, message: Message, scope: _Scope) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for attribute in message["attributes"]:
            name = attribute.get("name", "")
            if name in attributes:
                raise ModelFileError(f"{_node_label(message)} has {name!r} twice")
            reference = attribute.get("refers_to")
            if reference is None:
                attributes[name] = self._convert_attribute(attribute, message, scope)
            elif reference in scope.arguments:  # else it was omitted
                attributes[name] = self._count_reference(scope.arguments[reference])
        return attributes

    def _convert_attribute(
        self, attribute: Message, message: Message, scope: _Scope
    ) -> Any:
        if id(attribute) not in self._attribute_cache:
            value = self._decode_attribute(attribute, message, scope)
            if isinstance(value, OnnxGraph):  # names in it depend on the scope
                return value
            self._attribute_cache[id(attribute)] = attribute, value
        return self._attribute_cache[id(attribute)][1]

    def _decode_attribute(
        self, attribute: Message, message: Message, scope: _Scope
    ) -> Any:
        number = attribute.get("type", 0)
        label = f"the attribute {attribute.get('name', '')!r} of {_node_label(message)}"
        if number == 0:  # files before IR 2 omit it
            candidates = [f for f in _FIELDS.values() if attribute.get(f)]
            field = candidates[0] if len(candidates) == 1 else None
        else:
            field = _FIELDS.get(number)
        if field is None:
            raise ModelFileError(f"{label} has the unsupported type {number}")
        value = attribute.get(field, _EMPTY.get(field))
        if value is None:
            raise ModelFileError(f"{label} has no value")
        if field == "t":
            return self._tensors.read_array(value, label)
        if field == "g":
            return self._convert_subgraph(value, scope)
        if field in ("s", "strings"):
            texts = [
                _decode_text(v, label)
                for v in (value if field == "strings" else [value])
            ]
            return texts if field == "strings" else texts[0]
        if isinstance(value, list):
            return [n for v in value for n in (v.tolist() if _is_array(v) else [v])]
        return value

    def _unroll(
        self, function: Message, call: Message, scope: _Scope
    ) -> list[OnnxNode]:
        """Return the nodes of a function for a call."""
        depth = scope.functions + 1
        if depth > MAX_FUNCTIONS:
            raise ModelFileError(
                f"function calls are nested more than {MAX_FUNCTIONS} deep"
            )
        _check_opset(function, self._opset)
        if len(call["inputs"]) > len(function["inputs"]) or (
            len(call["outputs"]) > len(function["outputs"])
        ):
            raise ModelFileError(
                f"{_node_label(call)}: the call has more inputs or outputs than its "
                "function"
            )
        self._num_unrolled += 1
        prefix = f"{call.get('name') or call.get('op', '')}_{self._num_unrolled}/"
        names = dict.fromkeys(("", *function["inputs"]), "")
        for formal, actual in (
            *zip(function["inputs"], call["inputs"], strict=False),
            *zip(function["outputs"], call["outputs"], strict=False),
        ):
            names[formal] = scope.rename(actual)
        inner = _Scope(
            lambda name: names[name] if name in names else prefix + name,
            self._call_attributes(function, call, scope),
            scope.subgraphs,
            depth,
        )
        # An output that the caller omits keeps a name, for nodes of the body.
        for formal in function["outputs"]:
            if not names.get(formal):
                names[formal] = prefix + formal
        return self._convert_nodes(function["nodes"], inner)

    def _call_attributes(
        self, function: Message, call: Message, scope: _Scope
    ) -> dict[str, Any]:
        defaults = {"attributes": function["defaults"], "op": call.get("op")}
        attributes = self._convert_attributes(defaults, _Scope(lambda name: name, {}))
        return {**attributes, **self._convert_attributes(call, scope)}


def _function_key(message: Message, name: str) -> _Key:
    """Return the key that matches calls and functions; ONNX operators are no calls."""
    domain = message.get("domain", "")
    return (
        "" if domain in STANDARD else domain,
        message.get(name, ""),
        (message.get("overload", "")),
    )


def _check_opset(function: Message, opset: int) -> None:
    for entry in function["opset_import"]:
        version = entry.get("version", 0)
        if entry.get("domain", "") in STANDARD and version != opset:
            raise ModelFileError(
                f"the function {function.get('name')!r} is of opset {version} in a "
                f"file of opset {opset}"
            )


def _node_label(message: Message) -> str:
    name, op = message.get("name", ""), message.get("op", "")
    return f"the node {name!r} ({op})" if name else f"a node {op!r}"


def _parse_extent(dim: Message, name: str) -> int | str | None:
    value = dim.get("value")
    if value is None or value == _UNKNOWN:
        return dim.get("param") or None
    if not 0 <= value < 1 << 48:
        raise ModelFileError(f"{name!r} has an axis with the invalid extent {value}")
    return int(value)


def _decode_text(value: Any, label: str) -> str:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{label} is not text") from error


def _is_array(value: object) -> bool:
    return hasattr(value, "tolist")
