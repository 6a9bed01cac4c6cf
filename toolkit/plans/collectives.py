"""Descriptions of collectives, for messages."""

from __future__ import annotations

from toolkit.ir import Node

# Texts for collectives of results.
_COLLECTIVE_TEXTS = {
    "all_reduce": "the sum of",
    "reduce_scatter": "the sum of",
    "all_gather": "the gather of",
    "joint_collectives": "the exchange of",
}
# Suffix that tapes add to the origins of nodes that compute gradients.
_GRADIENT = "/gradient"


def describe_collective(node: Node) -> str:
    """Return the operation of a collective, and the layers of its results."""
    layers = dict.fromkeys("/".join(y.origin) for y in node.outputs[:-1])
    names = [
        f"gradients of {layer.removesuffix(_GRADIENT)}"
        if layer.endswith(_GRADIENT)
        else layer
        for layer in filter(None, layers)
    ]
    return f"{_COLLECTIVE_TEXTS[node.op.name]} {', '.join(names) or 'results'}"
