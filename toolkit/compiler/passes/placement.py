"""Placement: the device of each node, and the transfers between devices."""

from __future__ import annotations

from typing import Any

from toolkit.backends.target import Target
from toolkit.ir import Graph, Kind, Node, Primitive, Spec, Value


def _same(x: Spec, device: str) -> Spec:
    return x


# Not in the registry: only the compiler adds it to a graph.
transfer_p: Primitive = Primitive("transfer", Kind.MOVE, _same)


def assign_devices(graph: Graph, target: Target) -> Graph:
    """Copy each value to the devices that read it.

    A node outside device scopes runs on the device of its first computed input, or on
    the device of the target if it has none. Inputs and outputs of the graph are on the
    device of the target; constants are on every device. One transfer serves all readers
    on a device.

    Args:
        graph: the traced graph; it is returned unchanged if no node has a device.
        target: its device is the default.
    """
    default = target.backend.device_name
    if all(node.device in (None, default) for node in graph.nodes):
        return graph
    where = dict.fromkeys(graph.inputs, default)
    copies: dict[tuple[Value, str], Value] = {}
    nodes: list[Node] = []

    def on(value: Any, device: str) -> Any:
        """Return the value on a device, after a transfer if needed."""
        if value.constant is not None or where.get(value, device) == device:
            return value
        if (value, device) not in copies:
            copy = copies[value, device] = Value(value.spec)
            attrs = {"device": device}
            nodes.append(Node(transfer_p, (value,), attrs, (copy,), device))
        return copies[value, device]

    for node in graph.nodes:
        devices = (where[x] for x in node.inputs if x in where)
        device = node.device or next(devices, default)
        inputs = [on(x, device) for x in node.inputs]
        nodes.append(Node(node.op, inputs, node.attrs, node.outputs, device))
        where.update(dict.fromkeys(node.outputs, device))
    outputs = [on(y, default) for y in graph.outputs]
    return graph.replace(nodes, outputs)
