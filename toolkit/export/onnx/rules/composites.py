"""Composites with a corresponding ONNX operator."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.export.onnx.rules.shape import nchw_axis
from toolkit.export.onnx.table import rule
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node
from toolkit.ops.attention import MASKED


@rule("softmax", "log_softmax")
def _softmax(writer: Writer, node: Node) -> Any:
    (x,), axes = node.inputs, node.attrs["axis"]
    operator = "Softmax" if node.op.name == "softmax" else "LogSoftmax"
    rank = x.spec.ndim
    if len(axes) == 1 and writer.is_only_nchw(x):
        axis = nchw_axis(axes[0], rank)
        writer.nchw_names[node.outputs[0]] = writer.node(
            operator, [writer.nchw_names[x]], axis=axis
        )
        return ()
    if len(axes) == 1:
        return writer.node(operator, [writer(x)], axis=axes[0])
    top = writer.reduce("ReduceMax", writer(x), axes, True)
    shifted = writer.node("Sub", [writer(x), top])
    weights = writer.node("Exp", [shifted])
    total = writer.reduce("ReduceSum", weights, axes, True)
    if operator == "Softmax":
        return writer.node("Div", [weights, total])
    return writer.node("Sub", [shifted, writer.node("Log", [total])])


# --- attention ------------------------------------------------------------------------


@rule("attention")
def _attention(writer: Writer, node: Node) -> list[str]:
    if any(writer.use_counts[y] for y in node.outputs[1:]):
        raise writer.unsupported_node(node, "the sums of its weights are read")
    query, key, value, *extras = node.inputs
    attrs = node.attrs
    heads = query.spec.shape[2]
    first = (0, 2, 1, 3)
    q, v = (writer.node("Transpose", [writer(x)], perm=first) for x in (query, value))
    bias_and_mask = dict(zip(attrs["given"], extras, strict=True))
    if writer.opset >= 23 and query.spec.dtype == "float32":
        k = writer.node("Transpose", [writer(key)], perm=first)
        result = _write_attention_operator(writer, node, [q, k, v], bias_and_mask)
    else:
        k = _repeat_heads(
            writer,
            writer.node("Transpose", [writer(key)], perm=(0, 2, 3, 1)),
            key,
            node,
            heads,
            True,
        )
        v = _repeat_heads(writer, v, value, node, heads, False)
        result = _decompose_attention(writer, node, q, k, v, bias_and_mask)
    return [writer.node("Transpose", [result], perm=first)]


def _write_attention_operator(
    writer: Writer, node: Node, operands: list[str], bias_and_mask: dict[str, Any]
) -> str:
    mask = ""
    if bias_and_mask:
        mask = _additive_mask(writer, node, bias_and_mask)
    inputs = [*operands, mask] if mask else operands
    attrs = node.attrs
    return writer.node(
        "Attention", inputs, scale=attrs["scale"], is_causal=int(attrs["is_causal"])
    )


def _additive_mask(writer: Writer, node: Node, bias_and_mask: dict[str, Any]) -> str:
    """Return the additive term of the logits: the bias and the mask."""
    bias = bias_and_mask.get("bias")
    name = "" if bias is None else writer(bias)
    if "mask" in bias_and_mask:
        dtype = node.inputs[0].spec.dtype
        zero, low = writer.scalar(0, dtype), writer.scalar(MASKED, dtype)
        mask = writer.node("Where", [writer(bias_and_mask["mask"]), zero, low])
        name = writer.node("Add", [name, mask]) if name else mask
    return name


def _repeat_heads(
    writer: Writer, name: str, x: Any, node: Node, heads: int, is_transposed: bool
) -> str:
    """Repeat each key or value head to the number of query heads."""
    head_count = x.spec.shape[2]
    if head_count == heads:
        return name
    batch, sources, _, features = writer.known_shape(x, node)
    inner_shape = (features, sources) if is_transposed else (sources, features)
    name = writer.node("Unsqueeze", [name, writer.ints([2])])
    name = writer.node("Expand", [name, writer.ints([1, 1, heads // head_count, 1, 1])])
    return writer.reshaped(name, (batch, heads, *inner_shape))


def _decompose_attention(
    writer: Writer, node: Node, q: str, k: str, v: str, bias_and_mask: dict[str, Any]
) -> str:
    attrs, dtype = node.attrs, node.inputs[0].spec.dtype
    logits = writer.node("MatMul", [q, k])
    if attrs["scale"] != 1:
        logits = writer.node("Mul", [logits, writer.scalar(attrs["scale"], dtype)])
    if "bias" in bias_and_mask:
        logits = writer.node("Add", [logits, writer(bias_and_mask["bias"])])
    allowed = writer(bias_and_mask["mask"]) if "mask" in bias_and_mask else ""
    if attrs["is_causal"]:
        causal = _causal_mask(writer, node)
        allowed = writer.node("And", [allowed, causal]) if allowed else causal
    if allowed:
        low = writer.scalar(MASKED, dtype)
        logits = writer.node("Where", [allowed, logits, low])
    return writer.node("MatMul", [writer.node("Softmax", [logits], axis=-1), v])


def _causal_mask(writer: Writer, node: Node) -> str:
    """Return the causal mask: (targets, sources), True for sources up to the target."""
    targets = writer.known_shape(node.inputs[0], node)[1]
    sources = writer.known_shape(node.inputs[1], node)[1]
    if isinstance(targets, int) and isinstance(sources, int):
        return writer.constants.add(np.tri(targets, sources, dtype=bool))
    zero, one = writer.scalar(0, "int64"), writer.scalar(1, "int64")
    rows, columns = (
        writer.node("Range", [zero, writer.node("Squeeze", [writer.size(n)]), one])
        for n in (targets, sources)
    )
    column = writer.node("Unsqueeze", [rows, writer.ints([1])])
    return writer.node("LessOrEqual", [columns, column])
