"""Warning about outputs that are probabilities or logits against the loss."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolkit import activations, losses, tree
from toolkit.console.frames import warn_once
from toolkit.core.tensor import Tensor, state
from toolkit.ir import Kind, Node, Value
from toolkit.layers.conv import Convolution
from toolkit.layers.dense import Dense
from toolkit.layers.einsum_dense import EinsumDense
from toolkit.layers.layer import Layer
from toolkit.models.training.compile_checks import describe_term, function_of

# The class of each loss on probabilities or logits, and the activation for it.
_CLASSES = {
    losses.binary_crossentropy: ("BinaryCrossentropy", "sigmoid"),
    losses.binary_focal_crossentropy: ("BinaryFocalCrossentropy", "sigmoid"),
    losses.categorical_crossentropy: ("CategoricalCrossentropy", "softmax"),
    losses.categorical_focal_crossentropy: ("CategoricalFocalCrossentropy", "softmax"),
    losses.sparse_categorical_crossentropy: (
        "SparseCategoricalCrossentropy",
        "softmax",
    ),
}
# Activations whose results are not probabilities.
_UNBOUNDED = (
    activations.linear,
    activations.relu,
    activations.leaky_relu,
    activations.elu,
    activations.selu,
    activations.gelu,
    activations.silu,
    activations.tanh,
    activations.softplus,
    activations.log_softmax,
)


class Head(NamedTuple):
    """Last operation of an output.

    Attributes:
        operation: the name of its primitive.
        layer: the name of the layer that calls it.
    """

    operation: str
    layer: str


def find_heads(outputs: object) -> list[Head | None]:
    """Return the last operation of each output of the current trace, if known.

    Views and casts do not count, because they do not change the range of values.
    """
    trace = state.trace
    if trace is None:
        return [None for _ in tree.flatten(outputs)]
    nodes = {y: node for node in trace.nodes for y in node.outputs}
    return [_find_head(x, nodes) for x in tree.flatten(outputs)]


def _find_head(x: object, nodes: dict[Value, Node]) -> Head | None:
    node = nodes.get(x) if isinstance(x, Tensor) else None
    while node is not None and (node.op.kind is Kind.VIEW or node.op.name == "cast"):
        node = nodes.get(node.inputs[0])
    return None if node is None else Head(node.op.name, node.origin.split("/")[-1])


def check_logits(model: Layer, loss: Any, output: object, head: Head | None) -> None:
    """Warn once if the last layer and `from_logits` of a crossentropy differ.

    Args:
        model: the model, whose layers are searched.
        loss: the Loss.
        output: the name of the output, or None.
        head: the last operation of the output, or None if it is unknown.
    """
    names = _CLASSES.get(function_of(loss))  # type: ignore[call-overload]
    if names is None or head is None:
        return
    cls, activation = names
    term = describe_term("loss", loss.name, output)
    arguments = getattr(loss, "_fn_kwargs", {})
    if arguments.get("from_logits", False):
        if head.operation in ("softmax", "sigmoid"):
            warn_once(
                model,
                f"{model.name}: {term} has from_logits=True, but the layer "
                f"{head.layer!r} ends in {head.operation}, so the outputs are "
                "probabilities; use from_logits=False, or remove the activation",
            )
    elif (description := _describe_unbounded(model, head)) is not None:
        warn_once(
            model,
            f"{model.name}: {term} expects probabilities, because from_logits is "
            f"False, but the layer {head.layer!r} {description}; use "
            f"activation={activation!r}, or loss=losses.{cls}(from_logits=True)",
        )


def _describe_unbounded(model: Layer, head: Head) -> str | None:
    """Return the reason why an output cannot be a probability, or None.

    The layer has weights that can have any values, so its products can, too.
    """
    layers = [x for x in model._flatten_layers() if x.name == head.layer]
    layer = layers[0] if len(layers) == 1 else None
    if not isinstance(layer, (Dense, EinsumDense, Convolution)) or not layer.trainable:
        return None
    kind, activation = type(layer).__name__, layer.activation or activations.linear
    if getattr(layer, "kernel_constraint", None) is not None:
        return None
    if not any(activation is function for function in _UNBOUNDED):
        return None
    if activation is activations.linear:
        return f"({kind}) has no activation, so the outputs are logits"
    return f"({kind}) has the activation {activations.serialize(activation)!r}"
