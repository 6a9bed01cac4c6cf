"""Nodes that passes create: fused nodes, which run as one kernel, and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.ir.graph import Graph, Node
from toolkit.ir.primitive import PRIMITIVES, Kind, Primitive
from toolkit.ir.value import Spec, Value


def _spec(*inputs: Spec, body: Graph) -> Any:
    specs = tuple(value.spec for value in body.outputs)
    return specs if len(specs) > 1 else specs[0]


# Not in the registry: it exists in compiled programs only, and has no gradient.
fused_p: Primitive = Primitive("fused", Kind.ELEMENTWISE, _spec)


def fused_node(body: Graph, device: str | None = None) -> Node:
    """Return a node that computes a graph on the inputs of the graph."""
    return Node(fused_p, body.inputs, {"body": body}, body.outputs, device)


def node_of(
    name: str,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    device: str | None = None,
) -> Node:
    """Return a node of a primitive, with new values for its results."""
    op = PRIMITIVES[name]
    inferred = op.spec(*(x.spec for x in inputs), **attrs)
    specs = inferred if isinstance(inferred, tuple) else (inferred,)
    return Node(op, inputs, attrs, [Value(spec) for spec in specs], device)


def cast_node(x: Any, y: Any) -> Node:
    """Return a node that casts x to the dtype of y, and defines y."""
    return Node(PRIMITIVES["cast"], (x,), {"dtype": y.spec.dtype}, (y,))
