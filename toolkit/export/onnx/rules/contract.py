"""ONNX rules of products, convolutions, pooling and Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

from toolkit.export.onnx.convolution import is_product, write_product
from toolkit.export.onnx.rules.elementwise import WIDE
from toolkit.export.onnx.table import rule
from toolkit.export.onnx.windows import as_attributes, padding
from toolkit.export.onnx.writer import Writer
from toolkit.ir import Node


@rule("matmul")
def _matmul(writer: Writer, node: Node) -> Any:
    if is_product(writer, node):
        write_product(writer, node, node.outputs[0])
        return ()
    dtype = node.outputs[0].spec.dtype
    names = [writer(x) for x in node.inputs]
    wide = WIDE.get(dtype)
    if wide is None:
        return writer.node("MatMul", names)
    name = writer.node("MatMul", [writer.cast(x, wide) for x in names])
    return writer.cast(name, dtype)


@rule("matmul_integer")
def _matmul_integer(writer: Writer, node: Node) -> Any:
    return writer.node("MatMulInteger", [writer(x) for x in node.inputs])


@rule("conv", "conv_input_grad")
def _conv(writer: Writer, node: Node) -> tuple[()]:
    write_product(writer, node, node.outputs[0])
    return ()


@rule("conv_integer")
def _conv_integer(writer: Writer, node: Node) -> tuple[()]:
    x, w = node.inputs
    attrs, rank = writer.family.attrs(node, unchecked="padding"), x.spec.ndim - 2
    kernel = writer.node("Transpose", [writer(w)], perm=[rank + 1, rank, *range(rank)])
    offset = writer.scalar(attrs["offset"], x.spec.dtype)
    writer.nchw_names[node.outputs[0]] = writer.node(
        "ConvInteger",
        [writer.channels_first(x), kernel, offset],
        strides=list(attrs["strides"]),
        dilations=list(attrs["dilation"]),
        **as_attributes(padding(writer.family, node)),
        group=attrs["groups"],
        kernel_shape=list(w.spec.shape[:-2]),
    )
    return ()


@rule("max_pool")
def _max_pool(writer: Writer, node: Node) -> tuple[()]:
    values = node.outputs[0]
    writer.pool("MaxPool", node, values)
    return ()


@rule("sum_pool")
def _sum_pool(writer: Writer, node: Node) -> tuple[()]:
    (y,) = node.outputs
    writer.pool("AveragePool", node, y, count_include_pad=1)
    count = writer.scalar(math.prod(node.attrs["window"]), y.spec.dtype)
    writer.nchw_names[y] = writer.node("Mul", [writer.nchw_names[y], count])
    return ()


@rule("dft")
def _dft(writer: Writer, node: Node) -> list[str]:
    real, imag = (writer(x) for x in node.inputs)
    axis, inverse = node.attrs["axis"], node.attrs["inverse"]
    if inverse:  # the inverse is the transform with swapped parts, without 1 / n
        real, imag = imag, real
    real, imag = _spectrum(writer, [real, imag], axis)
    return [imag, real] if inverse else [real, imag]


@rule("rdft")
def _rdft(writer: Writer, node: Node) -> list[str]:
    (x,) = node.inputs
    return _spectrum(writer, [writer(x)], x.spec.ndim - 1, onesided=1)


@rule("irdft")
def _irdft(writer: Writer, node: Node) -> list[str]:
    real, imag = (writer(x) for x in node.inputs)
    axis, length = node.inputs[0].spec.ndim - 1, node.attrs["length"]
    return _spectrum(writer, [imag, real], axis, length)[1:]


def _spectrum(
    writer: Writer,
    components: list[str],
    axis: int,
    length: int | None = None,
    **attrs: int,
) -> list[str]:
    """Return the transform of one or two parts, padded to a length."""
    last = writer.ints([-1])
    components = [writer.node("Unsqueeze", [x, last]) for x in components]
    signal = (
        writer.node("Concat", components, axis=-1)
        if len(components) > 1
        else components[0]
    )
    inputs = [signal, "" if length is None else writer.scalar(length, "int64")]
    if writer.opset >= 20:
        spectrum = writer.node("DFT", [*inputs, writer.scalar(axis, "int64")], **attrs)
    else:
        used = inputs if length is not None else inputs[:1]
        spectrum = writer.node("DFT", used, axis=axis, **attrs)
    indices = [writer.scalar(i, "int64") for i in (0, 1)]
    return [writer.node("Gather", [spectrum, i], axis=-1) for i in indices]
