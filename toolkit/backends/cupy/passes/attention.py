"""Gradients of attention that read its output: what libraries on GPUs ask for."""

from __future__ import annotations

from typing import Any

from toolkit.backends.target import Target
from toolkit.core.tensor import bind
from toolkit.ir import PRIMITIVES, Graph, Kind, Node, Primitive, Spec


def _spec(g: Spec, out: Spec, peak: Spec, *inputs: Spec, **attrs: Any) -> Any:
    return inputs[:3]


def _body(g: Any, out: Any, peak: Any, *inputs: Any, **attrs: Any) -> Any:
    """`attention_grad`, whose `delta` is the sum over g * out."""
    wide = [bind(PRIMITIVES["cast"], x, dtype=peak.dtype) for x in (g, out)]
    products = bind(PRIMITIVES["multiply"], *wide)
    delta = bind(PRIMITIVES["sum"], products, axis=(3,), keepdims=False)
    delta = bind(PRIMITIVES["transpose"], delta, axes=(0, 2, 1))
    total = bind(PRIMITIVES["exp"], bind(PRIMITIVES["subtract"], peak, peak))
    whole = PRIMITIVES["attention_grad"].body
    return whole(g, delta, peak, total, *inputs, **attrs)  # type: ignore[misc]


# Not in the registry: the compiler alone puts it into a graph.
attention_grad_of_p: Primitive = Primitive(
    "attention_grad_of", Kind.COMPOSITE, _spec, body=_body
)


def give_outputs(graph: Graph, target: Target) -> Graph:
    """Let gradients of attention read what attention gave, where that helps.

    The sums that stood for it are then read by nobody.
    """
    found: dict[Any, Node] = {}
    nodes = []
    for node in graph.nodes:
        if node.op.name == "attention":
            found[_key(node.inputs, node)] = node
        partner = None
        if node.op.name == "attention_grad":
            partner = found.get(_key(node.inputs[4:], node))
        if partner is not None and target.backend.computes(partner):
            out, peak, _ = partner.outputs
            inputs = (node.inputs[0], out, peak, *node.inputs[4:])
            node = Node(attention_grad_of_p, inputs, node.attrs, node.outputs)
        nodes.append(node)
    return graph.replace(nodes)


def _key(inputs: Any, node: Node) -> Any:
    return tuple(inputs), tuple(node.attrs.items())
