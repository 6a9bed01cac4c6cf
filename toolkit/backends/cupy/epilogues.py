"""What follows a product or a convolution and can be part of the same call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.backends.space import number_of
from toolkit.ir import Graph, Node


@dataclass(frozen=True)
class Epilogue:
    """Steps in order, and the values that they read beside the result so far.

    steps: "bias" adds a vector along the last axis, "add" an array of the same shape,
    "relu" takes the maximum with 0.
    """

    steps: tuple[str, ...]
    extra: tuple[Any, ...]


def epilogue_of(body: Graph) -> Epilogue | None:
    """The elementwise nodes of a body behind its first node; None if one is no step.

    Each of them must read what the one before made, and only the last be an output.
    """
    value = body.nodes[0].outputs[0]
    steps: list[str] = []
    extra: list[Any] = []
    for node in body.nodes[1:]:
        found = _step(node, value)
        if found is None:
            return None
        steps.append(found[0])
        extra += found[1:]
        value = node.outputs[0]
    if len(body.outputs) != 1 or body.outputs[0] is not value:
        return None
    if tuple(steps) not in _ORDERS:
        return None
    return Epilogue(tuple(steps), tuple(extra))


# Those that some library applies.
_ORDERS = {
    (),
    ("bias",),
    ("relu",),
    ("bias", "relu"),
    ("add",),
    ("add", "relu"),
    ("bias", "add"),
    ("bias", "add", "relu"),
}


def _step(node: Node, value: Any) -> tuple[Any, ...] | None:
    others = [x for x in node.inputs if x is not value]
    if len(others) != 1 or node.outputs[0].spec != value.spec:
        return None
    (other,) = others
    if node.op.name == "maximum" and number_of(other) == 0:
        return ("relu",)
    if node.op.name != "add" or number_of(other) is not None:
        return None
    shape, spec = value.spec.shape, other.spec
    if spec.dtype != value.spec.dtype or spec.size == 1:
        return None
    if spec.shape == shape:
        return "add", other
    is_vector = spec.size == shape[-1] == spec.shape[-1]
    return ("bias", other) if is_vector else None
