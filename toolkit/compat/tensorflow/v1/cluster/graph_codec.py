"""Serialized graphs: names, attributes, specs, raw constants.

The decoder looks up primitives by their names, and computes the specs of all values by
their rules. It accepts neither code nor specs from the message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import toolkit.random.draws
from toolkit.backends.devices import check_device
from toolkit.compat.tensorflow.v1.cluster.frames import FrameError, validate_spec
from toolkit.control_flow import branches, loops
from toolkit.errors import ToolkitError, UnsupportedError
from toolkit.ir import PRIMITIVES, Constant, Graph, Kind, Node, Primitive, Spec, Value
from toolkit.ir.scalars import arity

# The import of these modules registers their primitives.
REGISTERED: tuple[Any, ...] = (branches, loops, toolkit.random.draws)
MOST_NODES = 200_000
LARGEST_VALUE = 16 << 30  # bytes


class Encoder:
    """Encoder of graphs as data.

    Args:
        arrays: the list for the constants.
        names: the operation names of nodes, for errors.

    Attributes:
        ids: the number of each value.
    """

    def __init__(
        self, arrays: list[Any], names: Mapping[Node, str] | None = None
    ) -> None:
        self.arrays, self.names = arrays, names or {}
        self.ids: dict[Value, int] = {}
        self._constant_indices: dict[
            Value, int
        ] = {}  # indices of constants in the arrays

    def id(self, value: Value) -> int:
        """Return the number of a value."""
        return self.ids.setdefault(value, len(self.ids))

    def graph(self, graph: Graph) -> dict[str, Any]:
        """Encode a graph as JSON data."""
        return {
            "inputs": [[self.id(x), *_spec(x)] for x in graph.inputs],
            "nodes": [self._node(node) for node in graph.nodes],
            "outputs": [self._read(y) for y in graph.outputs],
        }

    def _node(self, node: Node) -> list[Any]:
        name = node.op.name
        is_known = PRIMITIVES.get(name) is node.op
        if not is_known or node.op.kind is Kind.COLLECTIVE:
            raise self._unsupported_error(
                node, f"{name!r} is not a primitive that a task supports"
            )
        inputs = [self._read(x) for x in node.inputs]
        attrs = {
            key: self._attribute(node, key, value) for key, value in node.attrs.items()
        }
        return [name, inputs, attrs, [self.id(y) for y in node.outputs], node.device]

    def _unsupported_error(self, node: Node, reason: str) -> UnsupportedError:
        owner = self.names.get(node, node.op.name)
        return UnsupportedError(f"operation {owner!r} cannot run on a task: {reason}")

    def _read(self, value: Value) -> Any:
        """Encode an operand: the number of a value, or the index of a constant."""
        if value.constant is None:
            return self.id(value)
        if value not in self._constant_indices:
            self._constant_indices[value] = len(self.arrays)
            self.arrays.append(np.asarray(value.constant))
        return {"constant": self._constant_indices[value], "open": value.is_open}

    def _attribute(self, node: Node, key: str, value: Any) -> Any:
        if value is None or type(value) in (bool, int):
            return value
        if isinstance(value, str):  # TensorFlow's dtypes are subclasses of str
            return str.__str__(value)
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is complex:
            return {
                "complex": [
                    self._attribute(node, key, x) for x in _complex_parts(value)
                ]
            }
        if isinstance(value, np.generic):
            return self._attribute(node, key, value.item())
        if isinstance(value, (tuple, list)):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self._attribute(node, key, x) for x in value]}
        if isinstance(value, Spec):
            return {"spec": [value.dtype, list(value.shape)]}
        if isinstance(value, Graph):
            return {"graph": self.graph(value)}
        raise self._unsupported_error(
            node, f"a task cannot receive its {key}, a {type(value).__name__}"
        )


def _complex_parts(value: complex) -> tuple[float, float]:
    return value.real, value.imag


def _spec(x: Value) -> tuple[str, list[int]]:
    return x.spec.dtype, [int(n) for n in x.spec.shape]


class Decoder:
    """Decoder of graphs, with validation.

    Args:
        arrays: of the message.

    Attributes:
        values: by number.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = arrays
        self.values: dict[int, Value] = {}
        self._count = 0

    def graph(self, data: Any) -> Graph:
        """Decode a graph.

        Raises:
            FrameError: the data are invalid.
        """
        try:
            return self._graph(data)
        except (ToolkitError, MemoryError):
            raise
        # a rule can raise any exception for invalid arguments
        except Exception as error:
            raise FrameError(
                f"expected a graph ({type(error).__name__}: {error})"
            ) from error

    def _graph(self, data: Any) -> Graph:
        inputs = []
        for number, *spec in data["inputs"]:
            dtype, shape = validate_spec(spec)
            inputs.append(self._define(number, Spec(shape, dtype)))
        nodes = [self._node(*fields) for fields in data["nodes"]]
        outputs = [self._read(y) for y in data["outputs"]]
        return Graph(tuple(inputs), tuple(nodes), tuple(outputs))

    def _define(self, number: Any, spec: Spec) -> Value:
        if type(number) is not int or number in self.values:
            raise FrameError(f"expected a new number for a value; received {number!r}")
        if spec.nbytes > LARGEST_VALUE:
            raise FrameError(
                f"a value of {spec} is larger than {LARGEST_VALUE:,} bytes"
            )
        value = self.values[number] = Value(spec)
        return value

    def _node(
        self, name: str, inputs: Any, attrs: Any, outputs: Any, device: Any
    ) -> Node:
        self._count += 1
        if self._count > MOST_NODES:
            raise FrameError(f"a graph of more than {MOST_NODES:,} nodes")
        op = primitive_named(name)
        if device is not None:
            device = check_device(str(device))
        values = [self._read(x) for x in inputs]
        attributes = {str(key): self._attribute(value) for key, value in attrs.items()}
        if op.scalar is not None and not _fits(op.scalar, len(values), attributes):
            raise FrameError(f"{name}: {len(values)} inputs do not fit its signature")
        result_specs = op.spec(*(x.spec for x in values), **attributes)
        specs = result_specs if isinstance(result_specs, tuple) else (result_specs,)
        if len(outputs) != len(specs):
            raise FrameError(f"{name}: expected {len(specs)} results")
        values_out = [self._define(*pair) for pair in zip(outputs, specs, strict=True)]
        return Node(op, values, attributes, values_out, device)

    def _read(self, data: Any) -> Value:
        if type(data) is int and data in self.values:
            return self.values[data]
        if isinstance(data, dict) and type(data.get("constant")) is int:
            index = data["constant"]
            if 0 <= index < len(self.arrays):
                return Constant(self.arrays[index], data.get("open") is True)
        raise FrameError(f"expected a defined value; received {data!r}")

    def _attribute(self, data: Any) -> Any:
        if data is None or type(data) in (bool, int, str, float):
            return data
        if isinstance(data, dict) and len(data) == 1:
            ((kind, value),) = data.items()
            if kind in _KINDS:
                return _KINDS[kind](self, value)
        raise FrameError(f"expected an attribute; received {data!r}")


def primitive_named(name: Any) -> Primitive:
    """Return a primitive that tasks can compute."""
    primitive = PRIMITIVES.get(name) if isinstance(name, str) else None
    if primitive is None or primitive.kind is Kind.COLLECTIVE:
        raise FrameError(f"{name!r} is not a primitive that a task supports")
    return primitive


def _fits(rule: Any, count: int, attrs: Mapping[str, Any]) -> bool:
    """Return whether a scalar rule accepts this number of inputs, and named
    attributes."""
    names = rule.__code__.co_varnames[1 : 1 + arity(rule)]
    return len([name for name in names if name not in attrs]) == count


def _made_spec(decoder: Decoder, data: Any) -> Spec:
    dtype, shape = validate_spec(data)
    return Spec(shape, dtype)


_KINDS: dict[str, Callable[[Decoder, Any], Any]] = {
    "float": lambda decoder, text: float(text),
    "complex": lambda decoder, components: complex(
        *map(decoder._attribute, components)
    ),
    "tuple": lambda decoder, items: tuple(map(decoder._attribute, items)),
    "list": lambda decoder, items: list(map(decoder._attribute, items)),
    "spec": _made_spec,
    "graph": lambda decoder, data: decoder._graph(data),
}
