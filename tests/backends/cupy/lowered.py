"""Create nodes for tests, and lower them."""

import numpy as np

from toolkit import dtypes
from toolkit.backends.cupy.lowering import Numerics, lower
from toolkit.core.tensor import Tensor
from toolkit.ir import PRIMITIVES, Graph, Node, fused_p
from toolkit.plans.operands import contiguous

NUMBERS = {"relu": 0, "scale": 0.25}


def node_of(name, specs, **attrs):
    """Return a node of a primitive or of its name, on inputs of these specs."""
    primitive = PRIMITIVES[name] if isinstance(name, str) else name
    inputs = [Tensor(None, spec) for spec in specs]
    specs_of_outputs = primitive.spec(*specs, **attrs)
    outputs = [
        Tensor(None, s)
        for s in (
            specs_of_outputs
            if isinstance(specs_of_outputs, tuple)
            else (specs_of_outputs,)
        )
    ]
    return Node(primitive, inputs, attrs, outputs)


def followed(anchor, follow):
    """Return a node with an elementwise epilogue, as the compiler fuses them.

    Args:
        anchor: the first node.
        follow: "bias", "add", "relu", "scale", "cast" to float32, or the name of
            another unary primitive.
    """
    nodes, value, inputs = [anchor], anchor.outputs[0], list(anchor.inputs)
    for step in follow:
        operands = [value]
        if step in ("bias", "add"):
            shape = value.spec.shape[-1:] if step == "bias" else value.spec.shape
            operands.append(Tensor(None, value.spec.with_shape(shape)))
            inputs.append(operands[1])
        elif step in NUMBERS:
            kind = dtypes.numpy_dtype(value.spec.dtype)
            operands.append(Tensor(np.asarray(NUMBERS[step], kind)))
        attrs = {"dtype": "float32"} if step == "cast" else {}
        name = {"bias": "add", "relu": "maximum", "scale": "multiply"}.get(step, step)
        result = Tensor(None, value.spec.with_dtype(attrs.get("dtype", value.dtype)))
        nodes.append(Node(PRIMITIVES[name], operands, attrs, [result]))
        value = result
    body = Graph(tuple(inputs), tuple(nodes), (value,))
    return Node(fused_p, inputs, {"body": body}, [value])


def lowered(name, specs, follow=(), numerics=None, **attrs):
    """Return the steps of a primitive on whole arrays, and of its epilogue."""
    node = node_of(name, specs, **attrs)
    return lowered_node(followed(node, follow) if follow else node, numerics)


def lowered_node(node, numerics=None):
    """The steps of a node on whole arrays."""
    inputs = [contiguous(x.spec) for x in node.inputs]
    outputs = [contiguous(y.spec) for y in node.outputs]
    return lower(node, inputs, outputs, True, numerics or Numerics())
