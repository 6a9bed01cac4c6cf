"""Placement: which device computes each node, and the transfers between devices."""

from __future__ import annotations

from typing import Any

from toolkit.backends.target import Target
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value


def _same(x: Spec, device: str) -> Spec:
    return x


# Not in the registry: the compiler alone puts it into a graph.
transfer_p: Primitive = Primitive("transfer", Kind.MOVE, _same)


def place(graph: Graph, target: Target) -> Graph:
    """Copy each value to the devices that read it.

    A node that no device scope placed runs where the first of its inputs that is
    computed is, and on the device of the target if there is none. Inputs and outputs of
    the graph are on that; constants are everywhere. One transfer serves all readers on
    a device.

    Args:
        graph: as traced; where every node is left to its inputs it stays as it is.
        target: whose device is the default.
    """
    default = target.backend.device_name
    if all(node.device in (None, default) for node in graph.nodes):
        return graph
    where = dict.fromkeys(graph.inputs, default)
    copies: dict[tuple[Value, str], Value] = {}
    nodes: list[Node] = []

    def on(value: Any, device: str) -> Any:
        """The value on a device, after a transfer if it is elsewhere."""
        if value.constant is not None or where.get(value, device) == device:
            return value
        if (value, device) not in copies:
            copy = copies[value, device] = Value(value.spec)
            attrs = {"device": device}
            nodes.append(Node(transfer_p, (value,), attrs, (copy,), device))
        return copies[value, device]

    for node in graph.nodes:
        places = (where[x] for x in node.inputs if x in where)
        device = node.device or next(places, default)
        inputs = [on(x, device) for x in node.inputs]
        nodes.append(Node(node.op, inputs, node.attrs, node.outputs, device))
        where.update(dict.fromkeys(node.outputs, device))
    outputs = [on(y, default) for y in graph.outputs]
    return graph.replace(nodes, outputs)
