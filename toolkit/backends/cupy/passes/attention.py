"""Pass that makes gradients of attention read the output of attention."""

from __future__ import annotations

from typing import Any

from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Graph, Node


def use_attention_outputs(graph: Graph, target: Target) -> Graph:
    """Make gradients of attention read its output, if a library uses it.

    Dead-code elimination then removes the sums that the output replaces.
    """
    generator = target.backend.generator
    forward_nodes: dict[Any, Node] = {}
    nodes = []
    for node in graph.nodes:
        if node.op.name == "attention":
            forward_nodes[_key(node.inputs, node)] = node
        partner = None
        if node.op.name == "attention_grad":
            partner = forward_nodes.get(_key(node.inputs[4:], node))
        if partner is not None and generator.can_lower_composite(partner):
            out, peak, _ = partner.outputs
            inputs = (node.inputs[0], out, peak, *node.inputs[4:])
            whole_p = PRIMITIVES["attention_grad_of"]
            node = Node(whole_p, inputs, node.attrs, node.outputs)
        nodes.append(node)
    return graph.replace(nodes)


def _key(inputs: Any, node: Node) -> Any:
    return tuple(inputs), tuple(node.attrs.items())
