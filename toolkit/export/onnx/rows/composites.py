"""Composites with a corresponding ONNX operator."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.export.onnx.rows.shape import moved_axis
from toolkit.export.onnx.table import row
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node
from toolkit.ops.attention import MASKED


@row("softmax", "log_softmax")
def _softmax(write: Writer, node: Node) -> Any:
    (x,), axes = node.inputs, node.attrs["axis"]
    operator = "Softmax" if node.op.name == "softmax" else "LogSoftmax"
    rank = x.spec.ndim
    if len(axes) == 1 and write.only_first(x):
        axis = moved_axis(axes[0], rank)
        write.first[node.outputs[0]] = write.node(operator, [write.first[x]], axis=axis)
        return ()
    if len(axes) == 1:
        return write.node(operator, [write(x)], axis=axes[0])
    top = write.reduce("ReduceMax", write(x), axes, True)
    shifted = write.node("Sub", [write(x), top])
    weights = write.node("Exp", [shifted])
    total = write.reduce("ReduceSum", weights, axes, True)
    if operator == "Softmax":
        return write.node("Div", [weights, total])
    return write.node("Sub", [shifted, write.node("Log", [total])])


# --- attention ------------------------------------------------------------------------


@row("attention")
def _attention(write: Writer, node: Node) -> list[str]:
    if any(write.uses[y] for y in node.outputs[1:]):
        raise write.refused(node, "the sums of its weights are read")
    query, key, value, *extras = node.inputs
    attrs = node.attrs
    heads = query.spec.shape[2]
    first = (0, 2, 1, 3)
    q, v = (write.node("Transpose", [write(x)], perm=first) for x in (query, value))
    named = dict(zip(attrs["given"], extras, strict=True))
    if write.opset >= 23 and query.spec.dtype == "float32":
        k = write.node("Transpose", [write(key)], perm=first)
        found = _one_operator(write, node, [q, k, v], named)
    else:
        k = _repeated(
            write,
            write.node("Transpose", [write(key)], perm=(0, 2, 3, 1)),
            key,
            node,
            heads,
            True,
        )
        v = _repeated(write, v, value, node, heads, False)
        found = _composed(write, node, q, k, v, named)
    return [write.node("Transpose", [found], perm=first)]


def _one_operator(
    write: Writer, node: Node, parts: list[str], named: dict[str, Any]
) -> str:
    mask = ""
    if named:
        mask = _added(write, node, named)
    inputs = [*parts, mask] if mask else parts
    attrs = node.attrs
    return write.node(
        "Attention", inputs, scale=attrs["scale"], is_causal=int(attrs["is_causal"])
    )


def _added(write: Writer, node: Node, named: dict[str, Any]) -> str:
    """Return the additive term of the logits: the bias and the mask."""
    bias = named.get("bias")
    name = "" if bias is None else write(bias)
    if "mask" in named:
        dtype = node.inputs[0].spec.dtype
        zero, low = write.scalar(0, dtype), write.scalar(MASKED, dtype)
        mask = write.node("Where", [write(named["mask"]), zero, low])
        name = write.node("Add", [name, mask]) if name else mask
    return name


def _repeated(
    write: Writer, name: str, x: Any, node: Node, heads: int, turned: bool
) -> str:
    """Repeat each key or value head to the number of query heads."""
    own = x.spec.shape[2]
    if own == heads:
        return name
    batch, sources, _, features = write.known_shape(x, node)
    rest = (features, sources) if turned else (sources, features)
    name = write.node("Unsqueeze", [name, write.ints([2])])
    name = write.node("Expand", [name, write.ints([1, 1, heads // own, 1, 1])])
    return write.reshaped(name, (batch, heads, *rest))


def _composed(
    write: Writer, node: Node, q: str, k: str, v: str, named: dict[str, Any]
) -> str:
    attrs, dtype = node.attrs, node.inputs[0].spec.dtype
    logits = write.node("MatMul", [q, k])
    if attrs["scale"] != 1:
        logits = write.node("Mul", [logits, write.scalar(attrs["scale"], dtype)])
    if "bias" in named:
        logits = write.node("Add", [logits, write(named["bias"])])
    allowed = write(named["mask"]) if "mask" in named else ""
    if attrs["is_causal"]:
        earlier = _earlier(write, node)
        allowed = write.node("And", [allowed, earlier]) if allowed else earlier
    if allowed:
        low = write.scalar(MASKED, dtype)
        logits = write.node("Where", [allowed, logits, low])
    return write.node("MatMul", [write.node("Softmax", [logits], axis=-1), v])


def _earlier(write: Writer, node: Node) -> str:
    """Return the causal mask: (targets, sources), True for sources up to the target."""
    targets = write.known_shape(node.inputs[0], node)[1]
    sources = write.known_shape(node.inputs[1], node)[1]
    if isinstance(targets, int) and isinstance(sources, int):
        return write.constants.add(np.tri(targets, sources, dtype=bool))
    zero, one = write.scalar(0, "int64"), write.scalar(1, "int64")
    rows, columns = (
        write.node("Range", [zero, write.node("Squeeze", [write.size(n)]), one])
        for n in (targets, sources)
    )
    column = write.node("Unsqueeze", [rows, write.ints([1])])
    return write.node("LessOrEqual", [columns, column])
